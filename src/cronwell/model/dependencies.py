"""Jobs that follow others: what users write of it, and the rule by which a dependent runs, waits or is skipped.

A slot joins them. An execution of an upstream has a slot, whatever asked for it (its schedule, a trigger, a backfill, an
upstream of its own), and its dependents have one execution each with the same slot. Once an upstream has ended, and not
while it waits to be tried again, each dependent is judged by what became of all its upstreams at that slot:

- with `all` it waits until each of them has ended there, and runs if each ended as was asked; with `any` it runs as soon as
  one did, and is judged otherwise once all have ended;
- an upstream that has no such slot, and cannot get it any more, has ended there without having run: nobody waits for what
  does not come;
- `succeeded` and `failed` ask for that state, `finished` for either of them. What was skipped or cancelled satisfies
  none of them: nothing ran to an end there.

One that does not run is skipped, with the reason of the first upstream in the list that was not as asked, and that skip is
an end as any other to those that follow it in turn. Nothing here reads a clock or a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from cronwell.model.execution import TERMINAL, State
from cronwell.model.part import Part, StrictDuration

MOST_UPSTREAMS = 100
LONGEST_DELAY = timedelta(days=7)
LONGEST_TIMEOUT = timedelta(days=30)
ACCEPTED = 'a list such as [{"job": "extract", "on": "succeeded"}], or an object with `all` or `any`'

On = Literal["succeeded", "failed", "finished"]
Mode = Literal["all", "any"]
K = TypeVar("K")

RERUN = "upstream_rerun"
"""The reason of an execution that will be judged anew once the re-run of an upstream has ended: it counts as unfinished."""
TIMEOUT = "upstream_timeout"
_PREFIX = "upstream_"


def _read_upstream(value: object) -> object:
    return {"job": value} if isinstance(value, str) else value


class Upstream(Part):
    """A job that is followed."""

    job: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    """Its name or id. It is the same job after it was renamed."""
    on: On = "succeeded"
    """How its execution must have ended: `finished` is succeeded or failed."""


def _check_each_once(upstreams: list[Upstream]) -> list[Upstream]:
    if len({each.job for each in upstreams}) < len(upstreams):
        raise ValueError("list each job once")
    return upstreams


Upstreams = Annotated[
    list[Annotated[Upstream, BeforeValidator(_read_upstream, json_schema_input_type=str | Upstream)]],
    Field(min_length=1, max_length=MOST_UPSTREAMS),
    AfterValidator(_check_each_once),
]


class AfterRule(Part):
    """The jobs that are followed, and how."""

    all: Upstreams | None = None
    """Each of them must have ended as asked."""
    any: Upstreams | None = None
    """One of them must have ended as asked."""
    delay: StrictDuration = timedelta()
    """How long after that it becomes ready, up to 7d."""
    timeout: StrictDuration | None = None
    """How long after the first of them has ended, and after the slot, it waits for the others, from 1s to 30d; then it is
    skipped."""

    @model_validator(mode="after")
    def _check(self) -> AfterRule:
        if (self.all is None) == (self.any is None):
            raise ValueError("give either `all` or `any`, with the jobs that are followed")
        if self.delay > LONGEST_DELAY:
            raise ValueError("delay is at most 7d")
        if self.timeout is not None and not timedelta(seconds=1) <= self.timeout <= LONGEST_TIMEOUT:
            raise ValueError("timeout lies between 1s and 30d")
        return self


def _form(value: object) -> str | None:
    if isinstance(value, list):
        return "list[upstream]"
    return "union[rule]" if isinstance(value, (Mapping, AfterRule)) else None


# The tags are written as the markers that `model.validation` leaves out of the names of fields.
After = Annotated[
    Annotated[Upstreams, Tag("list[upstream]")] | Annotated[AfterRule, Tag("union[rule]")],
    Discriminator(_form, custom_error_type="after", custom_error_message=f"write {ACCEPTED}"),
]


@dataclass(frozen=True, slots=True)
class Rule:
    """When a dependent runs, as a list or an object says it."""

    mode: Mode
    upstreams: tuple[Upstream, ...]
    delay: timedelta = timedelta()
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What has become of an upstream at a slot. Without a state it has no such slot, and gets none."""

    state: State | None
    ended_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        return self.state is None or self.state in TERMINAL


UNSEEN = Seen(None)


@dataclass(frozen=True, slots=True)
class Judged:
    """What a dependent does about a slot: it runs from `ready_at` on, is skipped for a reason, or waits."""

    ready_at: datetime | None = None
    reason: str | None = None

    @property
    def runs(self) -> bool:
        return self.ready_at is not None

    @property
    def waits(self) -> bool:
        return self.ready_at is None and self.reason is None


WAITS = Judged()


def rule_of(after: Any) -> Rule:
    """The rule that a list or an object stands for."""
    if isinstance(after, AfterRule):
        mode: Mode = "all" if after.all is not None else "any"
        return Rule(mode, tuple(after.all or after.any or ()), after.delay, after.timeout)
    return Rule("all", tuple(after))


def judge(mode: Mode, delay: timedelta, upstreams: Sequence[tuple[On, Seen]]) -> Judged:
    """Judge a slot of a dependent by what has become of its upstreams there, in the order of its list."""
    satisfied = [seen.ended_at for on, seen in upstreams if satisfies(on, seen) and seen.ended_at is not None]
    if mode == "any" and satisfied:
        return Judged(ready_at=min(satisfied) + delay)
    if not all(seen.has_ended for _, seen in upstreams):
        return WAITS
    if len(satisfied) == len(upstreams):
        return Judged(ready_at=max(satisfied) + delay)
    refused = next(seen for on, seen in upstreams if not satisfies(on, seen))
    return Judged(reason=_PREFIX + ("missing" if refused.state is None else refused.state.value))


def satisfies(on: On, seen: Seen) -> bool:
    """Whether an upstream ended as was asked."""
    if on == "finished":
        return seen.state in (State.SUCCEEDED, State.FAILED)
    return seen.state is not None and seen.state.value == on


def is_revivable(state: State, reason: str | None) -> bool:
    """Whether an execution was skipped for its upstreams' sake, so that it runs where they end otherwise after all.

    Not where it gave up waiting: what ends after that is no news.
    """
    return state is State.SKIPPED and reason is not None and reason.startswith(_PREFIX) and reason != TIMEOUT


def find_cycle(upstreams: Mapping[K, Iterable[K]], starts: Iterable[K]) -> list[K] | None:
    """A job that follows itself, above `starts`: from it by way of those that follow it to itself; None without one."""
    finished: set[K] = set()
    for start in starts:
        path: dict[K, Iterator[K]] = {}
        at: K | None = start
        while True:
            if at is not None and at not in finished:
                if at in path:
                    way = list(path)
                    return [at, *reversed(way[way.index(at) + 1 :]), at]
                path[at] = iter(upstreams.get(at, ()))
            if not path:
                break
            last = next(reversed(path))
            at = next(path[last], None)
            if at is None:
                finished.add(last)
                del path[last]
    return None
