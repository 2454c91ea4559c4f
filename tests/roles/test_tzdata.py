"""When the rules of a zone change, next slots are listed, moved or held; none is lost, and none runs twice."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from cronwell.config import Settings
from cronwell.control import tzdata as verbs
from cronwell.model import zones
from cronwell.model.execution import State
from cronwell.runtime.clock import ManualClock
from tests.support import rules
from tests.support.house import SECOND, TENANT, House

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

# The same zone by three releases: an hour ahead of UTC, two hours ahead, and none.
BEFORE, EAST, WEST = "AAA-1", "AAA-2", "AAA0"
AT_SIX = {"cron": "0 18 * * *", "timezone": "Europe/Berlin"}
"""At 17:00 UTC by the first release, at 16:00 by the second, at 18:00 by the third."""


class Releases:
    """Installs one release after the other."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def install(self, release: str, rule: str) -> None:
        rules.install(self._patch, release, Europe__Berlin=rule)


@pytest.fixture
def releases() -> Iterator[Releases]:
    with pytest.MonkeyPatch.context() as patch:
        found = Releases(patch)
        found.install("2026a", BEFORE)
        yield found
    rules.forget()


@pytest.fixture(params=["apply"])
async def town(
    migrated_url: str, clock: ManualClock, releases: Releases, request: pytest.FixtureRequest
) -> AsyncIterator[House]:
    """A house whose scheduler has the setting that the test asks for; by default, `apply`."""
    settings = Settings()
    settings = dataclasses.replace(
        settings, scheduler=dataclasses.replace(settings.scheduler, tzdata=request.param)
    )
    opened = await House.open(migrated_url, settings, clock)
    yield opened
    await opened.close()


def under(setting: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("town", [setting], indirect=True)


async def _stage(house: House) -> None:
    while await house.staging().run_once():
        pass


async def _next(house: House, job: UUID) -> tuple[datetime, str]:
    row = await house.database.fetchrow("select next_slot, tzdata from cursors where job_id = $1", job)
    assert row is not None
    return row["next_slot"], row["tzdata"]


async def _run(house: House, clock: ManualClock, until: datetime, step: timedelta = 5 * MINUTE) -> None:
    while clock.now() < until:
        clock.advance(step)
        await _stage(house)


async def _slots(house: House, job: UUID, *states: State) -> list[datetime]:
    return [each.key.slot for each in await house.history(job) if not states or each.state in states]


def test_a_zone_that_is_made_up_keeps_its_rule() -> None:
    zone = rules.zone("Europe/Berlin", "AAA3BBB,M3.2.0,M11.1.0")
    assert NOON.astimezone(zone).utcoffset() == -2 * HOUR
    assert datetime(2026, 1, 5, 12, tzinfo=UTC).astimezone(zone).utcoffset() == -3 * HOUR


@pytest.mark.parametrize(("rule", "there"), [(EAST, NOON + 4 * HOUR), (WEST, NOON + 6 * HOUR)])
async def test_jobs_whose_next_slot_moves_are_listed(
    town: House, releases: Releases, rule: str, there: datetime
) -> None:
    job = await town.create("nightly", schedule=AT_SIX)
    await town.create("elsewhere", schedule={"cron": "0 18 * * *", "timezone": "Asia/Tokyo"})
    await town.create("utc", schedule="0 18 * * *")
    await town.create("bare")
    assert (await town.tzdata.impact(TENANT, cursor=None, limit=10)).stale == 0
    releases.install("2026b", rule)
    found = await town.tzdata.impact(TENANT, cursor=None, limit=10)
    assert (found.tzdata, found.setting, found.stale, found.moved) == ("2026b", "apply", 3, 1)
    [shift] = found.items
    assert (shift.job_id, shift.job, shift.timezone, shift.tzdata) == (
        job, "nightly", "Europe/Berlin", "2026a"
    )  # fmt: skip
    assert (shift.next_slot, shift.moves_to, shift.staged) == (NOON + 5 * HOUR, there, 0)
    assert shift.moves_to_local is not None
    assert shift.moves_to_local.startswith("2026-05-05T18:00:00")
    assert await _next(town, job) == (NOON + 5 * HOUR, "2026a"), "nothing was changed"


async def test_applied_slots_are_moved_and_no_longer_listed(town: House, releases: Releases) -> None:
    job = await town.create(schedule=AT_SIX)
    releases.install("2026b", EAST)
    settled = await town.tzdata.settle(TENANT, "apply")
    assert (settled.changed, settled.unchanged) == (1, 0)
    assert await _next(town, job) == (NOON + 4 * HOUR, "2026b")
    assert (await town.tzdata.impact(TENANT, cursor=None, limit=10)).stale == 0
    assert (await town.jobs.get(TENANT, str(job))).revision == 1


async def test_a_slot_that_is_staged_ahead_is_staged_anew(
    town: House, clock: ManualClock, releases: Releases
) -> None:
    job = await town.create(schedule={**AT_SIX, "max_runs": 3})
    await _run(town, clock, NOON + 5 * HOUR - 5 * MINUTE)
    clock.advance(4 * MINUTE + 30 * SECOND)
    await _stage(town)
    assert await _slots(town, job, State.PENDING) == [NOON + 5 * HOUR]
    releases.install("2026b", WEST)
    [shift] = (await town.tzdata.impact(TENANT, cursor=None, limit=10)).items
    assert (shift.next_slot, shift.moves_to, shift.staged) == (NOON + 5 * HOUR, NOON + 6 * HOUR, 1)
    await town.tzdata.settle(TENANT, "apply")
    assert await _slots(town, job) == []
    assert await _next(town, job) == (NOON + 6 * HOUR, "2026b")
    await _run(town, clock, NOON + 7 * HOUR)
    assert await _slots(town, job) == [NOON + 6 * HOUR]
    assert await town.database.fetchval("select runs_left from cursors") == 2


async def test_only_the_jobs_that_are_named_are_settled(town: House, releases: Releases) -> None:
    one, two = await town.create("one", schedule=AT_SIX), await town.create("two", schedule=AT_SIX)
    releases.install("2026b", EAST)
    settled = await town.tzdata.settle(TENANT, "apply", jobs=["name:one"])
    assert (settled.changed, settled.unchanged) == (1, 0)
    assert (await _next(town, one), await _next(town, two)) == (
        (NOON + 4 * HOUR, "2026b"),
        (NOON + 5 * HOUR, "2026a"),
    )


async def test_a_held_job_that_is_named_can_be_moved_after_all(town: House, releases: Releases) -> None:
    job = await town.create(schedule=AT_SIX)
    releases.install("2026b", EAST)
    await town.tzdata.settle(TENANT, "hold")
    assert await _next(town, job) == (NOON + 5 * HOUR, "2026b held")
    assert (await town.tzdata.impact(TENANT, cursor=None, limit=10)).moved == 0
    await town.tzdata.settle(TENANT, "apply", jobs=[str(job)])
    assert await _next(town, job) == (NOON + 4 * HOUR, "2026b")


@pytest.mark.parametrize("rule", [EAST, WEST])
async def test_a_held_slot_runs_where_it_was_told_and_once(
    town: House, clock: ManualClock, releases: Releases, rule: str
) -> None:
    job = await town.create(schedule=AT_SIX)
    releases.install("2026b", rule)
    await town.tzdata.settle(TENANT, "hold")
    await _run(town, clock, NOON + DAY + 8 * HOUR)
    tomorrow = NOON + DAY + (4 * HOUR if rule == EAST else 6 * HOUR)
    assert await _slots(town, job) == [NOON + 5 * HOUR, tomorrow]
    told = await town.explain.explain(TENANT, str(job), (tomorrow - DAY).isoformat())
    assert (told.verdict, told.reason) == ("skipped", "tzdata")
    found = await town.reconcile.reconcile(TENANT, since=NOON, before=NOON + DAY)
    assert (found.missing, [each.slot for each in found.differences]) == (0, [NOON + 5 * HOUR])


@under("hold")
async def test_a_held_slot_that_is_missed_is_judged_by_the_new_rules(
    town: House, clock: ManualClock, releases: Releases
) -> None:
    job = await town.create(schedule=AT_SIX)
    releases.install("2026b", EAST)
    assert await town.rezoning().run_once() == 1
    clock.advance(6 * HOUR)
    await _stage(town)
    [missed] = await town.history(job)
    assert (missed.key.slot, missed.reason) == (NOON + 4 * HOUR, "catch_up")
    assert await _next(town, job) == (NOON + DAY + 4 * HOUR, "2026b")


@pytest.mark.parametrize(
    ("town", "cursor", "tzdata"),
    [
        ("apply", NOON + 4 * HOUR, "2026b"),
        ("hold", NOON + 5 * HOUR, "2026b held"),
        ("ask", NOON + 5 * HOUR, "2026a"),
    ],
    indirect=["town"],
)
async def test_the_chore_does_what_the_setting_says(
    town: House, releases: Releases, cursor: datetime, tzdata: str
) -> None:
    job = await town.create("moved", schedule=AT_SIX)
    plain = await town.create("plain", schedule="every 3h")
    zoned = await town.create("zoned", schedule={"cron": "0 18 * * *", "timezone": "Asia/Tokyo"})
    releases.install("2026b", EAST)
    assert await town.rezoning().run_once() == 1
    assert await _next(town, job) == (cursor, tzdata)
    assert {(await _next(town, each))[1] for each in (plain, zoned)} == {"2026b"}


@pytest.mark.parametrize("rule", [EAST, WEST])
async def test_a_slot_that_comes_due_before_anybody_looked_is_staged_by_the_new_rules(
    town: House, clock: ManualClock, releases: Releases, rule: str
) -> None:
    job = await town.create(schedule=AT_SIX)
    clock.advance(4 * HOUR + 58 * MINUTE)
    await _stage(town)
    releases.install("2026b", rule)
    clock.advance(90 * SECOND)
    await _stage(town)
    if rule == EAST:
        [late] = await town.history(job)
        assert (late.key.slot, late.reason) == (NOON + 4 * HOUR, "catch_up"), "an hour ago, by these rules"
    else:
        assert await town.history(job) == []
        assert await _next(town, job) == (NOON + 6 * HOUR, "2026b")


@under("ask")
async def test_a_slot_about_which_nobody_decided_is_held(
    town: House, clock: ManualClock, releases: Releases
) -> None:
    job = await town.create(schedule=AT_SIX)
    releases.install("2026b", WEST)
    await town.rezoning().run_once()
    await _run(town, clock, NOON + 8 * HOUR)
    assert await _slots(town, job) == [NOON + 5 * HOUR]
    assert await _next(town, job) == (NOON + DAY + 6 * HOUR, "2026b")


async def test_an_older_scheduler_leaves_alone_what_a_newer_one_has_found(
    town: House, releases: Releases
) -> None:
    job = await town.create(schedule=AT_SIX)
    releases.install("2025z", WEST)
    assert await town.rezoning().run_once() == 0
    assert await _next(town, job) == (NOON + 5 * HOUR, "2026a")
    assert (await town.tzdata.impact(TENANT, cursor=None, limit=10)).moved == 1, "who asks is told"


async def test_an_older_scheduler_stages_what_a_newer_one_has_found_as_it_is(
    town: House, clock: ManualClock, releases: Releases
) -> None:
    job = await town.create(schedule=AT_SIX)
    releases.install("2025z", WEST)
    await _run(town, clock, NOON + 5 * HOUR)
    assert await _slots(town, job) == [NOON + 5 * HOUR]


async def test_jobs_from_before_releases_were_recorded_are_looked_at_once(
    town: House, clock: ManualClock
) -> None:
    job = await town.create(schedule={"cron": "*/20 * * * * *", "timezone": "Europe/Berlin"})
    await _run(town, clock, NOON + 10 * MINUTE)
    before = await _slots(town, job)
    await town.executions.cancel(TENANT, str((await town.history(job))[-2].key))
    await town.database.execute("update cursors set tzdata = null")
    assert (await town.tzdata.impact(TENANT, cursor=None, limit=10)).moved == 0
    assert await town.rezoning().run_once() == 0
    assert (await _next(town, job))[1] == zones.version()
    assert await _slots(town, job) == before


async def test_a_pause_and_a_resume_owe_nothing_of_before(
    town: House, clock: ManualClock, releases: Releases
) -> None:
    job = await town.create(schedule=AT_SIX)
    clock.advance(4 * HOUR + 20 * MINUTE)
    await town.jobs.pause(TENANT, str(job))
    await town.jobs.resume(TENANT, str(job))
    clock.advance(MINUTE)
    releases.install("2026b", EAST)
    await town.tzdata.settle(TENANT, "apply")
    assert await _next(town, job) == (NOON + DAY + 4 * HOUR, "2026b")
    assert await _slots(town, job) == []


async def test_a_long_list_comes_in_pages(
    town: House, releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [await town.create(f"job-{number}", schedule=AT_SIX) for number in range(7)]
    releases.install("2026b", EAST)
    monkeypatch.setattr(verbs, "WINDOW", 3)
    monkeypatch.setattr(verbs, "BATCH", 2)
    first = await town.tzdata.impact(TENANT, cursor=None, limit=5)
    rest = await town.tzdata.impact(TENANT, cursor=first.next_cursor, limit=5)
    assert (len(first.items), len(rest.items), rest.next_cursor) == (5, 2, None)
    assert {each.job_id for each in (*first.items, *rest.items)} == set(jobs)
    monkeypatch.setattr(verbs, "BUDGET", timedelta())
    parts = [await town.tzdata.settle(TENANT, "apply")]
    while parts[-1].next_cursor is not None:
        parts.append(await town.tzdata.settle(TENANT, "apply", cursor=parts[-1].next_cursor))
    assert [each.changed for each in parts] == [3, 3, 1]


async def test_a_walk_rests_where_nothing_is_to_be_done_and_hurries_where_something_is(
    town: House, releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        await town.create(f"job-{number}", schedule=AT_SIX)
    monkeypatch.setattr(verbs, "WINDOW", 3)
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    assert await town.tzdata.settle_all(rest) == 0
    assert len(rests) == 2
    assert all(0 < seconds < 60 for seconds in rests)
    rests.clear()
    releases.install("2026b", EAST)
    assert await town.tzdata.settle_all(rest) == 7
    assert rests == []


async def test_a_plan_that_cannot_be_read_does_not_keep_others_from_moving(
    town: House, releases: Releases
) -> None:
    job = await town.create("good", schedule=AT_SIX)
    await town.create("bad", schedule=AT_SIX)
    await town.database.execute(
        "update cursors set plan = '{}' where job_id = (select id from jobs where name = 'bad')"
    )
    releases.install("2026b", EAST)
    assert await town.rezoning().run_once() == 1
    assert await _next(town, job) == (NOON + 4 * HOUR, "2026b")
