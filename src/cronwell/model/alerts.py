"""Rules of alerts, and the channels that they speak by, as users write them.

A rule watches a job, the jobs with some tags, or the whole tenant for one condition. What it finds is an incident: opened once,
told by the rule's channels, and resolved when the condition is over. A channel has a job of its own, so that each message is an
execution: retried, kept in the history, and a dead letter where it never arrives.
"""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from cronwell import durations, errors
from cronwell.model import zones
from cronwell.model.job import POOL_PATTERN, Address, HttpTarget
from cronwell.model.part import NAME_PATTERN, Part, StrictDuration
from cronwell.model.references import SecretRef

MASK = "***"
"""Stands for what is not shown."""
OWN_PREFIX = ".alerts/"

ConditionKind = Literal[
    "consecutive_failures",
    "failure_rate",
    "dead_letters",
    "late",
    "missed",
    "running",
    "queue_depth",
    "workers",
]
Severity = Literal["critical", "warning", "info"]
ChannelKind = Literal["webhook", "email", "slack"]
Day = Literal["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]

DAYS: tuple[Day, ...] = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
OF_TENANT: frozenset[str] = frozenset({"queue_depth", "workers"})
"""Conditions of the tenant as a whole, not of its jobs."""
_FACE = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


def is_own(name: str) -> bool:
    """Tell whether a job is Cronwell's own: no user can give a job such a name, list it or change it."""
    return name.startswith(".")


def own_job(channel: str) -> str:
    """The name of the job that sends what a channel has to say."""
    return OWN_PREFIX + channel


def _between(least: timedelta, most: timedelta) -> AfterValidator:
    def check(length: timedelta) -> timedelta:
        if not least <= length <= most:
            raise ValueError(f"lies between {durations.write(least)} and {durations.write(most)}")
        return length

    return AfterValidator(check)


Window = Annotated[StrictDuration, _between(timedelta(seconds=1), timedelta(days=30))]


class FailureRate(Part):
    """Too many of the executions of a job that ended in a stretch of time have failed."""

    above: Annotated[float, Field(ge=0, lt=1, strict=True)]
    """The share of those that failed: 0.5 is a half."""
    over: Window = timedelta(hours=1)
    """Executions whose slot lies no further back, the newest 1,000 of them."""
    at_least: Annotated[int, Field(ge=1, le=1000, strict=True)] = 10
    """Fewer executions tell nothing."""


class QueueDepth(Part):
    """Too much is due and waits."""

    above: Annotated[int, Field(ge=0, le=100_000, strict=True)]
    """So many executions of the tenant may wait."""
    pool: Annotated[str, StringConstraints(pattern=POOL_PATTERN)] | None = None
    """In one pool; by default, in all of them together."""


class Workers(Part):
    """Too few workers live."""

    at_least: Annotated[int, Field(ge=1, le=10_000, strict=True)]
    """So many should."""
    pool: Annotated[str, StringConstraints(pattern=POOL_PATTERN)] = "default"
    """The pool that they serve."""


class Condition(Part):
    """What is wrong: exactly one of the kinds."""

    consecutive_failures: Annotated[int, Field(ge=1, le=100, strict=True)] | None = None
    """The newest so many executions of a job that ended have all failed, with no attempts left."""
    failure_rate: FailureRate | None = None
    """A share of a job's executions failed."""
    dead_letters: Annotated[int, Field(ge=0, le=9_999, strict=True)] | None = None
    """There are more dead letters than this, of all that the rule watches together."""
    late: Window | None = None
    """An execution of a job waits, or its newest one started, so long after its time."""
    missed: Window | None = None
    """A job had no success for so long; counted at the earliest from when it was last changed or resumed."""
    running: Window | None = None
    """An attempt of a job runs for longer."""
    queue_depth: QueueDepth | None = None
    """Too much is due and waits."""
    workers: Workers | None = None
    """Too few workers live."""

    @model_validator(mode="after")
    def _check_one(self) -> Condition:
        given = [kind for kind in type(self).model_fields if getattr(self, kind) is not None]
        if len(given) != 1:
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"give exactly one of {known} (given: {', '.join(given) or 'none'})")
        return self

    @property
    def kind(self) -> ConditionKind:
        [kind] = [kind for kind in type(self).model_fields if getattr(self, kind) is not None]
        return kind  # type: ignore[return-value]  # the fields are the kinds


def _read_watched(value: object) -> object:
    return {"tenant": True} if value == "tenant" else value


class Watched(Part):
    """What a rule watches: exactly one of these."""

    job: Annotated[str, StringConstraints(pattern=NAME_PATTERN)] | None = None
    """The job that has this name."""
    tags: (
        Annotated[
            dict[str, Annotated[str, StringConstraints(max_length=256)]], Field(min_length=1, max_length=8)
        ]
        | None
    ) = None
    """Every job that has all of these tags."""
    tenant: Literal[True] | None = None
    """Every job of the tenant."""

    @model_validator(mode="after")
    def _check_one(self) -> Watched:
        given = [name for name in ("job", "tags", "tenant") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of job, tags, tenant (given: {', '.join(given) or 'none'})")
        return self

    def matches(self, name: str, tags: dict[str, Any]) -> bool:
        """Tell whether a job is watched."""
        if self.job is not None:
            return name == self.job
        return self.tags is None or self.tags.items() <= tags.items()


def _check_face(text: str) -> str:
    if _FACE.fullmatch(text) is None:
        raise ValueError('write a time of day such as "22:00"')
    return text


Face = Annotated[str, AfterValidator(_check_face)]


class Quiet(Part):
    """Hours in which nobody is told anything; they may go on past midnight."""

    from_: Annotated[Face, Field(alias="from")]
    """When they begin, by the zone's clock: 22:00."""
    to: Face
    """When they end. The same time as `from` is a whole day."""
    days: Annotated[list[Day], Field(min_length=1, max_length=7)] | None = None
    """The days on which they begin; by default, all."""
    timezone: Annotated[str, StringConstraints(min_length=1, max_length=64)] = "UTC"
    """The IANA zone of the clock."""

    @field_validator("timezone")
    @classmethod
    def _check_zone(cls, name: str) -> str:
        try:
            zones.find(name)
        except errors.Invalid as error:
            raise ValueError(error.problems[0].message) from None
        return name

    def contains(self, now: datetime) -> bool:
        """Tell whether a moment lies in them."""
        wall = now.astimezone(zones.find(self.timezone))
        begins, ends, face = time.fromisoformat(self.from_), time.fromisoformat(self.to), wall.time()
        is_mine, was_mine = self._has(wall), self._has(wall - timedelta(days=1))
        if begins < ends:
            return is_mine and begins <= face < ends
        return (is_mine and face >= begins) or (was_mine and face < ends)

    def _has(self, wall: datetime) -> bool:
        return self.days is None or DAYS[wall.weekday()] in self.days


class Rule(Part):
    """A rule as its user defines it."""

    description: Annotated[str, StringConstraints(max_length=2000)] | None = None
    """For people."""
    on: Annotated[Watched, BeforeValidator(_read_watched, json_schema_input_type=Literal["tenant"] | Watched)]
    """What it watches: a job, the jobs with some tags, or the tenant."""
    when: Condition
    """The condition that is an incident."""
    channels: Annotated[
        list[Annotated[str, StringConstraints(pattern=NAME_PATTERN)]], Field(min_length=1, max_length=10)
    ]
    """The names of the channels that are told."""
    severity: Severity = "critical"
    """How bad it is, for those who are told."""
    quiet: Annotated[list[Quiet], Field(max_length=20)] = Field(default_factory=list)
    """Hours in which nobody is told. What is still so when they end is told then."""
    repeat: Annotated[StrictDuration, _between(timedelta(minutes=1), timedelta(days=30))] | None = None
    """Tell it again, so long after it was last told, while it goes on."""

    @model_validator(mode="after")
    def _check_whole(self) -> Rule:
        if self.when.kind in OF_TENANT and self.on.tenant is None:
            raise ValueError(f'{self.when.kind} is a matter of the whole tenant; write "on": "tenant"')
        if len(set(self.channels)) < len(self.channels):
            raise ValueError("each channel is named once")
        return self

    def is_quiet(self, now: datetime) -> bool:
        """Tell whether nobody is told at a moment."""
        return any(each.contains(now) for each in self.quiet)


class Webhook(HttpTarget):
    """Alerts as signed Standard Webhooks deliveries."""

    method: Literal["POST", "PUT"] = "POST"
    """How it is sent."""


class Slack(HttpTarget):
    """Messages to an incoming webhook of Slack, or of what understands the same: Mattermost, Rocket.Chat, Discord's /slack."""

    method: Literal["POST"] = "POST"
    """How it is sent."""
    body: Literal["payload"] = "payload"
    """The message alone."""


class Email(Part):
    """Mail, by the server that the installation's `smtp` settings name."""

    to: Annotated[list[Address], Field(min_length=1, max_length=20)]
    """Who gets it."""


class Channel(Part):
    """A way to tell people, or programs; exactly one of the kinds."""

    description: Annotated[str, StringConstraints(max_length=2000)] | None = None
    """For people."""
    webhook: Webhook | None = None
    """Call a URL."""
    email: Email | None = None
    """Send mail."""
    slack: Slack | None = None
    """Post a message."""

    @model_validator(mode="after")
    def _check_one(self) -> Channel:
        given = [kind for kind in ("webhook", "email", "slack") if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of webhook, email, slack (given: {', '.join(given) or 'none'})"
            )
        return self

    @property
    def kind(self) -> ChannelKind:
        if self.webhook is not None:
            return "webhook"
        return "email" if self.email is not None else "slack"

    def shown(self) -> dict[str, Any]:
        """The definition as it may be shown: without values of headers, and without what in an address lets people in."""
        told: dict[str, Any] = {} if self.description is None else {"description": self.description}
        if self.email is not None:
            return {**told, "email": {"to": self.email.to}}
        target = self.webhook or self.slack
        assert target is not None
        parts = urlsplit(target.url)
        path = parts.path if self.webhook is not None else f"/{MASK}"
        masked = urlunsplit((parts.scheme, parts.netloc, path, MASK if parts.query else "", ""))
        shown: dict[str, Any] = {"url": masked}
        if target.method != "POST":
            shown["method"] = target.method
        if target.headers:
            shown["headers"] = dict.fromkeys(target.headers, MASK)
        return {**told, self.kind: shown}

    def named(self) -> dict[str, str]:
        """The secrets that its headers name, by place."""
        target = self.webhook or self.slack
        headers = {} if target is None else target.headers
        return {
            f"{self.kind}.headers.{name}": value.secret
            for name, value in headers.items()
            if isinstance(value, SecretRef)
        }

    def target(self) -> dict[str, Any]:
        """The target of the job that sends what the channel has to say."""
        if self.email is not None:
            return {"email": {"to": self.email.to}}
        target = self.webhook or self.slack
        assert target is not None
        # What is as a job's target is by default is left out: workers of the release before do not know all of it.
        usual = HttpTarget(url=target.url).model_dump(mode="json")
        given = target.model_dump(mode="json")
        return {
            "http": {name: value for name, value in given.items() if name == "url" or value != usual[name]}
        }
