"""What a worker knows of jobs: each definition is read once, and those that were not used for longest are forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid4

from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.store.port import Claimed
from cronwell.store.postgres.store import PostgresStore
from cronwell.store.records import Definition
from cronwell.worker.catalog import Catalog, KnownJob
from tests.support.house import TENANT, House


class Noting(PostgresStore):
    """Notes which jobs were read."""

    read: list[UUID]

    async def definitions(self, keys: Sequence[tuple[int, UUID]]) -> list[Definition]:
        self.read += [job_id for _, job_id in keys]
        return await super().definitions(keys)


async def test_definitions_are_read_once_until_others_take_their_place(house: House) -> None:
    store = Noting(house.database)
    store.read = []
    catalog = Catalog(store, kept=3)
    jobs = [await house.create(name=f"job-{number}") for number in range(4)]

    async def read_for(*wanted: int) -> list[int]:
        store.read.clear()
        found = await catalog.look_up([claim(house, jobs[number]) for number in wanted])
        assert [job.name for job in found if isinstance(job, KnownJob)] == [
            f"job-{number}" for number in wanted
        ]
        return sorted(jobs.index(job_id) for job_id in store.read)

    assert [await read_for(number) for number in range(3)] == [[0], [1], [2]]
    assert await read_for(0, 2, 0) == []
    assert await read_for(3) == [3]
    # 1 was not used since the others were, so it had to go.
    assert await read_for(0, 2, 3) == []
    assert await read_for(1) == [1]


async def test_a_job_that_is_gone_is_told_among_those_that_are_known(house: House) -> None:
    catalog = Catalog(house.store)
    known = await house.create(name="known")
    await catalog.look_up([claim(house, known)])
    found = await catalog.look_up([claim(house, known), claim(house, uuid4()), claim(house, known)])
    assert [job and job.name for job in found] == ["known", None, "known"]


async def test_a_definition_that_this_release_cannot_read_fails_alone_and_says_so(house: House) -> None:
    house.registry.add(lambda ctx: None, "work")
    newer = await house.create("newer")
    await house.create("known")
    first, second = await house.trigger("newer"), await house.trigger("known")
    await house.database.execute(
        "update jobs set spec = jsonb_set(spec::jsonb, '{target,handler,mode}', '1')::json where id = $1",
        newer,
    )
    async with house.working():
        await house.until_state(second, State.SUCCEEDED)
        failed = await house.until_state(first, State.RETRYING)
    assert failed.error_kind == "unreadable_job"
    assert failed.error is not None
    assert "cannot read the definition of newer: target.handler.mode" in failed.error


def claim(house: House, job_id: UUID) -> Claimed:
    now = house.clock.now()
    return Claimed(
        TENANT, ExecutionKey(job_id, Kind.SCHEDULED, now), now, 1, 1, uuid4(), 1, 1, None, None, False, None, None
    )  # fmt: skip
