"""Histories made by hand: one job that fires each second, told by three witnesses who agree; tests then bend one of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.faults import oracle
from tests.faults.history import (
    Body,
    CursorChange,
    End,
    ExecutionChange,
    History,
    JobChange,
    Key,
    Lost,
    Message,
    Request,
    Row,
    ShardChange,
    SkipChange,
    Terms,
    Try,
    Window,
    WorkerChange,
    execution_id,
)

START = 1_800_000_000.0
JOB = "a" * 32
SLOTS = range(1, 10)
SPEC = {"name": "tick", "schedule": "* * * * * *", "overlap": "allow", "target": "http://127.0.0.1/ok"}
SHARD = 5


def slot(second: float) -> datetime:
    return oracle.at(START + second)


def key(second: float, kind: str = "scheduled") -> Key:
    return JOB, kind, slot(second)


@dataclass
class Made:
    """The records, still to be changed."""

    requests: list[Request] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    jobs: list[JobChange] = field(default_factory=list)
    cursors: list[CursorChange] = field(default_factory=list)
    executions: list[ExecutionChange] = field(default_factory=list)
    skips: list[SkipChange] = field(default_factory=list)
    shards: list[ShardChange] = field(default_factory=list)
    workers: list[WorkerChange] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    end: End = field(default_factory=lambda: End(at=START + 12))
    spec: dict[str, Any] = field(default_factory=lambda: dict(SPEC))
    seq: int = 0

    def stamp(self, at: float, process: str, xid: int | None = None) -> tuple[int, int, float, float, str]:
        self.seq += 1
        return self.seq, xid or 1000 + self.seq, START + at, START + at + 0.001, process

    def history(self) -> History:
        return History(
            terms=Terms(),
            until=START + 9.5,
            end=dataclasses.replace(self.end, executions=tuple(self.rows), attempts=tuple(self.lost)),
            requests=tuple(self.requests),
            bodies=tuple(self.bodies),
            messages=tuple(self.messages),
            jobs=tuple(self.jobs),
            cursors=tuple(self.cursors),
            executions=tuple(self.executions),
            skips=tuple(self.skips),
            shards=tuple(self.shards),
            workers=tuple(self.workers),
            windows=tuple(self.windows),
        )

    # --- telling a story

    def ask(
        self, verb: str, at: float, *, job: str = "tick", outcome: Any = "ok", answer: Any = None, **body: Any
    ) -> None:
        told = Try(START + at - 0.02, START + at + 0.02, outcome, 200, answer or {})
        self.requests.append(Request(verb, job, (told,), body, key=f"k{len(self.requests)}"))

    def change(self, state: str, at: float, revision: int = 1, process: str = "api-1#1") -> None:
        self.jobs.append(JobChange(*self.stamp(at, process), JOB, "tick", state, revision, dict(self.spec)))

    def write(
        self,
        of: Key,
        op: str,
        states: tuple[str | None, str | None],
        fences: tuple[int, int],
        stamp: tuple[int, int, float, float, str],
        *,
        worker: str | None = None,
        reason: str | None = None,
    ) -> None:
        change = ExecutionChange(*stamp, of, op, *states, *fences, fences[1], worker, reason)
        self.executions.append(change)

    def stage(self, second: float, stamp: Any) -> None:
        self.write(key(second), "insert", (None, "pending"), (0, 0), stamp)

    def claim(
        self, of: Key, at: float, fence: int = 1, worker: str = "w1", process: str = "worker-1#1"
    ) -> None:
        before = "pending" if fence == 1 else "retrying"
        self.write(
            of, "update", (before, "running"), (fence - 1, fence), self.stamp(at, process), worker=worker
        )

    def finish(
        self,
        of: Key,
        state: str,
        at: float,
        fence: int = 1,
        process: str = "worker-1#1",
        reason: str | None = None,
    ) -> None:
        self.write(
            of,
            "update",
            ("running", state),
            (fence, fence),
            self.stamp(at, process),
            worker="w1",
            reason=reason,
        )
        self.rows = [row for row in self.rows if row.key != of]
        self.rows.append(Row(of, state, fence, fence, reason, "w1", started_at=of[2].timestamp() + 0.01))

    def deliver(
        self, of: Key, at: float, fence: int = 1, status: int | None = 200, ended: float | None = 0.01
    ) -> None:
        until = None if ended is None else START + at + ended
        self.bodies.append(
            Body(execution_id(of), "tick", of[2], fence, fence, START + at, until, status if ended else None)
        )

    def publish(self, of: Key, at: float, fence: int = 1) -> None:
        slot = of[2].isoformat().replace("+00:00", "Z")
        self.messages.append(Message(execution_id(of), "tick", slot, fence, fence, START + at))

    def bend(self, listed: str, which: Callable[[Any], bool], **fields: Any) -> None:
        """Change the fields of the first record of a list that is asked for."""
        records = getattr(self, listed)
        place = next(n for n, record in enumerate(records) if which(record))
        records[place] = dataclasses.replace(records[place], **fields)

    def drop(self, listed: str, which: Callable[[Any], bool]) -> None:
        setattr(self, listed, [record for record in getattr(self, listed) if not which(record)])


def published() -> Made:
    """The clean run of a job that publishes: the broker has a message of each slot, and no receiver has any."""
    made = clean({"target": {"publish": {"redis": {"stream": "rig"}}}})
    made.bodies.clear()
    for second in SLOTS:
        made.publish(key(second), second + 0.01)
    return made


def clean(spec: dict[str, Any] | None = None, *, upto: int = 9) -> Made:
    """A run in which nothing goes wrong, with the slots 1 to 9 of its job."""
    made = Made()
    made.spec |= spec or {}
    made.workers.append(WorkerChange(*made.stamp(-5, "worker-1#1"), "w1", "active", START + 100))
    made.shards.append(ShardChange(*made.stamp(-10, "scheduler-1#1"), SHARD, 0, 1, "m1"))
    made.ask("create", 0.1, answer={"id": JOB}, **made.spec)
    made.change("active", 0.1)
    stamp = made.stamp(0.1, "api-1#1", xid=1)
    for second in range(1, 4):
        made.stage(second, (made.stamp(0.1, "")[0], *stamp[1:]))
    made.cursors.append(CursorChange(*stamp, JOB, SHARD, "insert", None, slot(4), None, 1))
    for turn, first in enumerate((4, 7), start=2):
        stamp = made.stamp(turn - 1.0, "scheduler-1#1", xid=turn)
        for second in range(first, first + 3):
            made.stage(second, (made.stamp(0, "")[0], *stamp[1:]))
        made.cursors.append(CursorChange(*stamp, JOB, SHARD, "update", slot(first), slot(first + 3), 1, 1))
    for second in SLOTS:
        if second <= upto:
            made.claim(key(second), second - 0.4)
            made.deliver(key(second), second + 0.01)
            made.finish(key(second), "succeeded", second + 0.03)
    made.end = dataclasses.replace(
        made.end,
        workers={"w1": START + 100},
        marked=dict.fromkeys(range(64), START + 11.5),
        cursors={JOB: slot(10)},
    )
    return made
