"""What a slot of a job that follows others waits for, or was skipped for."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from cronwell.control.sight import look
from cronwell.control.views import View
from cronwell.model import instants
from cronwell.model.dependencies import On, Seen, satisfies
from cronwell.model.execution import State
from cronwell.store.port import Edge, Job, Store

WHY_UNMET = {
    "upstream_succeeded": "a job that it follows succeeded, and it runs only where that fails",
    "upstream_failed": "a job that it follows failed",
    "upstream_skipped": "a job that it follows was skipped there",
    "upstream_cancelled": "an execution of a job that it follows was cancelled",
    "upstream_missing": "a job that it follows has no such slot",
    "upstream_timeout": "not all that it follows had ended when its timeout was over",
    "upstream_rerun": "a job that it follows is run again there; it is judged anew when that has ended",
}


class UpstreamView(View):
    """An upstream at a slot, as one that follows it sees it."""

    job: str
    on: On
    state: Literal["succeeded", "failed", "cancelled", "skipped", "unfinished", "missing"]
    is_satisfied: bool


def told_waiting(upstreams: list[UpstreamView], at: datetime) -> dict[str, str]:
    """What to say of an instant at which a job that follows others has no execution."""
    unfinished = [each.job for each in upstreams if each.state == "unfinished"]
    if unfinished:
        sentence = f"The slot waits for the end of {', '.join(unfinished)}."
        return {"verdict": "waiting", "reason": "upstream", "sentence": sentence}
    names = ", ".join(each.job for each in upstreams)
    sentence = f"The job follows {names}, and has no execution for {instants.write(at)} by them."
    return {"verdict": "not_a_slot", "reason": "no_upstream", "sentence": sentence}


async def upstreams_at(store: Store, job: Job, slot: datetime) -> list[UpstreamView]:
    """What has become of all that a job follows, at a slot."""
    place = (job.tenant_id, job.id, slot)
    async with store.transaction() as transaction:
        sight = await look(transaction, [place])
        edges: list[Edge] = sight.upstreams[job.tenant_id, job.id]
        named = await transaction.jobs_of_ids(job.tenant_id, [edge.upstream_id for edge in edges])
    names = {each.id: each.name for each in named}
    return [
        UpstreamView(
            job=names.get(edge.upstream_id, str(edge.upstream_id)),
            on=on,
            state=_told(seen),
            is_satisfied=satisfies(on, seen),
        )
        for edge, (on, seen) in zip(edges, sight.of(place), strict=True)
    ]


def _told(
    seen: Seen,
) -> Literal["succeeded", "failed", "cancelled", "skipped", "unfinished", "missing"]:
    match seen.state:
        case None:
            return "missing"
        case State.SUCCEEDED:
            return "succeeded"
        case State.FAILED:
            return "failed"
        case State.CANCELLED:
            return "cancelled"
        case State.SKIPPED:
            return "skipped"
        case _:
            return "unfinished"
