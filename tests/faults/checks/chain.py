"""Cursors and shards: one chain without a gap, moved together with what it covers, in the epoch of its shard."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from tests.faults import oracle
from tests.faults.checks.facts import TICK, Facts, Violation
from tests.faults.history import CursorChange, Key, ShardChange, process_role

FAR = timedelta(hours=1)


def is_staging(change: CursorChange) -> bool:
    """Whether a scheduler moved the cursor, as opposed to a user who changed the job."""
    return (
        change.op == "update"
        and change.old_slot is not None
        and change.old_revision == change.revision
        and not change.is_held
        and process_role(change.process) == "scheduler"
    )


def one_chain(facts: Facts) -> Iterator[Violation]:
    """S5: cursors go forward only, and each move writes, in its own transaction, what it passes."""
    written: defaultdict[tuple[str, int], set[datetime]] = defaultdict(set)
    for key, staged in facts.changes.items():
        for each in staged:
            if each.op == "insert" and key[1] == "scheduled":
                written[key[0], each.xid].add(key[2])
    for job, changes in facts.cursors.items():
        for before, change in itertools.pairwise(changes):
            if change.op == "update" and change.old_slot != before.new_slot:
                yield _tell(facts, change, f"moved from {change.old_slot}, but stood at {before.new_slot}")
        for change in changes:
            if is_staging(change):
                yield from _moved_rightly(facts, change, written[job, change.xid])
            elif change.op in ("insert", "update") and change.new_slot is not None:
                yield from _begun_rightly(facts, change, written[job, change.xid])


def _moved_rightly(facts: Facts, change: CursorChange, written: set[datetime]) -> Iterator[Violation]:
    old, new = change.old_slot, change.new_slot
    assert old is not None
    if old == new and not written:
        return
    spec = facts.spec_at(change.job, change.revision)
    if spec is None:
        yield _tell(facts, change, f"moved in revision {change.revision}, which the job never had")
        return
    if new is not None and new <= old:
        yield _tell(facts, change, f"went back, from {old} to {new}")
        return
    if oracle.delay(spec) is not None:
        return
    covered = oracle.slots(spec, old - TICK, (old + FAR if new is None else new) - TICK)
    if new is not None and oracle.slots(spec, new - TICK, new) != [new]:
        yield _tell(facts, change, f"stands at {new}, which is no slot")
    for slot in covered:
        if slot not in written and not _has_verdict(facts, change, slot):
            yield _tell(facts, change, f"passed {slot} without an execution or a skip in its transaction")
    if alien := sorted(written - set(covered)):
        yield _tell(facts, change, f"wrote slots that it did not pass: {', '.join(map(str, alien))}")


def _begun_rightly(facts: Facts, change: CursorChange, written: set[datetime]) -> Iterator[Violation]:
    """A user's change begins at the present: all slots from then to the cursor are staged with it."""
    spec = facts.spec_at(change.job, change.revision)
    if spec is None or change.new_slot is None or oracle.delay(spec) is not None:
        return
    present = oracle.at(max(change.at, change.committed))
    for slot in oracle.slots(spec, present, change.new_slot - TICK):
        if slot not in written and not _has_verdict(facts, change, slot):
            yield _tell(facts, change, f"begins behind {slot}, which has no execution")


def _has_verdict(facts: Facts, change: CursorChange, slot: datetime) -> bool:
    key: Key = (change.job, "scheduled", slot)
    before = [c for c in facts.changes.get(key, []) if c.seq < change.seq]
    if before and before[-1].op != "delete":
        return True
    return any(
        s.xid == change.xid and s.from_slot <= slot <= s.to_slot for s in facts.skips.get(change.job, [])
    )


def epochs_fence(facts: Facts) -> Iterator[Violation]:
    """S6: epochs grow in the order of commits, and nobody stages in a shard after another began its next epoch."""
    entered: defaultdict[int, list[ShardChange]] = defaultdict(list)
    for change in sorted(facts.history.shards, key=lambda each: each.committed):
        before = entered[change.shard]
        if before and change.epoch <= before[-1].epoch:
            yield Violation(
                "S6",
                f"shard {change.shard}",
                f"its epoch went from {before[-1].epoch} to {change.epoch}",
                database=(str(before[-1]), str(change)),
            )
        before.append(change)
    times = {shard: [change.committed for change in changes] for shard, changes in entered.items()}
    for changes in facts.cursors.values():
        for move in filter(is_staging, changes):
            place = bisect_left(times.get(move.shard, []), move.committed)
            owner = entered[move.shard][place - 1] if place else None
            if owner is not None and owner.process != move.process:
                yield _tell(
                    facts,
                    move,
                    f"{move.process} staged in shard {move.shard} after {owner.process} had begun epoch {owner.epoch}",
                )


def _tell(facts: Facts, change: CursorChange, said: str) -> Violation:
    near = [c for c in facts.cursors.get(change.job, []) if abs(c.seq - change.seq) < 1000][-6:]
    promise = "S6" if "epoch" in said else "S5"
    return facts.tell_job(promise, change.job, said, database=[change, *near])
