"""Bodies that the HTTP interface takes and gives beside jobs and executions."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from cronwell.api.problems import Problem
from cronwell.control.views import Moment, View
from cronwell.model.access import DEFAULT_SCOPES, TENANT_PATTERN, Scope
from cronwell.model.throttle import MOST_CONCURRENCY

_TIME = {"format": "date-time"}

Time = Annotated[str, Field(json_schema_extra=_TIME)]
Weight = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
ONE_LINE = r"^[^\x00-\x1f\x7f]*$"


class Asked(BaseModel):
    """A body whose unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Pause(Asked):
    note: Annotated[str, Field(max_length=2000)] | None = None
    """Why, for those who find the job paused."""
    until: Time | None = None
    """When the job resumes by itself."""


class Resume(Asked):
    fire_missed: Literal["none", "last", "all"] = "none"
    """What to do with the slots that the pause passed over."""


class Trigger(Asked):
    payload: Any = None
    """In place of the job's own payload, where it is given."""
    overlap: Literal["allow"] | None = None
    """`allow` starts it whatever else of the job is unfinished."""


class Rerun(Asked):
    downstream: Annotated[bool, Field(strict=True)] = False
    """Also run again what follows it at its slot, directly or by way of others, each when its rule says so."""


class OverrideAsked(Asked):
    """What is to become of one coming slot."""

    action: Literal["skip", "move", "payload"]
    to: Time | None = None
    """When a slot that is moved starts, before or after it: RFC 3339, or a wall-clock time in the zone of the job's
    schedule."""
    payload: Any = None
    """In place of the job's own payload."""
    note: Annotated[str, Field(max_length=2000)] | None = None
    """Why, for those who ask what became of the slot."""
    author: Annotated[str, Field(max_length=200)] | None = None
    """Who decided."""
    expires_at: Time | None = None
    """From then on it does nothing, unless it is applied by then. It is applied a day ahead of the slot."""


class Redrive(Asked):
    """Which dead letters to retry: those of `ids`, or all that match the rest."""

    ids: (
        Annotated[list[Annotated[str, Field(max_length=100)]], Field(min_length=1, max_length=1000)] | None
    ) = None
    job: Annotated[str, Field(max_length=300)] | None = None
    """A job's id, or `name:` and its name."""
    from_: Annotated[Time | None, Field(alias="from")] = None
    to: Time | None = None
    q: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Text that the output or the error contains."""
    rate: Annotated[float, Field(gt=0, le=100_000, strict=True)] = 100
    """How many become ready each second."""
    limit: Annotated[int, Field(ge=1, le=100_000, strict=True)] = 10_000
    """How many at the most; oldest first."""


class Redriven(View):
    count: int


class BackfillAsked(Asked):
    from_: Annotated[Time, Field(alias="from")]
    """The first slot's time, no older than retention keeps."""
    to: Time | None = None
    """Slots before this time; by default, now."""
    dry_run: Annotated[bool, Field(strict=True)] = False
    """Say what it would do, and do nothing."""
    order: Literal["oldest", "newest"] = "oldest"
    """Which slots come first."""
    rate: Annotated[float, Field(gt=0, le=1000, strict=True)] | Annotated[str, Field(max_length=40)] = 10.0
    """How many executions start a second at the most, or a text such as `100/m` or `30/h`."""
    concurrency: Annotated[int, Field(ge=1, le=1000, strict=True)] = 1
    """How many executions are unfinished at once at the most, two of them in a second for each."""
    definition: Literal["then", "current"] = "current"
    """By which definition slots are found and run: `then`, the one that the job had at the time of each, or `current`."""
    payload: Any = None
    """In place of the job's own payload, where it is given."""
    note: Annotated[str, Field(max_length=2000)] | None = None
    """Why, for those who come across it."""


class KeyAsked(Asked):
    name: Annotated[str, Field(min_length=1, max_length=200, pattern=ONE_LINE)]
    """Whose it is, or what it is for."""
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))] = sorted(DEFAULT_SCOPES)
    """What it may do: none that the key of this request lacks."""
    expires_at: Time | None = None
    """From then on it opens nothing."""


class Rotate(Asked):
    overlap: Annotated[str, Field(max_length=40)] = "24h"
    """How long the old key goes on to be good, up to 30 days."""


class SecretGiven(Asked):
    value: Annotated[str, Field(min_length=1, max_length=65_536, json_schema_extra={"format": "password"})]
    """What it is. No answer tells it."""


class RotateKeys(Asked):
    cursor: Annotated[str, Field(max_length=2000)] | None = None
    """The `next_cursor` of the answer before, to go on."""


class QuotasAsked(Asked):
    """How much a tenant may have; null is as much as it likes."""

    jobs: Annotated[int, Field(ge=0, le=2_000_000_000, strict=True)] | None = None
    payload_bytes: Annotated[int, Field(ge=0, le=2_000_000_000, strict=True)] | None = None
    """Of one payload, where that is less than the installation's limit."""
    requests_per_second: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] | None = None
    """Answered by one process of the API; twice as many may come at once."""
    running: Annotated[int, Field(ge=1, le=2_000_000_000, strict=True)] | None = None
    """Executions that run at once; others wait for their turn."""
    executions_per_minute: Annotated[int, Field(ge=1, le=2_000_000_000, strict=True)] | None = None
    """Executions that begin in a minute of the clock; others wait for the next one."""


class TenantAsked(Asked):
    name: Annotated[str, Field(pattern=TENANT_PATTERN)]
    weight: Weight = 1.0
    """Its share of the workers, beside those of others that have work waiting."""
    quotas: QuotasAsked = QuotasAsked()


class TenantChanged(Asked):
    weight: Weight | None = None
    quotas: QuotasAsked | None = None
    """Those that are named are changed."""


class PreviewAsked(Asked):
    schedule: str | dict[str, Any]
    timezone: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    window: Annotated[str, Field(min_length=1, max_length=32)] | None = None
    after: Time | None = None
    """Slots after this time; by default, now."""
    count: Annotated[int, Field(ge=1, le=1000, strict=True)] = 10
    job: Annotated[str, Field(max_length=200)] = ""
    """The name of the job that it is for, which decides the place of an `H`."""


class CalendarGiven(Asked):
    """A set of times; a moment belongs to it when any of its parts contains it."""

    dates: list[str] | None = Field(
        default=None, max_length=1000, examples=[["2026-12-24", "2026-12-28/2027-01-02"]]
    )
    """Days, and ranges of days."""
    rrules: list[str | dict[str, str]] | None = Field(default=None, max_length=20)
    """Days by rules of RFC 5545; `{"rule": …, "start": …}` where the rule is counted from a day."""
    holidays: list[dict[str, str]] | None = Field(
        default=None, max_length=20, examples=[[{"country": "DE", "region": "BY"}]]
    )
    """Public holidays of countries and their regions, by their ISO codes."""
    hours: list[dict[str, str]] | None = Field(
        default=None, max_length=100, examples=[[{"days": "MON-FRI", "from": "09:00", "to": "17:30"}]]
    )
    """Hours of each week."""
    windows: list[dict[str, str]] | None = Field(default=None, max_length=200)
    """Stretches of time: `{"from": …, "to": …}`, by the clock of the schedule's zone, or with offsets."""
    description: Annotated[str, Field(max_length=2000)] | None = None


class TzdataDecided(Asked):
    """Which jobs are meant: those of `jobs`, or all whose next slots move."""

    jobs: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=300)]], Field(min_length=1, max_length=100)
        ]
        | None
    ) = None
    """Ids, or `name:` and a name."""
    cursor: Annotated[str, Field(max_length=2000)] | None = None
    """The `next_cursor` of the answer before, to go on with all."""


class Completed(Asked):
    """How an attempt ended well."""

    output: Any = None
    """Kept as the attempt's output: a text as it is, anything else as JSON. What is too long is cut off and marked."""


class Failed(Asked):
    """How an attempt failed."""

    error: Annotated[str, Field(min_length=1, max_length=8192)]
    """What went wrong, for people."""
    retry: Annotated[bool, Field(strict=True)] = True
    """False: trying again cannot help, whatever attempts are left."""
    output: Any = None
    """As when it is completed."""


class Progress(Asked):
    progress: Any
    """How far it is: any JSON of up to 64 KiB."""


class Checkpoint(Asked):
    checkpoint: Any
    """What the next attempt gets: any JSON of up to 64 KiB, in place of what was left before; null for nothing."""


class Heartbeat(Asked):
    progress: Any = None
    """How far it is, where that has changed."""


class LimitGiven(Asked):
    """What a target bears, of the whole installation; null is as much as there is."""

    rate: Annotated[str, Field(max_length=40)] | None = Field(default=None, examples=["100/s", "600/m"])
    """How many may start: a number, and per second, minute or hour."""
    concurrency: Annotated[int, Field(ge=1, le=MOST_CONCURRENCY, strict=True)] | None = None
    """How many may be under way at once."""
    breaker: Annotated[bool, Field(strict=True)] = True
    """False: the host is called although it keeps failing."""


class Deleted(View):
    deleted: Literal[True] = True


class BatchResult(View):
    """One line of a batch's answer; lines come in the order of the jobs."""

    index: int
    """The place of the job in the batch, from 0; blank lines do not count."""
    status: Literal["created", "error"]
    id: UUID | None = None
    name: str | None = None
    next_fire_at: Moment | None = None
    problem: Problem | None = None


class Health(View):
    status: Literal["alive"] = "alive"


class Readiness(View):
    ready: bool
    reasons: list[str]
    """Why not, where it is not."""
