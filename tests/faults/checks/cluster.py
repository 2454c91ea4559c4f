"""After healing: nobody holds what is not theirs, everything has an owner, and what was late had a reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.faults.checks.crowds import Crowd, crowds
from tests.faults.checks.facts import Facts, Violation
from tests.faults.history import Body, Key


def healed(facts: Facts) -> Iterator[Violation]:
    """L9: no `running` with an expired lease, no shard without a living owner, no active job without a next slot."""
    end = facts.history.end
    for key, row in facts.rows.items():
        if row.state == "running" and end.workers.get(row.worker or "", 0.0) < end.at - facts.terms.sweep:
            yield facts.tell("L9", key, "runs, although its worker's lease has run out")
    oldest = end.at - facts.terms.scheduler_lease - facts.terms.sweep
    for shard, marked in end.marked.items():
        if marked < oldest:
            said = f"has no living owner: nobody has marked it for {end.at - marked:.1f} s"
            yield Violation(
                "L9", f"shard {shard}", said, database=(f"marked at {marked:.3f}, now {end.at:.3f}",)
            )
    for job, next_slot in end.cursors.items():
        if next_slot is not None and next_slot.timestamp() < end.at - facts.terms.grace:
            yield facts.tell_job(
                "L9", job, f"its cursor stands at {next_slot}, long ago", database=[next_slot]
            )


def late_for_a_reason(facts: Facts) -> Iterator[Violation]:
    """L1, L6: a start is late only through a fault, or a machine that stood still; and after healing not for long. What waits
    for others of its job or group is late from when these left it room."""
    shared: defaultdict[str, list[Crowd]] = defaultdict(list)
    for crowd in crowds(facts):
        for name in {body.job for body in crowd.bodies}:
            shared[name].append(crowd)
    for key, body in first_bodies(facts):
        due = max(key[2].timestamp(), *(each.full_until(body.arrived) for each in shared[body.job]), 0.0)
        late = lateness(facts, body, due)
        if late <= facts.terms.late:
            continue
        healed_at = [
            window.healed
            for window in facts.history.windows
            if window.began <= body.arrived and due <= window.healed + facts.terms.recovery
        ]
        if not healed_at:
            yield facts.tell("L1", key, f"started {late:.3f} s late, with no fault near")
        elif body.arrived > max(healed_at) + facts.terms.recovery:
            yield facts.tell(
                "L6", key, f"started {late:.3f} s late: not recovered {facts.terms.recovery} s after healing"
            )


def first_bodies(facts: Facts) -> Iterator[tuple[Key, Body]]:
    """The first delivery of each scheduled execution that a receiver has seen."""
    for execution, bodies in facts.bodies.items():
        key = facts.key(execution)
        if key is not None and key[1] == "scheduled" and bodies[0].attempt == 1:
            yield key, bodies[0]


def lateness(facts: Facts, body: Body, due: float) -> float:
    """Seconds from the slot to the arrival, without those in which the machine stood still."""
    stood = sum(
        max(0.0, min(ended, body.arrived) - max(began, due))
        for began, ended in facts.history.stalls
        if ended > due
    )
    return body.arrived - due - stood
