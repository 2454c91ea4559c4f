"""The job as a user writes it: schedule + target + payload + policies.

These models are the one definition of a job: the HTTP interface publishes them, the command line reads
them, the store keeps what they accepted, to the letter. They judge form only; what needs the present time, a
zone or a cron expression is judged in `model.schedule`, what needs the database in `control`.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from cronwell.model.dependencies import After, Rule, rule_of
from cronwell.model.part import NAME_PATTERN, Part, StrictDuration
from cronwell.model.publishing import PublishTarget
from cronwell.model.references import SecretRef, text_or_secret

DEFAULT_POOL = "default"
POOL_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,62}$"
HEADER_PATTERN = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$"
TAG_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$"
LONGEST_TAG, MOST_TAGS = 256, 32
# What RFC 5321 calls a Mailbox, without quotes, comments and address literals.
ADDRESS_PATTERN = r"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$"
PAYLOAD_DEPTH = 32
_NOT_IN_URL = re.compile(r"[\s\x00-\x1f\x7f]")
RESERVED_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "idempotency-key", "traceparent"}
)
RESERVED_HEADER_PREFIXES = ("webhook-", "cronwell-", "proxy-")

Priority = Literal["high", "normal", "low"]
TargetKind = Literal["http", "shell", "handler", "publish"]
"""What the jobs of users call."""
TARGET_KINDS: tuple[TargetKind, ...] = get_args(TargetKind)
Backoff = Literal["exponential", "linear", "fixed"]
RetriedOutcome = Literal["failed", "timed_out", "worker_lost"]
Queueing = Literal["queue_one", "queue_all", "cancel_running"]
Overlap = Literal["allow", "skip", "queue_one", "queue_all", "cancel_running"]


if TYPE_CHECKING:
    HeaderValue = str | SecretRef
    VariableValue = str | SecretRef
else:
    HeaderValue = text_or_secret(8192)
    VariableValue = text_or_secret(32_768)


class Callback(Part):
    """Lets whoever is called answer 202 and say later, by way of `Cronwell-Callback`, how it ended."""

    deadline: StrictDuration
    """How long after its start an attempt may end by its callback, from 1s to 30d; then it is timed out."""
    heartbeat: StrictDuration | None = None
    """How long it may be silent, from 1s up to the deadline; then it is timed out as well."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Callback:
        if not timedelta(seconds=1) <= self.deadline <= timedelta(days=30):
            raise ValueError("deadline lies between 1s and 30d")
        if self.heartbeat is not None and not timedelta(seconds=1) <= self.heartbeat <= self.deadline:
            raise ValueError("heartbeat lies between 1s and the deadline")
        return self


class HttpTarget(Part):
    """Call a URL with a signed Standard Webhooks delivery; 2xx is success."""

    url: Annotated[str, StringConstraints(min_length=8, max_length=4096)]
    """The whole address, with http or https; it goes out as it is written."""
    method: Literal["POST", "PUT", "PATCH", "GET", "DELETE"] = "POST"
    """GET and DELETE carry no body, so they do not deliver the payload."""
    headers: dict[
        Annotated[str, StringConstraints(pattern=HEADER_PATTERN)],
        HeaderValue,
    ] = Field(default_factory=dict, max_length=64)
    """Headers to add: texts, or `{"secret": "name"}`. Those that Cronwell sets itself are refused."""
    callback: Callback | None = None
    """What is answered with 202 has not ended: it waits for its callback. Without this, 202 is success."""
    body: Literal["delivery", "payload"] = "delivery"
    """What is sent: the delivery, with the payload in it, or the payload alone, as receivers expect that know nothing of
    Cronwell."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        return check_url(url)

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str | SecretRef]) -> dict[str, str | SecretRef]:
        for name, value in headers.items():
            lowered = name.lower()
            if lowered in RESERVED_HEADERS or lowered.startswith(RESERVED_HEADER_PREFIXES):
                raise ValueError(f"{name} is set by Cronwell on each delivery; choose another header")
            if not fits_header(value if isinstance(value, str) else value.prefix):
                raise ValueError(f"the value of {name} has characters that a header cannot carry")
        return headers


class ShellTarget(Part):
    """Run a command in its own process group. Refused unless the installation enables it."""

    command: (
        Annotated[str, StringConstraints(min_length=1, max_length=32_768)]
        | Annotated[
            list[Annotated[str, StringConstraints(max_length=32_768)]], Field(min_length=1, max_length=1024)
        ]
    )
    """A string goes to `/bin/sh -c`; a list is executed as it is."""
    env: dict[
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")],
        VariableValue,
    ] = Field(default_factory=dict, max_length=128)
    """Variables to add to the command's environment: texts, or `{"secret": "name"}`."""
    cwd: Annotated[str, StringConstraints(pattern=r"^/", max_length=4096)] | None = None
    """The folder to run in, as an absolute path."""

    @model_validator(mode="after")
    def _refuse_null_bytes(self) -> ShellTarget:
        texts = [self.command] if isinstance(self.command, str) else self.command
        values = (value if isinstance(value, str) else value.prefix for value in self.env.values())
        if any("\0" in text for text in (*texts, *values, self.cwd or "")):
            raise ValueError("a command cannot carry a null byte")
        return self


class HandlerTarget(Part):
    """Call a Python function that a worker registered under this name."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.:-]{0,199}$")]
    """The name under which the function is registered."""


Address = Annotated[str, StringConstraints(pattern=ADDRESS_PATTERN, max_length=254)]


class EmailTarget(Part):
    """Send mail: the payload has its `subject` and its `text`. Only channels of alerts do that."""

    to: Annotated[list[Address], Field(min_length=1, max_length=20)]
    """Who gets it."""


class Target(Part):
    """What an attempt calls: exactly one of the kinds."""

    http: HttpTarget | None = None
    """A URL to call."""
    shell: ShellTarget | None = None
    """A command to run."""
    handler: HandlerTarget | None = None
    """A Python function to call."""
    publish: PublishTarget | None = None
    """A broker to send a message to."""
    # Not for the jobs of users, who are not told of it.
    email: SkipJsonSchema[EmailTarget | None] = Field(default=None, exclude_if=lambda each: each is None)

    @model_validator(mode="after")
    def _check_one(self) -> Target:
        given = [kind for kind in (*TARGET_KINDS, "email") if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of {', '.join(TARGET_KINDS)} (given: {', '.join(given) or 'none'})"
            )
        return self

    @cached_property
    def kind(self) -> TargetKind | Literal["email"]:
        return next((kind for kind in TARGET_KINDS if getattr(self, kind) is not None), "email")


class OutcomeRule(Part):
    """What differs from the job's retry policy after one kind of outcome."""

    retry: Annotated[bool, Field(strict=True)] = True
    """Whether to try again at all."""
    max_attempts: Annotated[int, Field(ge=1, le=100, strict=True)] | None = None
    """Attempts in all, in place of the policy's."""
    initial_delay: StrictDuration | None = None
    """The wait before the first retry, in place of the policy's."""


class RetryPolicy(Part):
    """How often, and after how long, a failed attempt is tried again."""

    max_attempts: Annotated[int, Field(ge=1, le=100, strict=True)] = 4
    """Attempts in all, the first one included; 1 never retries."""
    backoff: Backoff = "exponential"
    """How the wait grows from one retry to the next: doubled, by the same amount, or not at all."""
    initial_delay: StrictDuration = timedelta(seconds=10)
    """The wait before the first retry."""
    max_delay: StrictDuration = timedelta(hours=1)
    """The longest wait, up to 7d."""
    jitter: Annotated[float, Field(ge=0, le=1, strict=True)] = 0.1
    """The share of each delay that is spread at random, so that a herd does not come back as one."""
    outcomes: dict[RetriedOutcome, OutcomeRule] = Field(default_factory=dict)
    """What differs after one kind of outcome."""

    @model_validator(mode="after")
    def _check_delays(self) -> RetryPolicy:
        if self.max_delay > timedelta(days=7):
            raise ValueError("max_delay is at most 7d")
        if self.initial_delay > self.max_delay:
            raise ValueError("initial_delay is longer than max_delay")
        return self


class Group(Part):
    """Executions of several jobs that share something there is only so much of."""

    key: Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
    """The group's name; jobs of one tenant that give the same name are in it together."""
    limit: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 1
    """How many executions of the group may run when one of this job starts, that one included."""


_DEFAULT_RETRY = RetryPolicy()


def _read_target(value: object) -> object:
    return {"http": {"url": value}} if isinstance(value, str) else value


class JobSpec(Part):
    """A job as its user defines it."""

    name: Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
    """Unique among the jobs that are not deleted."""
    description: Annotated[str, StringConstraints(max_length=2000)] | None = None
    """For people."""
    schedule: str | dict[str, Any] | None = Field(
        default=None,
        description='Cron text, "@hourly", "every 15m", "in 5m", "at 2027-01-01T10:00:00Z", or an object. '
        "Without a schedule the job runs only when it is triggered.",
        examples=["0 3 * * *", {"cron": "0 3 * * *", "timezone": "America/Los_Angeles"}],
    )
    after: After | None = None
    """The jobs whose executions it follows, in place of a schedule: it runs once for each of their slots. A list, all of which
    must have ended so; or an object with `all` or `any`, a `delay` and a `timeout`."""
    timezone: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    """The IANA zone of the schedule, such as Europe/Berlin; UTC where none is given, here or in the schedule."""
    window: Annotated[str, StringConstraints(min_length=1, max_length=32)] | None = None
    """Spreads starts after each slot: a duration such as 10m, or a share of the time to the next slot such as 50%."""
    target: Annotated[Target, BeforeValidator(_read_target, json_schema_input_type=str | Target)]
    """What to call: one of the kinds, or a URL, which is an http POST to it."""
    payload: Any = None
    """Any JSON, handed to the target with each attempt. `{"secret": "name"}` in it stands for the secret's value."""
    # Made by a function that always returns the same one: pydantic would copy a default, deeply, for each job it reads.
    retry: RetryPolicy = Field(default_factory=lambda: _DEFAULT_RETRY)
    """When an attempt that did not succeed is tried again."""
    timeout: StrictDuration = timedelta(minutes=10)
    """The longest that one attempt may take, from 1ms to 7d."""
    priority: Priority = "normal"
    """Which executions workers take first when more is due than they can run."""
    pool: Annotated[str, StringConstraints(pattern=POOL_PATTERN)] = DEFAULT_POOL
    """The set of workers that runs it."""
    overlap: Overlap = "skip"
    """What becomes of a slot that comes due while `max_running` executions of the job are unfinished: it is skipped; or
    waits (`queue_all`); or waits unless another one does already (`queue_one`); or the oldest is cancelled to make room
    for it (`cancel_running`). `allow` runs them beside each other."""
    max_running: Annotated[int, Field(ge=1, le=10_000, strict=True)] | None = None
    """How many executions of the job may be unfinished at once (default 1); not with `overlap: allow`."""
    group: Group | None = None
    """Executions of all jobs of a group wait until fewer than the limit run."""
    catch_up: Literal["none", "last", "all"] = "last"
    """Which missed slots run after an outage: none, the newest, or all of them."""
    catch_up_window: StrictDuration | None = None
    """How old a missed slot may be and still run. By default the time between two slots, one hour at most."""
    catch_up_limit: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 100
    """With `catch_up: all`: the newest so many of the missed slots run."""
    tags: dict[
        Annotated[str, StringConstraints(pattern=TAG_PATTERN)],
        Annotated[str, StringConstraints(max_length=LONGEST_TAG)],
    ] = Field(default_factory=dict, max_length=MOST_TAGS)
    """Names with values, to find jobs by."""

    @field_validator("timeout")
    @classmethod
    def _check_timeout(cls, timeout: timedelta) -> timedelta:
        if not timedelta(milliseconds=1) <= timeout <= timedelta(days=7):
            raise ValueError("timeout lies between 1ms and 7d")
        return timeout

    @field_validator("payload")
    @classmethod
    def _check_payload(cls, payload: object) -> object:
        check_json(payload)
        return payload

    @model_validator(mode="after")
    def _check_after(self) -> JobSpec:
        if self.after is not None and self.schedule is not None:
            raise ValueError(
                "a job has a `schedule` or follows others by `after`, not both; set the other to null"
            )
        return self

    @model_validator(mode="after")
    def _check_overlap(self) -> JobSpec:
        if self.overlap == "allow" and self.max_running is not None:
            raise ValueError("`overlap: allow` has no limit; with `queue_all` those beyond max_running wait")
        return self

    @property
    def rule(self) -> Rule | None:
        """When it runs after others; None for a job that follows none."""
        return None if self.after is None else rule_of(self.after)

    @property
    def running_limit(self) -> int | None:
        """How many unfinished executions the job may have; None for no limit."""
        return None if self.overlap == "allow" else (self.max_running or 1)

    @property
    def queueing(self) -> Queueing | None:
        """How a slot beyond the limit waits; None where it is skipped, or there is no limit."""
        return None if self.overlap == "allow" or self.overlap == "skip" else self.overlap  # noqa: PLR1714  # for mypy

    @property
    def group_limit(self) -> tuple[str, int] | None:
        """The name of the job's group, and how many of it may run."""
        return None if self.group is None else (self.group.key, self.group.limit)


@lru_cache(maxsize=4096)
def check_url(url: str) -> str:
    """Refuse a URL that cannot be called. Many jobs call the same one, so what was found good is remembered."""
    if _NOT_IN_URL.search(url):
        raise ValueError("a URL has no spaces or control characters; percent-encode them")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError('write a whole URL such as "https://example.com/run"')
    if parts.username is not None or parts.password is not None:
        raise ValueError("credentials do not belong in a URL; put them in `headers`")
    if port == 0:
        raise ValueError("port 0 cannot be called")
    labels = parts.hostname.removesuffix(".").split(".")
    if ":" not in parts.hostname and not all(0 < len(label) <= 63 for label in labels):
        raise ValueError(f"{parts.hostname!r} is not a host: each part of a name has 1 to 63 characters")
    return url


def fits_header(text: str) -> bool:
    """Tell whether a header can carry a text."""
    return not any((ord(ch) < 0x20 and ch != "\t") or ord(ch) == 0x7F or ord(ch) > 0xFF for ch in text)


def check_json(value: object) -> None:
    """Refuse JSON that is too deep, not finite, or that PostgreSQL cannot keep."""
    level: list[object] = [value]
    for _ in range(PAYLOAD_DEPTH + 1):
        below: list[object] = []
        for item in level:
            if isinstance(item, str):
                if "\0" in item:
                    raise ValueError("text cannot carry the null character \\u0000")
            elif isinstance(item, dict):
                below += item
                below += item.values()
            elif isinstance(item, list):
                below += item
            elif isinstance(item, float) and not math.isfinite(item):
                raise ValueError("numbers must be finite: NaN and Infinity are not JSON")
        if not below:
            return
        level = below
    raise ValueError(f"nested deeper than {PAYLOAD_DEPTH} levels")
