"""Jobs that follow others in tests: executions that end as the test says, and what became of a slot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.runtime.clock import ManualClock
from cronwell.store.port import Execution
from tests.support.house import CALLER, TENANT, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
SLOT = NOON + timedelta(minutes=1)
MINUTE = timedelta(minutes=1)


class Chain:
    """A house whose executions end when a test says so, and whose dependents are judged at once."""

    def __init__(self, house: House, clock: ManualClock) -> None:
        self.house = house
        self.clock = clock
        self.chore = house.chaining()

    async def create(self, name: str, *upstreams: Any, **fields: Any) -> UUID:
        """A job that follows others or, without any, has a slot each minute."""
        how: dict[str, Any] = {"after": list(upstreams)} if upstreams else {"schedule": "* * * * *"}
        return await self.house.create(name, **{"overlap": "allow", **how, **fields})

    async def edit(self, name: str, /, **changes: Any) -> None:
        await self.house.jobs.patch(CALLER, f"name:{name}", changes, revision=None)

    async def end(
        self, job: UUID, slot: datetime = SLOT, state: State = State.SUCCEEDED, **fields: Any
    ) -> None:
        """Let the executions of a job at a slot end, and judge what follows them."""
        await self.house.database.execute(
            "update executions set state = $3, attempt = 1, started_at = $4, finished_at = $4, output = $5"
            " where job_id = $1 and slot = $2 and state in ('pending', 'running', 'retrying')",
            job,
            slot,
            state,
            self.clock.now(),
            fields.get("output"),
        )
        await self.judge()

    async def judge(self) -> None:
        await self.chore.run_once()

    async def at(self, job: UUID, slot: datetime = SLOT) -> Execution | None:
        """What a job that follows others has at a slot."""
        return await self.house.store.get_execution(TENANT, ExecutionKey(job, Kind.DEPENDENCY, slot))

    async def state(self, job: UUID, slot: datetime = SLOT) -> str:
        """The state, with the reason where it was skipped; `none` without an execution."""
        found = await self.at(job, slot)
        if found is None:
            return "none"
        return f"skipped: {found.reason}" if found.state is State.SKIPPED else found.state.value

    async def waiting(self) -> int:
        count: int = await self.house.database.fetchval("select count(*) from waiting_slots")
        return count
