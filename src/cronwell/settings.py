"""The tree of settings: their defaults, what they say and what they may be. `config` reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cronwell import addresses, values

TOKEN_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
ETCD_SCHEMES, ETCD_PORT = ("etcd", "etcds"), 2379


def setting(
    default: Any,
    doc: str,
    *,
    one_of: tuple[str, ...] = (),
    least: Any = None,
    most: Any = None,
    check: Callable[[Any], None] | None = None,
) -> Any:
    """Declare one setting with its default, the line that describes it, and the values that it may have."""
    bounds = {"one_of": one_of, "least": least, "most": most, "check": check}
    return field(default=default, metadata={"doc": doc, **bounds})


def named(doc: str, *, check: Callable[[str], None], pattern: str, example: str) -> Any:
    """Declare settings of one kind to which the installation gives names: `brokers.orders`, `CRONWELL_BROKERS_ORDERS`."""
    metadata = {"doc": doc, "check": check, "pattern": pattern, "example": example}
    bounds = {"one_of": (), "least": None, "most": None}
    return field(default_factory=dict, metadata={**metadata, **bounds})


def check_coordination(value: str) -> None:
    if value == "postgres":
        return
    if "://" not in value:
        raise ValueError(f"{value!r} is neither postgres nor etcd://HOST:PORT,… nor etcds://HOST:PORT,…")
    addresses.parse(value, schemes=ETCD_SCHEMES, port=ETCD_PORT)


def check_public_url(value: str) -> None:
    if not value:
        return
    parts = urlsplit(value)
    is_whole = parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment)
    if not is_whole or not value.isascii() or any(ch.isspace() or ord(ch) < 0x20 for ch in value):
        raise ValueError(f"{value!r} is not an address such as https://cronwell.example.com")


def check_algorithms(names: tuple[str, ...]) -> None:
    for name in names:
        if name not in TOKEN_ALGORITHMS:
            raise ValueError(f"{name!r} is not an algorithm by which only the provider can sign")


def check_broker(address: str) -> None:
    redis = addresses.BROKER_SCHEMES["redis"]
    if not address:
        return
    if address.partition("://")[0] not in redis:
        said = f"{addresses.without_password(address)!r} is no address of a broker"
        raise ValueError(
            f"{said}: it is {redis[0]}://USER:PASSWORD@HOST:PORT/DATABASE (with TLS: {redis[1]}://…)"
        )
    addresses.parse_one(address, schemes=redis, port=addresses.REDIS_PORT)


def check_keys(text: str) -> None:
    values.read_keys(text)


# Nothing that is done again and again may be done without a pause.
_A_MOMENT = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    url: str = setting(
        "", "postgresql:// address of your PostgreSQL 15-18; empty: an embedded one in data_dir"
    )
    pool_size: int = setting(8, "connections that one process keeps at most", least=1)
    pooler: bool = setting(
        False, "true behind a transaction pooler: no prepared statements, polling for LISTEN"
    )
    statement_timeout: timedelta = setting(timedelta(seconds=30), "longest that one statement may take")


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    look_ahead: timedelta = setting(
        timedelta(seconds=60), "how far before its instant a slot is staged", least=_A_MOMENT
    )
    tick: timedelta = setting(
        timedelta(seconds=1), "longest wait between two looks for slots to stage", least=_A_MOMENT
    )
    batch: int = setting(2000, "jobs staged in one transaction, at the most", least=1)
    lease: timedelta = setting(
        timedelta(seconds=4),
        "a scheduler silent for longer is taken for dead; others do its duties",
        least=timedelta(milliseconds=200),
    )
    late_grace: timedelta = setting(timedelta(seconds=10), "a slot found no later than this is still on time")
    catch_up_rate: int = setting(
        500, "missed slots that become ready each second, from each scheduler, after an outage", least=1
    )
    stuck_after: timedelta = setting(
        timedelta(hours=1),
        "a job that follows others and waits for longer is told of as stuck",
        least=_A_MOMENT,
    )
    tzdata: str = setting(
        "apply",
        "next slots that new rules of their zone move: apply, hold (as told) or ask (hold until decided)",
        one_of=("apply", "hold", "ask"),
    )


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    pools: tuple[str, ...] = setting(("default",), "pools whose executions this worker takes")
    concurrency: int = setting(2000, "attempts running at once in one worker process", least=1)
    threads: int = setting(32, "threads for handlers that are plain functions, in one worker process")
    claim_batch: int = setting(1000, "executions claimed in one statement", least=1)
    lease: timedelta = setting(
        timedelta(seconds=30), "a worker silent for longer is lost; its work is retried", least=_A_MOMENT
    )
    heartbeat: timedelta = setting(
        timedelta(seconds=5), "how often a worker says that it lives", least=_A_MOMENT
    )
    stall_limit: timedelta = setting(
        timedelta(minutes=10),
        "a worker whose event loop is blocked for longer ends itself, to be started again",
        least=timedelta(milliseconds=200),
    )
    # Triggers of limited jobs make way for what is claimed so far ahead, and not further.
    pre_claim: timedelta = setting(
        timedelta(milliseconds=500), "how early an execution is claimed and held", most=timedelta(seconds=1)
    )
    poll: timedelta = setting(
        timedelta(milliseconds=200), "longest wait between two looks for work", least=_A_MOMENT
    )
    drain: timedelta = setting(timedelta(seconds=30), "how long a stopping worker lets attempts finish")
    cancel_grace: timedelta = setting(timedelta(seconds=10), "from a cooperative stop to a forced one")
    output_limit: int = setting(65_536, "bytes of output kept of one attempt; the rest is cut and marked")
    imports: tuple[str, ...] = setting((), "Python modules to import for their handlers")
    flush: timedelta = setting(
        timedelta(milliseconds=5), "longest that a result waits for company in its batch"
    )
    ageing: timedelta = setting(
        timedelta(seconds=60),
        "what has waited for longer gets a tenth of the places before a higher priority; 0s: never",
    )
    breaker: int = setting(
        20, "a host that failed so many times in a row is left alone, and tried again; 0: never", least=0
    )
    breaker_wait: timedelta = setting(
        timedelta(seconds=2),
        "how long such a host is left alone before one call tries it; doubled each time",
        least=_A_MOMENT,
    )
    breaker_longest: timedelta = setting(
        timedelta(minutes=1), "the longest time between two such calls", least=_A_MOMENT
    )


@dataclass(frozen=True, slots=True)
class HttpSettings:
    per_host: int = setting(256, "requests under way to one host at once, in one worker process", least=1)
    connections: int = setting(2048, "connections of one worker process at the most", least=1)
    connect_timeout: timedelta = setting(timedelta(seconds=10), "longest wait for a connection")
    response_limit: int = setting(1_048_576, "bytes of an answer that are read; a longer one is cut off")
    retry_after_cap: timedelta = setting(timedelta(hours=1), "longest Retry-After that is honoured")


@dataclass(frozen=True, slots=True)
class ShellSettings:
    enabled: bool = setting(False, "whether jobs may run shell commands")


@dataclass(frozen=True, slots=True)
class PublishSettings:
    timeout: timedelta = setting(
        timedelta(seconds=10),
        "longest wait for a broker's answer, and for a connection to it",
        least=_A_MOMENT,
    )
    ca: str = setting("", "file with the certificates that brokers' are judged by; empty: the system's")


@dataclass(frozen=True, slots=True)
class AuthSettings:
    required: bool = setting(
        False, "true: requests from this machine need a key as well; those from others always do"
    )
    jwks: str = setting("", "file or https:// address of the public keys that tokens (JWT) are signed with")
    issuer: str = setting("", "the `iss` that tokens must have")
    audience: str = setting("", "the `aud` that tokens must have")
    algorithms: tuple[str, ...] = setting(
        ("RS256", "ES256", "EdDSA"), "how tokens may be signed", check=check_algorithms
    )
    tenant_claim: str = setting("tenant", "the claim with the name of the tenant")
    scopes_claim: str = setting("scope", "the claim with scopes: a list, or a text with spaces between")


@dataclass(frozen=True, slots=True)
class SecretSettings:
    key: str = setting(
        "",
        "key that secrets are encrypted with: 32 bytes as base64 or hex; of several, with commas, the first encrypts",
        check=check_keys,
    )
    key_file: str = setting(
        "", "file with such keys, one a line; `up` makes one in data_dir if there is no key"
    )
    key_command: str = setting("", "command that prints such keys; it is run without a shell")


@dataclass(frozen=True, slots=True)
class LimitSettings:
    body: int = setting(1_048_576, "bytes of one request body")
    batch_body: int = setting(536_870_912, "bytes of one NDJSON batch")
    payload: int = setting(262_144, "bytes of one payload")
    page: int = setting(1000, "items on one page of a list", least=1)


@dataclass(frozen=True, slots=True)
class AlertSettings:
    every: timedelta = setting(
        timedelta(seconds=5), "how often rules of alerts are judged", least=timedelta(milliseconds=100)
    )
    pool: str = setting("default", "pool of the workers that send alerts")


@dataclass(frozen=True, slots=True)
class SmtpSettings:
    host: str = setting("", "server that mail of alerts is handed to; empty: no mail is sent")
    port: int = setting(587, "port of smtp.host", least=1, most=65_535)
    tls: str = setting(
        "starttls",
        "starttls, implicit (from the first byte, mostly port 465) or none (only where nobody listens)",
        one_of=("starttls", "implicit", "none"),
    )
    ca: str = setting("", "file with the certificates that the server's is judged by; empty: the system's")
    username: str = setting("", "user that the server knows; empty: none is told")
    password: str = setting("", "password of smtp.username")
    password_file: str = setting("", "file with that password, in place of smtp.password")
    sender: str = setting("", "address that mail comes from; empty: cronwell@ and this machine's name")
    domains: tuple[str, ...] = setting((), "domains that mail may go to; empty: any")


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    executions: timedelta = setting(
        timedelta(days=30), "how long history is kept; whole days are dropped at once"
    )
    idempotency: timedelta = setting(timedelta(hours=24), "how long an Idempotency-Key is remembered")


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    ca: str = setting("", "file with the certificates that etcd's is judged by; empty: the system's")
    cert: str = setting("", "file with the certificate that is shown to etcd")
    key: str = setting("", "file with the key of etcd.cert")
    server_name: str = setting("", "name that etcd's certificate must have; empty: the host's")
    user: str = setting("", "user that etcd knows; may also stand in the address")
    password: str = setting("", "password of etcd.user")
    prefix: str = setting("/cronwell/", "what all keys start with; one of its own for each installation")
    timeout: timedelta = setting(
        timedelta(seconds=1), "longest wait for an answer, of all of the servers together", least=_A_MOMENT
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    level: str = setting(
        "info", "debug, info, warning or error", one_of=("debug", "info", "warning", "error")
    )
    format: str = setting("auto", "json, text, or auto: text on a terminal", one_of=("json", "text", "auto"))


@dataclass(frozen=True, slots=True)
class Settings:
    data_dir: Path = setting(Path(".cronwell"), "where the embedded PostgreSQL keeps its data")
    host: str = setting("127.0.0.1", "address that the API listens on")
    port: int = setting(8420, "port that the API listens on", most=65_535)
    url: str = setting("", "address of the API that the command line talks to; empty: host and port above")
    public_url: str = setting(
        "",
        "address at which receivers of webhooks reach the API, for callbacks; empty: none, but with `up` as listened on",
        check=check_public_url,
    )
    api_key: str = setting("", "key that the command line shows to the API")
    ops_port: int = setting(
        0, "port for /healthz, /readyz and /metrics of a scheduler or worker; 0: none", most=65_535
    )
    bus: str = setting("postgres", "how work is announced: postgres", one_of=("postgres",))
    coordination: str = setting(
        "postgres",
        "how schedulers share their duties: postgres, or etcd://HOST:PORT,… (with TLS: etcds://…)",
        check=check_coordination,
    )
    egress_allow: tuple[str, ...] = setting((), "private networks that targets may reach, e.g. 10.1.0.0/16")
    database: DatabaseSettings = field(default_factory=DatabaseSettings)
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    shell: ShellSettings = field(default_factory=ShellSettings)
    publish: PublishSettings = field(default_factory=PublishSettings)
    brokers: Mapping[str, str] = named(
        "address of a broker that jobs publish to by this name: redis://USER:PASSWORD@HOST:PORT/DATABASE "
        "(with TLS: rediss://…)",
        check=check_broker,
        pattern=addresses.BROKER_PATTERN,
        example=addresses.DEFAULT_BROKER,
    )
    auth: AuthSettings = field(default_factory=AuthSettings)
    secrets: SecretSettings = field(default_factory=SecretSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    smtp: SmtpSettings = field(default_factory=SmtpSettings)
    etcd: EtcdSettings = field(default_factory=EtcdSettings)
    log: LogSettings = field(default_factory=LogSettings)
