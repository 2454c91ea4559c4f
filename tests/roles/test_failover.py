"""Roles when the database becomes another: they begin anew, and keep what it confirms."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cronwell import errors, meters
from cronwell.config import DatabaseSettings
from cronwell.control.continuity import Continuity, judge
from cronwell.model.execution import Result, State
from cronwell.model.shards import SHARDS
from cronwell.runtime.acting import acting_for
from cronwell.runtime.postgres import Database
from cronwell.scheduler.duties import Duties
from cronwell.store.port import Pulse
from cronwell.store.postgres.migrate import migrate
from cronwell.targets.handler import Context
from tests.support import postgres
from tests.support.house import TENANT, House
from tests.support.incarnations import Replaceable
from tests.support.waiting import until, until_async

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
QUICK: dict[str, Any] = {"lease": timedelta(seconds=6), "heartbeat": timedelta(milliseconds=100)}
SOON = {"initial_delay": "50ms", "max_delay": "50ms", "jitter": 0}


async def test_a_worker_goes_on_with_what_the_new_server_confirms_and_drops_what_it_lost(
    house: House, replaceable: Replaceable
) -> None:
    release = asyncio.Event()
    begun: list[tuple[str, int]] = []
    dropped: list[str] = []

    async def work(ctx: Context) -> str:
        begun.append((ctx.execution_id, ctx.fence))
        try:
            if len(begun) <= 2:
                await release.wait()
        except asyncio.CancelledError:
            dropped.append(ctx.execution_id)
            raise
        return f"run {len(begun)}"

    house.registry.add(work, "work")
    await house.create(overlap="allow", retry=SOON)
    async with house.working(**QUICK):
        confirmed, lost = await house.trigger(), await house.trigger()
        await until(lambda: len(begun) == 2)
        name = (await house.get(confirmed)).worker
        # As if the claim of the second had never reached the server that was promoted. It is not ready before that.
        await house.database.execute(
            "update executions set state = 'pending', worker = null, fence = 0, attempt = 0, claimed_at = null, "
            "started_at = null, ready_at = now() + interval '3 seconds' where job_id = $1 and slot = $2",
            lost.job_id,
            lost.slot,
        )
        await replaceable.become("7/00000002")
        done = await house.until_state(lost, State.SUCCEEDED)
        assert dropped == [str(lost)]
        assert begun[2] == (str(lost), 1), "the same fence, given out again"
        assert done.worker not in (name, None)

        kept = await house.get(confirmed)
        assert (kept.state, kept.worker) == (State.RUNNING, name)
        assert set(await _workers(house)) == {(name, "active"), (done.worker, "active")}
        release.set()
        kept = await house.until_state(confirmed, State.SUCCEEDED)
        assert (kept.fence, kept.attempt, kept.worker) == (1, 1, name)

        async def is_let_go() -> bool:
            return (name, "stopped") in await _workers(house)

        await until_async(is_let_go)
    assert await house.store.list_attempts(TENANT, confirmed) == []
    assert await house.store.list_attempts(TENANT, lost) == []


async def test_what_a_worker_does_not_know_that_it_holds_is_handed_back_at_a_failover(
    house: House, replaceable: Replaceable
) -> None:
    """The answer to the claim was lost with the server that gave it, and the claim was not."""
    house.registry.add(lambda: "done", "work")
    await house.create(priority="low")
    async with house.working(**QUICK, pre_claim=timedelta()) as stop:
        del stop
        [(name, _)] = await _workers(house)
        key = await house.trigger()
        await house.until_state(key, State.SUCCEEDED)
        await house.database.execute(
            "update executions set state = 'running', fence = 2, started_at = null, finished_at = null"
        )
        await replaceable.become("7/00000002")

        async def is_done_again() -> bool:
            return (await house.get(key)).fence == 3 and (await house.get(key)).state is State.SUCCEEDED

        await until_async(is_done_again)
        assert (await house.get(key)).worker != name
    assert await house.store.list_attempts(TENANT, key) == []


async def test_what_had_begun_and_whose_result_was_lost_at_a_failover_is_tried_again(
    house: House, replaceable: Replaceable
) -> None:
    """The worker knows nothing of it any more, and has something else that goes on."""
    may_end = asyncio.Event()

    async def work(ctx: Context) -> None:
        if ctx.job == "long":
            await may_end.wait()

    house.registry.add(work, "work")
    await house.create("short", retry={"initial_delay": "0s", "jitter": 0})
    await house.create("long")
    async with house.working(**QUICK):
        [(name, _)] = await _workers(house)
        long = await house.trigger("long")
        await house.until_state(long, State.RUNNING)
        key = await house.trigger("short")
        await house.until_state(key, State.SUCCEEDED)
        await house.database.execute(
            "update executions set state = 'running', finished_at = null where job_id = $1", key.job_id
        )
        await replaceable.become("7/00000002")

        async def is_done_again() -> bool:
            await house.rescue().run_once()
            return (await house.get(key)).fence == 2 and (await house.get(key)).state is State.SUCCEEDED

        await until_async(is_done_again)
        assert (await house.get(long)).worker == name
        may_end.set()
        assert (await house.until_state(long, State.SUCCEEDED)).attempt == 1
    [lost] = await house.store.list_attempts(TENANT, key)
    assert lost.result is Result.WORKER_LOST


async def test_a_worker_whose_entry_was_lost_drops_everything_and_enters_anew(
    house: House, replaceable: Replaceable
) -> None:
    begun: list[int] = []

    async def work(ctx: Context) -> str:
        begun.append(ctx.fence)
        if len(begun) == 1:
            await asyncio.Event().wait()
        return "again"

    house.registry.add(work, "work")
    await house.create()
    async with house.working(**QUICK):
        key = await house.trigger()
        await until(lambda: begun)
        async with house.database.transaction() as connection:
            await connection.execute("delete from workers")
            await connection.execute(
                "update executions set state = 'pending', worker = null, fence = 0, attempt = 0, started_at = null"
            )
        await replaceable.become("7/00000002")
        done = await house.until_state(key, State.SUCCEEDED)
        assert (begun, done.output, done.attempt) == ([1, 1], "again", 1)


async def test_a_scheduler_begins_every_epoch_anew(house: House, replaceable: Replaceable) -> None:
    duties = Duties(house.coordination(), house.store, house.clock, house.settings.scheduler)
    await duties.beat()
    before = dict(duties.epochs)
    assert before.keys() == set(range(SHARDS))
    await replaceable.become("7/00000002")
    duties.begin_anew()
    assert duties.epochs == {}
    await duties.beat()
    assert duties.epochs == {shard: epoch + 1 for shard, epoch in before.items()}
    assert {shard.incarnation for shard in await house.store.list_shards()} == {"7/00000002"}
    await duties.leave()


async def test_a_process_tells_everyone_when_the_database_is_another(
    house: House, replaceable: Replaceable
) -> None:
    calls: list[int] = []
    continuity = Continuity(house.database, house.store, house.clock)
    continuity.on_failover(lambda: calls.append(1))
    failovers = meters.FAILOVERS._value.get()
    lossy = meters.LOSSY_FAILOVERS._value.get()
    assert not await continuity.beat()
    assert not await continuity.beat()
    await replaceable.become("7/00000002")
    assert await continuity.beat()
    assert not await continuity.beat()
    assert calls == [1]
    assert meters.FAILOVERS._value.get() == failovers + 1
    assert meters.LOSSY_FAILOVERS._value.get() == lossy

    await house.database.execute("update pulses set number = number - 1")
    await replaceable.become("7/00000003")
    assert await continuity.beat()
    assert meters.LOSSY_FAILOVERS._value.get() == lossy + 1
    await house.database.execute("delete from pulses")
    await replaceable.become("7/00000004")
    assert await continuity.beat()
    assert meters.LOSSY_FAILOVERS._value.get() == lossy + 2


async def test_the_days_that_were_made_are_made_anew_where_they_are_not_there(
    house: House, replaceable: Replaceable
) -> None:
    continuity = Continuity(house.database, house.store, house.clock)
    await continuity.beat()
    await house.create()
    await house.trigger()
    [day] = await house.store.days()
    assert await house.store.drop_day(day) is False
    await house.database.execute("delete from executions")
    await house.database.execute(f"drop table executions_{day:%Y%m%d}, attempts_{day:%Y%m%d}")
    await replaceable.become("7/00000002")
    assert await continuity.beat()
    await house.trigger()
    assert await house.store.days() == [day]


@given(
    survived=some.integers(0, 50),
    after=some.integers(0, 50),
    unanswered=some.integers(0, 3),
    words=some.integers(0, 900),
)
def test_the_window_covers_whatever_was_committed_after_the_last_pulse_that_survived(
    survived: int, after: int, unanswered: int, words: int
) -> None:
    """Pulses one a second from noon on; `survived` of them survive, and some that were not answered may."""
    committed = survived + after
    number = min(survived + unanswered, committed + unanswered) if after == 0 else survived
    found = Pulse("7/2", number or None, NOON + number * SECOND if number else None)
    ended_at = NOON + committed * SECOND + timedelta(milliseconds=words)
    loss = judge(found, committed=committed, began_at=NOON, ended_at=ended_at)
    assert loss.is_certain == (after > 0)
    assert loss.window >= after * SECOND
    assert loss.window <= (after + 1) * SECOND


async def test_a_role_that_owns_its_database_and_has_two_roles_more_is_enough(
    server: str, migrated: str
) -> None:
    url = await postgres.create_database(server)
    name = f"plain_{postgres.database_name(url)}"
    admin = await Database.connect(DatabaseSettings(), server, application_name="test")
    await admin.execute(f'create role "{name}" login nosuperuser')
    await admin.execute(f'alter database "{postgres.database_name(url)}" owner to "{name}"')
    plain_url = url.replace("postgres@", f"{name}@")
    try:
        plain = await Database.connect(DatabaseSettings(), plain_url, application_name="test")
        with pytest.raises(errors.ConfigError, match="grant cronwell_service, cronwell_tenant to"):
            await migrate(plain)
        await admin.execute(f'grant cronwell_service, cronwell_tenant to "{name}"')
        await migrate(plain)
        for tenant, tenants in ((None, 1), (1, 1), (2, 0)):
            with acting_for(tenant):
                assert await plain.fetchval("select count(*) from tenants") == tenants
        assert await plain.fetchval("select rolsuper from pg_roles where rolname = current_user") is False
        assert await plain.fetchval("select incarnation()") == plain.servers.incarnation
        await plain.close()
    finally:
        await postgres.drop_database(server, url)
        await admin.execute(f'drop role "{name}"')
        await admin.close()


async def _workers(house: House) -> list[tuple[UUID, str]]:
    return [(row["id"], row["state"]) for row in await house.database.fetch("select id, state from workers")]
