"""Every setting of Cronwell: one frozen tree, read once at start; unknown keys are refused.

A setting has one path (`scheduler.look_ahead`), from which its TOML key (`[scheduler] look_ahead`) and its
environment name (`CRONWELL_SCHEDULER_LOOK_AHEAD`) follow. The environment wins over the file, the file over
the default. `settings()` yields every one of them with its origin; `cronwell config show` prints that.
"""

from __future__ import annotations

import difflib
import os
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from cronwell import addresses
from cronwell.errors import ConfigError
from cronwell.values import CONVERTERS, write

PREFIX = "CRONWELL_"
SECRET_PATHS = frozenset({"database.url", "etcd.password"})
write_value = write
ETCD_SCHEMES, ETCD_PORT = ("etcd", "etcds"), 2379
NOT_SETTINGS = frozenset(
    {
        "CRONWELL_CONFIG",
        # An option of `cronwell sentinel`: an address with a secret in it does not belong on a command line.
        "CRONWELL_SENTINEL_WEBHOOK",
        # What a shell target is told of its attempt: its command may well call `cronwell`.
        "CRONWELL_JOB",
        "CRONWELL_EXECUTION",
        "CRONWELL_SLOT",
        "CRONWELL_ATTEMPT",
        "CRONWELL_FENCE",
    }
)


def setting(
    default: Any,
    doc: str,
    *,
    one_of: tuple[str, ...] = (),
    least: Any = None,
    most: Any = None,
    check: Callable[[str], None] | None = None,
) -> Any:
    """Declare one setting with its default, the line that describes it, and the values that it may have."""
    bounds = {"one_of": one_of, "least": least, "most": most, "check": check}
    return field(default=default, metadata={"doc": doc, **bounds})


def check_coordination(value: str) -> None:
    if value == "postgres":
        return
    if "://" not in value:
        raise ValueError(f"{value!r} is neither postgres nor etcd://HOST:PORT,… nor etcds://HOST:PORT,…")
    addresses.parse(value, schemes=ETCD_SCHEMES, port=ETCD_PORT)


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
    batch: int = setting(2000, "jobs staged in one transaction", least=1)
    lease: timedelta = setting(
        timedelta(seconds=4),
        "a scheduler silent for longer is taken for dead; others do its duties",
        least=timedelta(milliseconds=200),
    )
    late_grace: timedelta = setting(timedelta(seconds=10), "a slot found no later than this is still on time")
    catch_up_rate: int = setting(
        500, "missed slots that become ready each second, from each scheduler, after an outage", least=1
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
    claim_batch: int = setting(500, "executions claimed in one statement", least=1)
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
    pre_claim: timedelta = setting(timedelta(milliseconds=500), "how early an execution is claimed and held")
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
class LimitSettings:
    body: int = setting(1_048_576, "bytes of one request body")
    batch_body: int = setting(536_870_912, "bytes of one NDJSON batch")
    payload: int = setting(262_144, "bytes of one payload")
    page: int = setting(1000, "items on one page of a list", least=1)


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
    limits: LimitSettings = field(default_factory=LimitSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    etcd: EtcdSettings = field(default_factory=EtcdSettings)
    log: LogSettings = field(default_factory=LogSettings)


@dataclass(frozen=True, slots=True)
class Line:
    """One setting as `cronwell config show` prints it."""

    path: str
    env: str
    value: object
    origin: str
    doc: str


def read(
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Read the settings: overrides (command line), then environment, then file, then defaults."""
    settings, _ = _read(environ, file, overrides)
    return settings


def describe(
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
    overrides: Mapping[str, object] | None = None,
) -> list[Line]:
    """Return every setting with its value and where it came from."""
    settings, origins = _read(environ, file, overrides)
    lines = []
    for path, leaf in _leaves(Settings):
        value = _value(settings, path)
        shown = "(set)" if path in SECRET_PATHS and value else value
        shown = addresses.without_password(shown) if isinstance(shown, str) else shown
        lines.append(Line(path, env_name(path), shown, origins.get(path, "default"), leaf.metadata["doc"]))
    return lines


def as_environ(settings: Settings) -> dict[str, str]:
    """Settings as environment variables, to hand them on to another process."""
    return {env_name(path): write_value(_value(settings, path)) for path, _ in _leaves(Settings)}


def env_name(path: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + path.replace(".", "_").upper()


def _read(
    environ: Mapping[str, str] | None, file: Path | None, overrides: Mapping[str, object] | None
) -> tuple[Settings, dict[str, str]]:
    environ = os.environ if environ is None else environ
    leaves = dict(_leaves(Settings))
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    file = file or (Path(environ["CRONWELL_CONFIG"]) if environ.get("CRONWELL_CONFIG") else None)
    for path, raw in _from_file(file, leaves):
        values[path], origins[path] = _convert(leaves, path, raw, str(file)), str(file)
    names = {env_name(path): path for path in leaves}
    for name, text in environ.items():
        if not name.startswith(PREFIX) or name in NOT_SETTINGS:
            continue
        if name not in names:
            raise ConfigError(f"{name} is not a setting{_nearest(name, list(names))}")
        values[names[name]], origins[names[name]] = _convert(leaves, names[name], text, name), name
    for path, raw in (overrides or {}).items():
        values[path], origins[path] = _convert(leaves, path, raw, "command line"), "command line"
    settings: Settings = _build(Settings, "", values)
    worker = settings.worker
    if worker.heartbeat >= worker.lease:
        raise ConfigError(
            f"worker.heartbeat (CRONWELL_WORKER_HEARTBEAT), {write_value(worker.heartbeat)}, must be shorter than "
            f"worker.lease (CRONWELL_WORKER_LEASE), {write_value(worker.lease)}: else every worker is taken for lost"
        )
    return settings, origins


def _from_file(file: Path | None, leaves: Mapping[str, Field[Any]]) -> Iterator[tuple[str, object]]:
    if file is None:
        return
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the settings file {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    for key, value in tree.items():
        pairs = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
        for path, raw in pairs.items():
            if path not in leaves:
                raise ConfigError(f"{file}: {path} is not a setting{_nearest(path, list(leaves))}")
            yield path, raw


def _leaves(kind: type, prefix: str = "") -> Iterator[tuple[str, Field[Any]]]:
    hints = _hints(kind)
    for each in fields(kind):
        if is_dataclass(hints[each.name]):
            yield from _leaves(hints[each.name], f"{each.name}.")
        else:
            yield prefix + each.name, each


def _value(settings: Settings, path: str) -> object:
    value: object = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _build(kind: Any, prefix: str, values: Mapping[str, object]) -> Any:
    given: dict[str, Any] = {}
    hints = _hints(kind)
    for each in fields(kind):
        path = prefix + each.name
        if is_dataclass(hints[each.name]):
            given[each.name] = _build(hints[each.name], f"{path}.", values)
        elif path in values:
            given[each.name] = values[path]
        else:
            assert each.default is not MISSING
    return kind(**given)


def _convert(leaves: Mapping[str, Field[Any]], path: str, raw: object, origin: str) -> object:
    try:
        return _checked(leaves[path], CONVERTERS[_kind(path)](raw))
    except (ValueError, TypeError) as error:
        detail = str(error) or f"{raw!r} is not accepted"
        raise ConfigError(f"{origin}: {path} ({env_name(path)}): {detail}") from None


def _checked(leaf: Field[Any], value: Any) -> object:
    one_of, least, most, check = (leaf.metadata[name] for name in ("one_of", "least", "most", "check"))
    if check is not None:
        check(value)
    if one_of and value not in one_of:
        raise ValueError(f"{value!r} is not one of {', '.join(one_of)}")
    if least is not None and value < least:
        raise ValueError(f"{write_value(value)!r} is too little: it is at least {write_value(least)}")
    if most is not None and value > most:
        raise ValueError(f"{write_value(value)!r} is too much: it is at most {write_value(most)}")
    return value


def _kind(path: str) -> str:
    owner: type = Settings
    *parents, name = path.split(".")
    for parent in parents:
        owner = _hints(owner)[parent]
    hint = _hints(owner)[name]
    return str(getattr(hint, "__name__", hint))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {close[0]}?" if close else "; `cronwell config show` lists them all"
