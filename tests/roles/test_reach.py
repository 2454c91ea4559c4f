"""Claims that do not look back to the beginning: nothing is left behind, and what is dead is not gone through."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cronwell.config import DatabaseSettings
from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.runtime.postgres import Connection, Database
from cronwell.runtime.statements import load_statements
from cronwell.store.port import EVER, NewExecution
from cronwell.store.postgres import store as store_module
from cronwell.store.postgres.store import PostgresStore
from cronwell.targets.handler import Context
from cronwell.worker import reach
from cronwell.worker.queue import Queue
from cronwell.worker.reach import FAR, FOR_EACH, LOOKS, NEAR, SLOW, Frontier, Reach
from tests.contract.desk import NOON, SECOND, Desk
from tests.support.house import TENANT, House
from tests.support.waiting import until, until_async

MINUTE = timedelta(minutes=1)
YESTERDAY = datetime(NOON.year, NOON.month, NOON.day, tzinfo=UTC) - timedelta(days=1)
TICK = timedelta(milliseconds=1)
BACKLOG = 500
_CLAIMS = load_statements(Path(store_module.__file__).with_name("claims.sql"))
_ENTRIES = """
select sum(pg_stat_get_xact_tuples_returned(inhrelid))
from pg_inherits
where inhparent = 'executions_claimable'::regclass
"""


def shortened() -> Reach:
    made = Reach()
    made.judge(2 * SLOW)
    return made


def looks(made: Reach, *seconds: float) -> bool:
    for each in seconds:
        made.note(each)
    return made.is_suspect


def test_claims_are_suspect_only_when_every_look_of_a_while_was_slow() -> None:
    made = Reach()
    nearly_all = [2 * SLOW] * (LOOKS - 1)
    assert not looks(made, *nearly_all, SLOW / 2, *nearly_all)
    assert looks(made, 2 * SLOW)
    assert not made.is_short, "that is for somebody to measure"
    made.judge(SLOW / 2)
    assert (made.is_short, made.is_suspect) == (False, False)
    assert not looks(made, *nearly_all), "it is judged anew"


def test_claims_are_short_while_the_way_is_long() -> None:
    made = Reach()
    for seconds, is_short in ((2 * SLOW, True), (3 * SLOW, True), (SLOW / 2, False), (SLOW / 2, False)):
        made.judge(seconds)
        assert made.is_short is is_short


def test_a_tier_in_which_there_is_nothing_says_nothing_of_another() -> None:
    made = Reach()
    for _ in range(LOOKS):
        made.note(2 * SLOW, ("default", 1))
        made.note(0.0, ("default", 0))
    assert made.is_suspect


def test_what_is_claimed_takes_its_time() -> None:
    made = Reach()
    for _ in range(LOOKS):
        made.note(SLOW + 900 * FOR_EACH, claimed=1000)
    assert not made.is_suspect


def test_a_claim_begins_before_now_and_before_what_was_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    made = shortened()
    for reached, begin in ((NOON + SECOND, NOON), (NOON - MINUTE, NOON - MINUTE)):
        assert Frontier(made, reached).since(NOON) == begin - NEAR
    assert Frontier(made).since(NOON) == EVER, "nothing is known of what lies behind"
    assert Frontier(Reach(), NOON).since(NOON) == EVER
    assert begins(made) == [NOON - FAR, NOON - NEAR, NOON - NEAR]
    monkeypatch.setattr(reach, "FAR_EVERY", 0.0)
    assert begins(shortened()) == [NOON - FAR] * 3


def begins(made: Reach) -> list[datetime]:
    """Where the claims of the next three rounds begin."""
    frontier = Frontier(made, NOON)
    found = []
    for _ in range(3):
        made.begin_round()
        found.append(frontier.since(NOON))
    return found


def test_rounds_in_between_look_for_slots_of_the_last_days(monkeypatch: pytest.MonkeyPatch) -> None:
    assert days_of(Reach(), 3) == [EVER, YESTERDAY, YESTERDAY]
    assert days_of(shortened(), 3) == [EVER, YESTERDAY, YESTERDAY], (
        "those that look far back look at all days"
    )
    monkeypatch.setattr(reach, "WHOLE_EVERY", 0.0)
    assert days_of(Reach(), 3) == [EVER] * 3


def test_rounds_look_into_all_days_as_long_as_there_is_something_in_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Reach()
    assert days_of(made, 2) == [EVER, YESTERDAY]
    made.meet(YESTERDAY, NOON)
    assert days_of(made, 1) == [YESTERDAY]
    made.meet(YESTERDAY - TICK, NOON)
    assert days_of(made, 2) == [EVER, EVER]
    with monkeypatch.context() as patch:
        patch.setattr(reach, "WHOLE_EVERY", 0.0)
        made.look_back()
        assert days_of(made, 1) == [EVER]
    assert days_of(made, 2) == [EVER, YESTERDAY], "the last that looked into them met nothing"


def test_no_round_looks_back_further_than_one_to_the_beginning_or_one_far_back_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert farthest(Reach()) == [True, False, False]
    assert farthest(shortened()) == [True, False, False]
    monkeypatch.setattr(reach, "FAR_EVERY", 0.0)
    assert farthest(Reach()) == [True, False, False]
    assert farthest(shortened()) == [True] * 3


def farthest(made: Reach) -> list[bool]:
    """Which of the next three rounds look back furthest."""
    found = []
    for _ in range(3):
        made.begin_round()
        found.append(made.is_farthest)
    return found


def days_of(made: Reach, rounds: int) -> list[datetime]:
    """The earliest slots that the next rounds look for."""
    found = []
    for _ in range(rounds):
        made.begin_round()
        found.append(made.slots_since(NOON))
    return found


class Shop:
    """A queue whose claims are short, and its worker."""

    def __init__(self, desk: Desk, database: Database, worker: UUID) -> None:
        self.desk = desk
        self.database = database
        self.worker = worker
        self.queue = Queue(desk.store, "default", 1, shortened())

    async def fill(self, *slots: datetime, tenant: int = 1) -> None:
        await self.desk.staged(await self.desk.job(tenant_id=tenant), *slots)

    async def claim(self, places: int = 100, *, at: datetime = NOON) -> list[datetime]:
        claims = await self.queue.claim(self.worker, places, ready_by=at, now=at)
        return sorted(claim.ready_at for claim in claims)


@pytest.fixture
async def shop(migrated_url: str) -> AsyncIterator[Shop]:
    database = await Database.connect(DatabaseSettings(), migrated_url, application_name="test", is_hot=True)
    await database.execute(
        "insert into tenants (id, name, weight, signing_secret) values (2, 'other', 1, 'whsec_other')"
    )
    store = PostgresStore(database)
    desk = Desk(store, lambda: store, lambda worker: database.execute("select $1::uuid", worker))
    yield Shop(desk, database, await desk.worker())
    await database.close()


def test_of_rounds_that_follow_each_other_quickly_one_looks_back_to_the_beginning() -> None:
    made = Reach()
    assert begins(made) == [EVER, NOON - NEAR, NOON - NEAR]
    made.look_back()
    assert begins(made)[0] == EVER
    for _ in range(LOOKS):
        made.begin_round()
        made.note(2 * SLOW)
    assert not made.is_suspect, "those that begin elsewhere say nothing of the way"


async def test_a_queue_goes_on_from_the_last_that_it_claimed(shop: Shop) -> None:
    slots = [NOON - MINUTE + n * SECOND for n in range(40)]
    await shop.fill(*slots)
    assert await shop.claim(10) == slots[:10]
    await shop.fill(slots[0])
    assert await shop.claim(10) == slots[10:20]
    assert await shop.claim() == slots[20:], "fewer than there was room for"
    # One that was changed in the moment of that claim would be there still, and would not have been claimed.
    await shop.fill(slots[0], slots[-1], NOON - TICK)
    assert await shop.claim() == [slots[-1], NOON - TICK]


async def test_each_tenant_goes_on_from_its_own_last(shop: Shop) -> None:
    old = [NOON - MINUTE + n * TICK for n in range(200)]
    await shop.fill(*old)
    await shop.fill(*(NOON - SECOND + n * TICK for n in range(200)), tenant=2)
    taken: list[datetime] = []
    while found := await shop.claim(30):
        taken += found
    assert len(taken) == 400
    await shop.fill(*old)
    assert await shop.claim() == [], "all have gone on"


async def test_by_shares_what_came_up_behind_is_found_while_the_crowd_lasts(shop: Shop) -> None:
    await shop.fill(*(NOON - MINUTE + n * TICK for n in range(2000)))
    await shop.fill(*(NOON - MINUTE + n * TICK for n in range(2000)), tenant=2)
    for _ in range(5):
        await shop.claim(100)
    behind = NOON - MINUTE + 50 * TICK
    await shop.fill(behind, tenant=2)
    taken: list[datetime] = []

    async def is_found() -> bool:
        taken.extend(await shop.claim(20))
        return behind in taken

    await until_async(is_found)
    assert len(taken) < 3000, "the crowd has not ended"


async def test_one_under_a_new_name_begins_at_the_beginning(shop: Shop) -> None:
    assert await shop.claim() == []
    await shop.fill(NOON - MINUTE)
    assert await shop.claim() == []
    shop.worker = await shop.desk.worker()
    assert await shop.claim() == [NOON - MINUTE]


async def test_behind_an_old_transaction_claims_read_what_they_take(shop: Shop, migrated_url: str) -> None:
    """Each claim would otherwise read all that was claimed since the transaction began."""
    other = await Database.connect(DatabaseSettings(), migrated_url, application_name="report")
    slots = [NOON - MINUTE + n * TICK for n in range(4000)]
    async with other.transaction() as held:
        await held.execute("set transaction isolation level repeatable read")
        await held.fetchval("select count(*) from jobs")
        await shop.fill(*slots)
        for _ in range(39):
            assert len(await shop.claim(100)) == 100
        async with shop.database.transaction() as connection:
            short, whole = [
                await _entries_passed(connection, shop.worker, since)
                for since in (shop.queue.frontier.since(NOON), EVER)
            ]
    await other.close()
    assert whole > 3900
    assert short < 500, "those of the margin"


async def _entries_passed(connection: Connection, worker: UUID, since: datetime) -> int:
    """How many entries of the index a claim goes through."""
    before = await connection.fetchval(_ENTRIES)
    await connection.fetch(_CLAIMS["claim"], "default", 1, NOON, worker, 10, NOON, since, EVER)
    return int(await connection.fetchval(_ENTRIES) - before)


@pytest.fixture
def always_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers whose claims are short from the start, and stay so."""
    monkeypatch.setattr(reach, "LOOKS", 1)
    monkeypatch.setattr(reach, "SLOW", -1.0)


def old_slot(job: UUID, slot: datetime, now: datetime) -> NewExecution:
    key = ExecutionKey(job, Kind.MANUAL, slot)
    return NewExecution(TENANT, key, now, 1, 1, None, "default", None, "triggered")


async def test_a_backlog_of_old_slots_is_run_without_a_rest(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(ctx: Context) -> None:
        pass

    for every in ("WHOLE_EVERY", "FAR_EVERY"):
        # Only the first round looks into all days by itself, and it takes a part of them.
        monkeypatch.setattr(reach, every, 1e9)
    house.registry.add(work, "work")
    job, now = await house.create(overlap="allow"), house.clock.now()
    async with house.store.transaction() as transaction:
        await transaction.insert_executions(
            [old_slot(job, now - timedelta(days=9) + n * TICK, now) for n in range(BACKLOG)]
        )
    async with house.working(claim_batch=BACKLOG // 5):
        sql = "select count(*) = $1 from executions where state = 'succeeded'"
        await until_async(lambda: house.database.fetchval(sql, BACKLOG))


@pytest.mark.usefixtures("always_short")
async def test_what_comes_up_behind_the_claims_is_run(house: House) -> None:
    async def work(ctx: Context) -> None:
        pass

    house.registry.add(work, "work")
    await house.create("first")
    await house.create("late", pool="elsewhere")
    async with house.working():
        await house.until_state(await house.trigger("first"), State.SUCCEEDED)
        key = await house.trigger("late")
        await house.database.execute(
            "update executions set pool = 'default', ready_at = ready_at - interval '1 hour' where slot = $1",
            key.slot,
        )
        await house.until_state(key, State.SUCCEEDED)


@pytest.mark.usefixtures("always_short")
async def test_what_is_found_behind_does_not_overtake_a_higher_priority(house: House) -> None:
    began: list[str] = []

    async def work(ctx: Context) -> None:
        began.append(ctx.job)
        done_at = time.monotonic() + 0.2
        await until(lambda: time.monotonic() > done_at)

    house.registry.add(work, "work")
    await house.create("first")
    await house.create("low", pool="elsewhere", priority="low", overlap="allow")
    await house.create("high", priority="high")
    async with house.working(concurrency=1):
        await house.until_state(await house.trigger("first"), State.SUCCEEDED)
        for _ in range(20):
            await house.trigger("low")
        await house.database.execute(
            "update executions set pool = 'default', ready_at = ready_at - interval '1 hour' where pool = 'elsewhere'"
        )
        await until(lambda: "low" in began)
        await house.until_state(await house.trigger("high"), State.SUCCEEDED)
    assert began.index("high") < 10


@pytest.mark.usefixtures("always_short")
async def test_what_is_left_of_a_low_priority_keeps_none_of_a_higher_one_from_being_found(
    house: House,
) -> None:
    began: list[str] = []

    async def work(ctx: Context) -> None:
        began.append(ctx.job)
        done_at = time.monotonic() + 0.1
        await until(lambda: time.monotonic() > done_at)

    async def come_up_behind(name: str) -> None:
        # Not so long ago that it would get a place for its age.
        key = await house.trigger(name)
        await house.database.execute(
            "update executions set pool = 'default', ready_at = ready_at - interval '20 seconds' where slot = $1",
            key.slot,
        )

    house.registry.add(work, "work")
    await house.create("first", priority="low")
    await house.create("herd", priority="high", overlap="allow")
    await house.create("low", pool="elsewhere", priority="low")
    await house.create("late", pool="elsewhere", priority="high")
    async with house.working(concurrency=1):
        await house.until_state(await house.trigger("first"), State.SUCCEEDED)
        for _ in range(60):
            await house.trigger("herd")
        await come_up_behind("low")
        await until(lambda: began.count("herd") >= 10)
        await come_up_behind("late")
        await until(lambda: "late" in began or began.count("herd") == 60)
    assert "late" in began, "and not only after the herd"


@pytest.mark.usefixtures("always_short")
async def test_those_that_wait_for_their_turn_get_it(house: House) -> None:
    release = asyncio.Event()
    begun: list[str] = []

    async def work(ctx: Context) -> None:
        begun.append(ctx.execution_id)
        await release.wait()

    house.registry.add(work, "work")
    await house.create(overlap="queue_all")
    async with house.working():
        keys = [await house.trigger() for _ in range(3)]
        await until(lambda: len(begun) == 1)
        far_behind = time.monotonic() + 2 * FAR.total_seconds()
        await until(lambda: time.monotonic() > far_behind, within=30)
        release.set()
        for key in keys:
            await house.until_state(key, State.SUCCEEDED)
    assert begun == list(map(str, keys))


@pytest.mark.usefixtures("always_short")
@pytest.mark.parametrize("group", [None, {"key": "db", "limit": 5}], ids=["by itself", "at a gate"])
@pytest.mark.parametrize("behind", [timedelta(), timedelta(hours=1)], ids=["in time", "behind"])
async def test_what_overlaps_is_skipped(
    house: House, group: dict[str, Any] | None, behind: timedelta
) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def work(ctx: Context) -> None:
        began.set()
        await release.wait()

    house.registry.add(work, "work")
    job = await house.create(schedule={"every": "1s"}, overlap="skip", group=group)

    async def skipped() -> bool:
        return any(each.state is State.SKIPPED for each in await house.history(job))

    async with house.working():
        await began.wait()
        await house.database.execute(
            "update executions set ready_at = ready_at - $1::interval where state = 'pending'", behind
        )
        await until_async(skipped)
        release.set()
