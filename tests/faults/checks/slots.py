"""Slots: none missed, none doubled, none early, none that nobody asked for; and the books balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.faults import oracle
from tests.faults.checks.facts import Facts, Stretch, Violation
from tests.faults.history import TERMINAL, ExecutionChange, Key, Row, SkipChange, execution_id


def at_most_once(facts: Facts) -> Iterator[Violation]:
    """S1: no (job, kind, slot) has two executions, at the end or at any time."""
    for key, count in Counter(row.key for row in facts.history.end.executions).items():
        if count > 1:
            yield facts.tell("S1", key, f"{count} executions of one slot at the end")
    for key, changes in facts.changes.items():
        alive = 0
        for change in changes:
            alive += {"insert": 1, "delete": -1}.get(change.op, 0)
            if alive > 1:
                yield facts.tell("S1", key, "staged while it was there already")
                break


def no_phantom(facts: Facts) -> Iterator[Violation]:
    """S2: each execution is a slot of the oracle's, or was asked for."""
    for key in {*facts.changes, *facts.rows}:
        job, kind, slot = key
        if kind == "scheduled":
            # Staged ahead under a definition that was replaced before the slot came is no execution.
            if key in facts.rows and not facts.may_have(job, slot):
                yield facts.tell("S2", key, "the oracle knows no such slot")
        elif kind == "manual" and not _was_asked_for(facts, key):
            yield facts.tell("S2", key, "nobody triggered it")
    for execution, bodies in facts.bodies.items():
        found = facts.key(execution)
        if found is None or found not in facts.changes:
            yield Violation(
                "S2",
                f"{bodies[0].job} {execution}",
                "delivered, but there never was such an execution",
                receiver=tuple(map(str, bodies)),
            )


def _was_asked_for(facts: Facts, key: Key) -> bool:
    job, _, slot = key
    moment, slack = slot.timestamp(), facts.terms.answer_slack
    for request in facts.requests.get(facts.name(job), []):
        if request.verb != "trigger":
            continue
        if request.answer.get("id") == execution_id(key):
            return True
        if (
            request.outcome == "unknown"
            and request.invoked - slack <= moment <= request.invoked + facts.terms.stray
        ):
            return True
    return False


def nothing_missed(facts: Facts) -> Iterator[Violation]:
    """S3: each required slot has a verdict, and one that its policy allows."""
    for key, stretch in facts.required.items():
        row = facts.rows.get(key)
        if row is None:
            skip = next((s for s in facts.skips.get(key[0], []) if s.from_slot <= key[2] <= s.to_slot), None)
            if skip is None or not _may_skip_range(facts, skip, stretch):
                yield facts.tell("S3", key, "missed: it has no execution and no skip")
        elif row.state not in TERMINAL:
            yield facts.tell("S3", key, f"stuck: still {row.state} at the end")
        elif row.state == "skipped" and (why := _unexplained_skip(facts, key, row, stretch)):
            yield facts.tell("S3", key, f"unexplained skip ({row.reason}): {why}")
        elif row.state in ("failed", "cancelled") and (why := _unexplained_end(facts, key, row, stretch)):
            yield facts.tell("S3", key, f"{row.state} without a reason that its policy allows: {why}")
    yield from _one_of_each_delay(facts)


def _one_of_each_delay(facts: Facts) -> Iterator[Violation]:
    """A job such as `in 5s` has one execution, although the oracle cannot say to the second when."""
    for job, stretches in facts.stretches.items():
        wait = oracle.delay(stretches[0].spec)
        if wait is None or stretches[0].begins_by + wait.total_seconds() >= facts.history.until:
            continue
        if min(
            (s.begins_from for s in stretches if s.state in ("paused", "deleted")), default=float("inf")
        ) < (stretches[0].begins_by + wait.total_seconds()):
            continue
        rows = [row for key, row in facts.rows.items() if key[:2] == (job, "scheduled")]
        if len(rows) != 1 or rows[0].state not in TERMINAL:
            yield facts.tell_job(
                "S3", job, f"its one slot became {[row.state for row in rows]}", database=rows
            )


def _may_skip_range(facts: Facts, skip: SkipChange, stretch: Stretch) -> bool:
    return (
        skip.reason == "catch_up"
        and stretch.spec.get("catch_up") != "all"
        and skip.at - skip.to_slot.timestamp() >= facts.terms.grace - facts.terms.answer_slack
    )


def _unexplained_skip(facts: Facts, key: Key, row: Row, stretch: Stretch) -> str:
    changes = facts.changes.get(key, [])
    done = next((c for c in changes if c.state == "skipped" and c.old_state != "skipped"), None)
    if done is None:
        return "the log has no such change"
    if any(body.fence for body in facts.bodies.get(execution_id(key), [])):
        return "it was delivered"
    match row.reason:
        case "overlap":
            limit = _limit(stretch)
            if limit is None:
                return f"its policy is {stretch.spec.get('overlap')}"
            return (
                ""
                if _unfinished_before(facts, key, done) >= limit
                else "too few earlier executions were unfinished then"
            )
        case "catch_up":
            if stretch.spec.get("catch_up") == "all":
                return "its policy is to run all that was missed"
            late = done.at - key[2].timestamp()
            return (
                ""
                if late >= facts.terms.grace - facts.terms.answer_slack
                else f"it was found only {late:.3f} s late"
            )
        case "paused" | "deleted" as state:
            # What is due and has not started does not start any more: it is skipped at once, or, where a worker held it and
            # was too busy to start it, when that worker asks anew.
            held = next((c.at for c in reversed(changes) if c.state == "running" != c.old_state), None)
            since = held if done.old_state == "running" and held is not None else done.at
            causes = [s for s in facts.stretches[key[0]] if s.state == state]
            near = any(s.begins_from - 1 <= done.at and since <= s.begins_by + 1 for s in causes)
            return "" if near else f"the job was not {state} then"
    return "no policy has this reason"


def _limit(stretch: Stretch) -> int | None:
    """How many earlier executions have to be unfinished for a slot to be skipped; None where none ever is."""
    most = int(stretch.spec.get("max_running") or 1)
    return {"skip": most, "queue_one": most + 1}.get(stretch.spec.get("overlap", "skip"))


def _unfinished_before(facts: Facts, key: Key, done: ExecutionChange) -> int:
    """How many executions of the job were unfinished when one was skipped: earlier ones, and later ones that had begun.

    The statement that skipped it saw what was committed when it began, which is a little before the change was noted.
    """
    job, _, slot = key
    count = 0
    for other in facts.keys_by_job.get(job, []):
        if other == key:
            continue
        unfinished = ("pending", "running", "retrying") if other[2] < slot else ("running", "retrying")
        seen = [c for c in facts.changes[other] if c.at <= done.at]
        recent = [c for c in seen if c.at >= done.at - 5.0]
        was_open = bool(seen) and seen[-1].state in unfinished
        ended_just_now = any(c.old_state in unfinished for c in recent)
        count += was_open or ended_just_now
    return count


def _unexplained_end(facts: Facts, key: Key, row: Row, stretch: Stretch) -> str:
    done = next((c for c in reversed(facts.changes.get(key, [])) if c.old_state != c.state), None)
    assert done is not None
    withheld = any(
        s.state in ("paused", "deleted") and s.begins_from - 1 <= done.at for s in facts.stretches[key[0]]
    )
    lost = facts.lost.get(key, [])
    most = int((stretch.spec.get("retry") or {}).get("max_attempts", 4))
    if withheld or (
        row.state == "failed" and (row.attempt >= most or any(e.error_kind == "gone" for e in lost))
    ):
        return ""
    return f"{row.attempt} of {most} attempts were made, and nobody paused or deleted the job"


def never_early(facts: Facts) -> Iterator[Violation]:
    """S4: no body arrives before its slot."""
    for execution, bodies in facts.bodies.items():
        key = facts.key(execution)
        if key is None:
            continue
        for body in bodies:
            early = key[2].timestamp() - body.arrived
            if early > facts.terms.clock_error:
                yield facts.tell("S4", key, f"started {early * 1000:.1f} ms before its slot")
                break
    for key, row in facts.rows.items():
        if row.started_at is not None and key[2].timestamp() - row.started_at > facts.terms.clock_error:
            yield facts.tell("S4", key, "the database says that it started before its slot")


def books_balance(facts: Facts) -> Iterator[Violation]:
    """S18: what the log of changes adds up to is what the database has at the end, row by row."""
    for key, changes in facts.changes.items():
        last, row = changes[-1], facts.rows.get(key)
        if last.op == "delete":
            if row is not None:
                yield facts.tell("S18", key, "there at the end, although the log says it was unstaged")
        elif row is None:
            yield facts.tell("S18", key, "gone at the end, and the log does not say how")
        elif (row.state, row.fence) != (last.state, last.fence):
            yield facts.tell(
                "S18", key, f"ends as {row.state}/{row.fence}, but the log says {last.state}/{last.fence}"
            )
    for key in facts.rows:
        if key not in facts.changes:
            yield facts.tell("S18", key, "there at the end, and the log does not say how")
