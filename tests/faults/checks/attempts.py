"""Attempts: one at a time, fenced, real, and recognisable by their id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.faults.checks.crowds import Crowd, crowds
from tests.faults.checks.facts import Facts, Violation, last_before, overlaps
from tests.faults.history import TERMINAL, Body, ExecutionChange, Key, execution_id, process_role

LEGAL = {
    "pending": {"running", "cancelled", "skipped"},
    "running": {"succeeded", "failed", "retrying", "cancelled", "pending", "skipped"},
    "retrying": {"running", "cancelled", "failed"},
    # Terminal states are final: the rig's client never redrives, retries or dismisses.
    "succeeded": set[str](),
    "failed": set[str](),
    "cancelled": set[str](),
    "skipped": set[str](),
}


def one_at_a_time(facts: Facts) -> Iterator[Violation]:
    """S7: each claim raises the fence by one, only of what is not running; each fence is delivered at most once."""
    for key, changes in facts.changes.items():
        for change in changes:
            if change.op != "update":
                continue
            is_claim = change.state == "running" and change.fence != change.old_fence
            if is_claim and change.fence != change.old_fence + 1:
                yield facts.tell(
                    "S7", key, f"a claim took the fence from {change.old_fence} to {change.fence}"
                )
            if is_claim and change.old_state not in ("pending", "retrying"):
                yield facts.tell("S7", key, f"claimed while {change.old_state}")
            if change.fence < change.old_fence:
                yield facts.tell("S7", key, f"the fence went back from {change.old_fence} to {change.fence}")
            if change.state == "running" and change.old_state != "running" and not is_claim:
                yield facts.tell("S7", key, "runs without a claim")
    for execution, bodies in facts.bodies.items():
        for fence, count in Counter(body.fence for body in bodies).items():
            found = facts.key(execution)
            if found is not None and count > 1:
                yield facts.tell("S7", found, f"fence {fence} was delivered {count} times")
            elif found in facts.changes and not any(c.fence == fence for c in facts.changes[found]):
                yield facts.tell("S7", found, f"fence {fence} was delivered, and nobody had claimed it")


def terminal_is_final(facts: Facts) -> Iterator[Violation]:
    """S8: only legal changes of state; and an attempt is ended by who claimed it, or by the rescue."""
    for key, changes in facts.changes.items():
        claimed: dict[int, str] = {}
        for change in changes:
            if change.op != "update":
                continue
            old, new = change.old_state, change.state
            assert old is not None
            assert new is not None
            if new != old and new not in LEGAL[old]:
                yield facts.tell("S8", key, f"went from {old} to {new}")
            if (old, new) == ("running", "skipped") and change.reason not in ("paused", "deleted"):
                # A worker that comes late to a start finds that its job was stopped; nothing else skips what is claimed.
                yield facts.tell("S8", key, f"was skipped while it ran ({change.reason})")
            if new == "running" and old != "running":
                claimed[change.fence] = change.process
            elif old == "running" != new and process_role(change.process) == "worker":
                claimer = claimed.get(change.old_fence)
                if claimer is not None and claimer != change.process:
                    yield facts.tell(
                        "S8",
                        key,
                        f"{change.process} ended fence {change.old_fence}, which {claimer} had claimed",
                    )


def zombies_are_bounded(facts: Facts) -> Iterator[Violation]:
    """S9: a second body of an execution begins beside the first only after the first one's lease has run out."""
    for execution, bodies in facts.bodies.items():
        key = facts.key(execution)
        for number, first in enumerate(bodies):
            for second in bodies[number + 1 :]:
                if key is None or not overlaps(first, second) or first.fence == second.fence:
                    continue
                older, newer = sorted((first, second), key=lambda body: body.fence)
                lease = _lease_end(facts, key, older, second.arrived)
                if lease is not None and second.arrived < lease - facts.terms.clock_error:
                    yield facts.tell(
                        "S9",
                        key,
                        f"fence {newer.fence} ran {lease - second.arrived:.3f} s before the lease of"
                        f" fence {older.fence} had run out",
                    )


def zombies(facts: Facts) -> list[Body]:
    """Bodies that ran beside an earlier one of their execution: allowed after the lease, but counted."""
    return [
        second
        for bodies in facts.bodies.values()
        for number, second in enumerate(bodies)
        if any(overlaps(first, second) for first in bodies[:number])
    ]


def _lease_end(facts: Facts, key: Key, body: Body, moment: float) -> float | None:
    """Until when the worker of a body had its lease, as the database knew it at a moment; None where it had given it up."""
    claim = next(
        (c for c in facts.changes.get(key, []) if c.fence == body.fence and c.state == "running"), None
    )
    if claim is None:
        return None
    ended = next(
        (c for c in facts.changes[key] if c.old_fence == body.fence and c.old_state == "running" != c.state),
        None,
    )
    if ended is not None and ended.process == claim.process:
        return None  # its own worker had said that it was over
    leases = [w for w in facts.history.workers if w.worker == claim.worker and w.at <= moment]
    return leases[-1].lease_until if leases else None


def success_is_real(facts: Facts) -> Iterator[Violation]:
    """S12: what succeeded was finished by the receiver, under the fence that succeeded, before it was written down."""
    for key, changes in facts.changes.items():
        done = next((c for c in changes if c.state == "succeeded" and c.old_state != "succeeded"), None)
        if done is None or not _is_http(facts, key):
            continue
        bodies = [b for b in facts.bodies.get(execution_id(key), []) if b.fence == done.fence]
        real = [b for b in bodies if b.is_success and b.ended is not None]
        if not real:
            yield facts.tell("S12", key, f"succeeded, but the receiver never finished fence {done.fence}")
        elif min(b.arrived for b in real) > done.at + facts.terms.answer_slack:
            yield facts.tell("S12", key, "was written down as done before it began")


def _is_http(facts: Facts, key: Key) -> bool:
    target = facts.jobs[key[0]][0].spec.get("target") if key[0] in facts.jobs else None
    return isinstance(target, str) or (isinstance(target, dict) and "http" in target)


def ids_are_functions(facts: Facts) -> Iterator[Violation]:
    """S13: every delivery verifies, and carries the id that follows from its job, kind and slot."""
    for execution, bodies in facts.bodies.items():
        key = facts.key(execution)
        for body in bodies:
            subject = f"{body.job} {execution}"
            if not body.is_verified:
                yield Violation("S13", subject, "its signature is wrong", receiver=(str(body),))
            if key is None or key[2] != body.slot or facts.name(key[0]) != body.job:
                yield Violation(
                    "S13", subject, "the webhook-id does not follow from job and slot", receiver=(str(body),)
                )


def overlap_holds(facts: Facts) -> Iterator[Violation]:
    """S14: of a job or group with a limit, no more bodies are under way than it allows; zombies after their lease do not
    count."""
    for crowd in crowds(facts):
        yield from _crowded(facts, crowd)


def _crowded(facts: Facts, crowd: Crowd) -> Iterator[Violation]:
    for number, body in enumerate(crowd.bodies):
        beside = [
            other
            for other in crowd.bodies[max(0, number - 50) : number]
            if other.execution != body.execution
            and overlaps(other, body)
            and _is_live(facts, other, body.arrived)
        ]
        if len(beside) >= crowd.limit:
            key = facts.key(body.execution)
            assert key is not None
            others = ", ".join(f"{other.execution}/{other.fence}" for other in beside)
            yield facts.tell(
                "S14", key, f"began while {others} was under way; the limit of {crowd.name} is {crowd.limit}"
            )


def _is_live(facts: Facts, body: Body, moment: float) -> bool:
    """Whether the database still counted a body's attempt as running at a moment."""
    key = facts.key(body.execution)
    if key is None:
        return False
    last: ExecutionChange | None = last_before(facts.changes.get(key, []), moment)
    return (
        last is not None
        and last.state not in TERMINAL
        and last.state == "running"
        and last.fence == body.fence
    )
