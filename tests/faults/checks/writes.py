"""What was acknowledged to the client: it is not lost, it happened once, and it holds from then on."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.checks.facts import VERBS, Facts, Violation
from tests.faults.history import Request, key_of, process_role

AFTER = {"create": "active", "pause": "paused", "resume": "active", "edit": "", "delete": "deleted"}


def nothing_lost(facts: Facts) -> Iterator[Violation]:
    """S10: each acknowledged write is in the database, and one Idempotency-Key has one answer."""
    for request in facts.history.requests:
        ids = {each.answer.get("id") for each in request.tries if each.outcome == "ok"}
        if request.key and len(ids) > 1:
            yield _tell(facts, request, f"one key, several answers: {sorted(map(str, ids))}")
        if request.outcome != "ok":
            continue
        if request.verb == "trigger":
            key = key_of(str(request.answer.get("id")))
            if key is None or key not in facts.changes:
                yield _tell(facts, request, "the execution that was promised does not exist")
        elif request.verb in VERBS and not _has_effect(facts, request):
            yield _tell(facts, request, "acknowledged, and nothing changed")
    yield from _ends_as_told(facts)
    yield from _nothing_unasked(facts)


def _has_effect(facts: Facts, request: Request) -> bool:
    job = facts.names.get(request.job)
    if job is None:
        return False
    if request.verb == "create" and request.answer.get("id", "").replace("-", "") != job:
        return False
    slack = facts.terms.answer_slack
    state = AFTER[request.verb]
    return any(
        state in ("", change.state)
        for change in facts.jobs[job]
        if request.invoked - slack <= change.at <= request.ended + slack
    )


def _ends_as_told(facts: Facts) -> Iterator[Violation]:
    """The last word counts, where nothing that is unknown can have come after it."""
    for name, requests in facts.requests.items():
        written = [r for r in requests if r.verb in VERBS and r.outcome != "failed"]
        if not written or any(each.outcome == "unknown" for r in written for each in r.tries):
            continue
        last = max((r for r in written if AFTER[r.verb]), key=lambda r: r.ended, default=None)
        job = facts.names.get(name)
        if last is None or job is None:
            continue
        state = facts.jobs[job][-1].state
        by_others = process_role(facts.jobs[job][-1].process) != "api"
        if state != AFTER[last.verb] and not by_others:
            yield facts.tell_job("S10", job, f"ends as {state}, although {last.verb} was the last word")
        edit = max((r for r in written if r.verb in ("create", "edit")), key=lambda r: r.ended)
        spec = facts.jobs[job][-1].spec
        for field, value in edit.body.items():
            if spec.get(field) != value:
                yield facts.tell_job("S10", job, f"{field} is {spec.get(field)!r} and was set to {value!r}")


def _nothing_unasked(facts: Facts) -> Iterator[Violation]:
    """Jobs change because somebody asked; or they finish, or a receiver said that it is gone."""
    for job, changes in facts.jobs.items():
        for change in changes:
            if facts.asked_by(change):
                continue
            is_gone = change.state == "paused" and any(b.status == 410 for b in facts.bodies_of(job))
            if not (change.state == "finished" or is_gone):
                yield facts.tell_job(
                    "S2", job, f"became {change.state} at {change.at:.3f}, and nobody asked for it"
                )


def what_is_stopped_stays_so(facts: Facts) -> Iterator[Violation]:
    """S11: after a pause or a delete was acknowledged, no attempt begins until somebody asks for it again."""
    for request in facts.history.requests:
        job = facts.names.get(request.job)
        if request.verb not in ("pause", "delete") or request.outcome != "ok" or job is None:
            continue
        resumed = min(
            (
                each.invoked
                for other in facts.requests[request.job]
                if other.verb in ("resume", "create") and other.outcome != "failed"
                for each in other.tries
                if each.outcome == "unknown" or each.invoked > request.invoked
                if each.ended > request.invoked
            ),
            default=float("inf"),
        )
        for body in facts.bodies_by_job.get(request.job, []):
            key = facts.key(body.execution)
            # It may arrive after the answer, but it has begun before: the way from the worker takes its time.
            if key is None or not request.ended < body.arrived < resumed:
                continue
            late = facts.started(key, body) - request.ended
            if late <= facts.terms.clock_error:
                continue
            if key[1] == "manual" and key[2].timestamp() > request.invoked:
                continue
            yield facts.tell(
                "S11", key, f"began {late:.3f} s after its job's {request.verb} was acknowledged"
            )


def _tell(facts: Facts, request: Request, said: str) -> Violation:
    job = facts.names.get(request.job, request.job)
    return facts.tell_job(
        "S10", job, f"{request.verb}: {said} (key {request.key or 'none'}, {dict(request.answer)})"
    )
