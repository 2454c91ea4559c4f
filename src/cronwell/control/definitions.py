"""Judging a job's definition: form, schedule, limits, and what this installation allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from cronwell import errors
from cronwell.addresses import BROKER_SCHEMES
from cronwell.config import Settings, env_name
from cronwell.control.views import Remarks
from cronwell.model.calendars import Calendar
from cronwell.model.describe import ClockChange, clock_changes
from cronwell.model.describe import warnings as schedule_warnings
from cronwell.model.job import JobSpec
from cronwell.model.naming import named_by
from cronwell.model.planning import Plan, plan_of
from cronwell.model.publishing import PublishTarget
from cronwell.model.references import MOST_NAMED, is_name
from cronwell.model.schedule import Schedule, parse
from cronwell.model.validation import validate
from cronwell.store.port import Worker

_SCHEDULE_FIELDS = ("schedule", "timezone", "window")


@dataclass(frozen=True, slots=True)
class Kept:
    """What a job was before an edit. A job that is finished has no schedule left."""

    raw: Mapping[str, Any]
    schedule: Schedule | None


@dataclass(slots=True)  # not frozen, for the sake of batches; nobody changes one
class Definition:
    """A definition that has been found good: as it was given, checked, and compiled."""

    raw: dict[str, Any]
    spec: JobSpec
    plan: Plan | None
    judged_at: datetime
    """A schedule is held against this moment: what it has after it is promised, however long it takes to write it down."""
    named: Mapping[str, str] = field(default_factory=dict)
    """The secrets that it names, by place."""
    _text: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The definition as it is kept; written once, however often it is asked for."""
        if self._text is None:
            self._text = orjson.dumps(self.raw).decode()
        return self._text

    @property
    def tags(self) -> str:
        return orjson.dumps(self.spec.tags).decode()


def judge(
    raw: Mapping[str, Any],
    *,
    now: datetime,
    settings: Settings,
    kept: Kept | None = None,
    calendars: Mapping[str, Calendar] | None = None,
) -> Definition:
    """Check a definition; raises Invalid or TooLarge and says what to write instead.

    With `kept`, what the job was before: a schedule whose text has not changed keeps its meaning, so that "in 5m" is not
    counted anew, "every 1h" does not shift and an H stays in its place when something else is edited. `calendars` are
    those that the schedule may name.
    """
    spec = validate(JobSpec, raw)
    if spec.target.shell is not None and not settings.shell.enabled:
        raise errors.Invalid.field(
            "target.shell",
            "shell commands are not enabled on this installation",
            accepted="http, handler or publish; or set CRONWELL_SHELL_ENABLED=true (`cronwell up --shell`)",
        )
    if spec.target.publish is not None:
        _check_broker(spec.target.publish, settings)
    if spec.target.email is not None:
        raise errors.Invalid.field(
            "target.email",
            "mail is sent by the channels of alerts alone (PUT /v1/alerts/channels/NAME)",
            accepted="http, shell, handler or publish",
        )
    check_payload(spec.payload, settings)
    plan = None
    if kept is not None and all(kept.raw.get(name) == raw.get(name) for name in _SCHEDULE_FIELDS):
        plan = None if kept.schedule is None else plan_of(spec, kept.schedule)
    elif spec.schedule is not None:
        schedule = parse(
            spec.schedule,
            timezone=spec.timezone,
            window=spec.window,
            now=now,
            seed=spec.name,
            calendars=calendars,
        )
        plan = plan_of(spec, schedule)
    elif spec.timezone is not None or spec.window is not None:
        field = "timezone" if spec.timezone is not None else "window"
        raise errors.Invalid.field(
            field, "means nothing without a schedule", accepted="a `schedule` beside it"
        )
    return Definition(dict(raw), spec, plan, now, _named(spec))


def _named(spec: JobSpec) -> dict[str, str]:
    """The secrets that a definition names, by place."""
    named = named_by(spec)
    for place, name in named.items():
        if not is_name(name):
            # Not told: who takes this for the place of a value may have written one.
            raise errors.Invalid.field(
                place,
                'an object that is exactly {"secret": …} stands for a secret, and this is not a name of one',
                accepted="a name of letters, digits and ._/-; or an object with another field beside it",
            )
    if len(set(named.values())) > MOST_NAMED:
        raise errors.Invalid.field(
            next(reversed(named)),
            f"this is secret number {MOST_NAMED + 1}",
            accepted=f"{MOST_NAMED} secrets in a job",
        )
    return named


def _check_broker(target: PublishTarget, settings: Settings) -> None:
    """Refuse a broker that the installation does not have, or not of this kind."""
    fitting = [
        name
        for name, address in settings.brokers.items()
        if address.partition("://")[0] in BROKER_SCHEMES[target.kind]
    ]
    if target.broker not in fitting:
        known = f"{', '.join(fitting)}; or " if fitting else ""
        raise errors.Invalid.field(
            "target.publish.broker",
            f"this installation has no {target.kind} broker with the name {target.broker!r}",
            accepted=f"{known}set {env_name(f'brokers.{target.broker}')} to its address, for the API and the workers",
        )


def payload_size(payload: object) -> int:
    """How many bytes a payload has as JSON."""
    try:
        return len(orjson.dumps(payload))
    except orjson.JSONEncodeError as error:
        raise errors.Invalid.field("payload", f"is not JSON: {error}") from None


def check_payload(payload: object, settings: Settings) -> None:
    """Refuse a payload that is larger than the limit."""
    size = payload_size(payload)
    if size > settings.limits.payload:
        raise errors.TooLarge(
            f"the payload has {size} bytes and the limit is {settings.limits.payload}; "
            "keep large data elsewhere and send a reference to it"
        )


def remark(definition: Definition, workers: Iterable[Worker], *, now: datetime) -> Remarks:
    """What is allowed but may not be meant, and what the clock's next changes do to the schedule."""
    spec = definition.spec
    found: list[str] = []
    changes: list[ClockChange] = []
    if definition.plan is not None:
        found += schedule_warnings(definition.plan.schedule, now)
        changes = clock_changes(definition.plan.schedule, now)
    living = [worker for worker in workers if worker.state == "active"]
    serving = [worker for worker in living if spec.pool in worker.pools]
    if not serving:
        found.append(f"no worker serves the pool {spec.pool!r} at present; executions wait until one does")
    handler = spec.target.handler
    if handler is not None and not any(handler.name in worker.handlers for worker in serving):
        found.append(
            f"no worker of the pool {spec.pool!r} has registered the handler {handler.name!r} yet; "
            "start one with `cronwell worker --import MODULE`"
        )
    return Remarks(found, changes)
