"""Why an execution that is due has not started."""

from __future__ import annotations

from datetime import datetime, timedelta

from cronwell.model import instants
from cronwell.model.execution import State
from cronwell.store.port import Execution, ExecutionFilter, Halt, Store


async def why_not_started(store: Store, execution: Execution, now: datetime) -> str | None:
    """What an execution that is due waits for, as a sentence; None where it is for nothing but a free worker."""
    if execution.state not in (State.PENDING, State.RETRYING) or execution.ready_at > now:
        return None
    workers = await store.list_workers(now)
    if not any(each.state == "active" and execution.pool in each.pools for each in workers):
        return f"No worker serves the pool {execution.pool}: start one with `cronwell worker --pool {execution.pool}`."
    halt = await store.why_waiting(execution.tenant_id, execution.key, now)
    if halt is not None and (told := _at_gate(halt, now)) is not None:
        return told
    if execution.running_limit is None:
        return None
    where = ExecutionFilter(job_id=execution.key.job_id, states=(State.RUNNING, State.RETRYING))
    begun = await store.list_executions(execution.tenant_id, where, None, 2)
    earlier = [each for each in begun if each.key != execution.key]
    if not earlier or execution.state is State.RETRYING:
        return None
    return f"It waits for its turn: execution {earlier[0].key} of the job is not finished."


def _at_gate(halt: Halt, now: datetime) -> str | None:
    if halt.group and halt.group_limit is not None and halt.group_running >= halt.group_limit:
        return (
            f"It waits for its group {halt.group}: {halt.group_running} are running, and its limit is "
            f"{halt.group_limit}."
        )
    if halt.max_running is not None and halt.running >= halt.max_running:
        return (
            f"It waits for its tenant's quota: {halt.running} of {halt.max_running} executions are running."
        )
    if halt.max_per_minute is not None and halt.begun >= halt.max_per_minute:
        following = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
        return (
            f"It waits for its tenant's quota: {halt.begun} of {halt.max_per_minute} executions of this minute "
            f"have begun; the next minute begins at {instants.write(following)}."
        )
    return None
