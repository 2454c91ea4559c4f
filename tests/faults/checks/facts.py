"""The history, sorted for looking things up: what each job was when, and all that is known of each execution."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from tests.faults import oracle
from tests.faults.history import (
    Body,
    CursorChange,
    ExecutionChange,
    History,
    JobChange,
    Key,
    Lost,
    Message,
    Request,
    Row,
    SkipChange,
    Try,
    execution_id,
    key_of,
    process_role,
)

TICK = timedelta(microseconds=1)
VERBS = {"create", "pause", "resume", "edit", "delete"}


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, with what each witness says about it."""

    promise: str
    subject: str
    said: str
    client: tuple[str, ...] = ()
    receiver: tuple[str, ...] = ()
    database: tuple[str, ...] = ()
    due: float | None = None
    """The slot that it is about, where it is about one."""

    def __str__(self) -> str:
        witnesses = (("client", self.client), ("receiver", self.receiver), ("database", self.database))
        lines = [f"{self.promise} {self.subject}: {self.said}"]
        for name, told in witnesses:
            lines += [f"    {name}: {line}" for line in told or ("nothing",)]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which a job was the same: from some moment in [begins_from, begins_by] to one in [ends_from, ends_by]."""

    state: str
    spec: Mapping[str, Any]
    begins_from: float
    begins_by: float
    ends_from: float
    ends_by: float
    cause: JobChange


class Facts:
    """A history and its indexes."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.terms = history.terms
        self.jobs: dict[str, list[JobChange]] = _grouped((c.job, c) for c in history.jobs)
        self.names: dict[str, str] = {changes[0].name: job for job, changes in self.jobs.items()}
        self.requests: dict[str, list[Request]] = _grouped((r.job, r) for r in history.requests)
        self.changes: dict[Key, list[ExecutionChange]] = _grouped((c.key, c) for c in history.executions)
        self.cursors: dict[str, list[CursorChange]] = _grouped((c.job, c) for c in history.cursors)
        self.skips: dict[str, list[SkipChange]] = _grouped((c.job, c) for c in history.skips)
        self.bodies: dict[str, list[Body]] = _grouped((b.execution, b) for b in history.bodies)
        self.messages: dict[str, list[Message]] = _grouped((m.execution, m) for m in history.messages)
        self.rows: dict[Key, Row] = {row.key: row for row in history.end.executions}
        self.lost: dict[Key, list[Lost]] = _grouped((each.key, each) for each in history.end.attempts)
        for group in (self.jobs, self.changes, self.cursors):
            for listed in group.values():
                listed.sort(key=lambda change: change.seq)
        for bodies in self.bodies.values():
            bodies.sort(key=lambda body: body.arrived)

    def name(self, job: str) -> str:
        return self.jobs[job][0].name if job in self.jobs else job

    def asked_by(self, change: JobChange) -> list[tuple[Request, Try]]:
        """The tries that may have made a change of a job: sent before it, and not known to have ended before it."""
        error = self.terms.answer_slack
        found = []
        for request in self.requests.get(change.name, []):
            if request.verb not in VERBS:
                continue
            for each in request.tries:
                latest = each.ended + error if each.outcome != "unknown" else each.invoked + self.terms.stray
                if each.outcome != "failed" and each.invoked - error <= change.at <= latest:
                    found.append((request, each))
        return found

    def span(self, change: JobChange) -> tuple[float, float]:
        """Between which moments a change took effect: it goes by a time that was read before it was written."""
        tries = self.asked_by(change)
        if tries:
            return min(each.invoked for _, each in tries), max(change.at, change.committed)
        if process_role(change.process) == "worker":
            # An answer of 410 paused it: not before it came.
            gone = [
                b.arrived for b in self.bodies_of(change.job) if b.status == 410 and b.arrived <= change.at
            ]
            return (min(gone) if gone else change.at), max(change.at, change.committed)
        return change.at - self.terms.answer_slack, max(change.at, change.committed)

    def bodies_of(self, job: str) -> list[Body]:
        return self.bodies_by_job.get(self.name(job), [])

    @cached_property
    def bodies_by_job(self) -> dict[str, list[Body]]:
        return _grouped((b.job, b) for b in self.history.bodies)

    @cached_property
    def keys_by_job(self) -> dict[str, list[Key]]:
        return _grouped((key[0], key) for key in self.changes)

    @cached_property
    def stretches(self) -> dict[str, list[Stretch]]:
        found = {}
        for job, changes in self.jobs.items():
            spans = [self.span(change) for change in changes]
            ends = [*spans[1:], (float("inf"), float("inf"))]
            found[job] = [
                Stretch(change.state, change.spec, *span, *end, cause=change)
                for change, span, end in zip(changes, spans, ends, strict=True)
            ]
        return found

    def spec_at(self, job: str, revision: int | None) -> Mapping[str, Any] | None:
        """A job's definition in a revision."""
        return next((c.spec for c in self.jobs.get(job, []) if c.revision == revision), None)

    @cached_property
    def required(self) -> dict[Key, Stretch]:
        """Each slot that must have its verdict: due while its job was surely active, and judged by this run."""
        found: dict[Key, Stretch] = {}
        for job, stretches in self.stretches.items():
            for stretch in stretches:
                until = min(stretch.ends_from, self.history.until)
                if stretch.state != "active" or until <= stretch.begins_by:
                    continue
                begin, end = oracle.at(stretch.begins_by), oracle.at(until)
                for slot in oracle.slots(stretch.spec, begin, end):
                    if slot < end:
                        found[job, "scheduled", slot] = stretch
        return found

    def may_have(self, job: str, slot: datetime) -> bool:
        """Whether a slot can be one of the job's: of a definition that held, or may have held, when it was due."""
        moment = slot.timestamp()
        for stretch in self.stretches.get(job, []):
            if stretch.state not in ("active", "finished"):
                continue
            if (wait := oracle.delay(stretch.spec)) is not None:
                created = self.stretches[job][0]
                earliest, latest = (
                    created.begins_from + wait.total_seconds(),
                    created.begins_by + wait.total_seconds(),
                )
                if earliest - 1 <= moment <= latest + 1:
                    return True
            # Staged ahead and taken back when the job changed; or held by a worker then, and started (2 s at most).
            elif (
                stretch.begins_from - self.terms.clock_error <= moment <= stretch.ends_by + 2.5
                and oracle.slots(stretch.spec, slot - TICK, slot)
            ):
                return True
        return False

    # --- telling

    def tell(self, promise: str, key: Key, said: str) -> Violation:
        """A violation of one execution, with everything that is known of it."""
        job, _, _ = key
        row = self.rows.get(key)
        database = [_told(change) for change in self.changes.get(key, [])]
        database += [f"at the end: {row}"] if row else ["at the end: no such row"]
        return Violation(
            promise,
            f"{self.name(job)} {execution_id(key)}",
            said,
            client=tuple(map(_told_request, self.requests.get(self.name(job), [])[-6:])),
            receiver=(
                *map(_told_body, self.bodies.get(execution_id(key), [])),
                *map(_told_message, self.messages.get(execution_id(key), [])),
            ),
            database=tuple(database[-12:]),
            due=key[2].timestamp(),
        )

    def tell_job(self, promise: str, job: str, said: str, *, database: Iterable[object] = ()) -> Violation:
        listed = tuple(map(str, database)) or tuple(
            f"{c.at:.3f} {c.state} revision {c.revision} by {c.process}" for c in self.jobs.get(job, [])[-6:]
        )
        return Violation(
            promise,
            self.name(job),
            said,
            client=tuple(map(_told_request, self.requests.get(self.name(job), [])[-6:])),
            receiver=tuple(map(_told_body, self.bodies_of(job)[-3:])),
            database=listed,
        )

    def started(self, key: Key, body: Body) -> float:
        """When an attempt began: as its worker has told the database, or else when it arrived."""
        row = self.rows.get(key)
        told = row.started_at if row is not None and row.fence == body.fence else None
        told = told or next((e.started_at for e in self.lost.get(key, []) if e.fence == body.fence), None)
        return body.arrived if told is None else min(told, body.arrived)

    def key(self, execution: str) -> Key | None:
        return key_of(execution)


def _grouped(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    found: defaultdict[Any, list[Any]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def _told(change: ExecutionChange) -> str:
    return (
        f"{change.at:.3f} {change.op} {change.old_state or '-'}/{change.old_fence} -> {change.state or '-'}/{change.fence}"
        f" {change.reason or ''} by {change.process} in {change.xid}"
    )


def _told_body(body: Body) -> str:
    ended = "never ended" if body.ended is None else f"ended {body.ended:.3f} with {body.status}"
    return f"{body.arrived:.3f} attempt {body.attempt} fence {body.fence} {body.path}, {ended}"


def _told_message(message: Message) -> str:
    return f"{message.at:.3f} message of attempt {message.attempt} fence {message.fence}"


def _told_request(request: Request) -> str:
    return f"{request.invoked:.3f}-{request.ended:.3f} {request.verb} {request.outcome} ({len(request.tries)} tries)"


def overlaps(one: Body, other: Body) -> bool:
    """Whether the second body began while the first was under way."""
    return one.arrived <= other.arrived and (one.ended is None or other.arrived < one.ended)


def last_before(changes: Sequence[ExecutionChange], moment: float) -> ExecutionChange | None:
    return next((change for change in reversed(changes) if change.at <= moment), None)
