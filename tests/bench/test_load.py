"""Jobs that are copied past the API are what the API would have written."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from cronwell.bench.load import Entry, Load, Mould, copy_jobs, register
from cronwell.bench.sleepers import Sleepers, Woken, name_of, sample_of, tags_of, team_of
from cronwell.config import Settings
from cronwell.control.definitions import judge
from cronwell.runtime.postgres import Database
from tests.support.house import CALLER, House

NOON = datetime(2030, 5, 5, 12, tzinfo=UTC)
_ROWS = """
select to_jsonb(j) - array['tenant_id', 'id', 'created_at', 'updated_at', 'defined_at'] as job, j.spec::text as spec,
    j.defined_at = j.created_at as is_dated, to_jsonb(c) - array['tenant_id', 'job_id', 'shard'] as cursor
from jobs as j
join cursors as c on c.job_id = j.id and c.tenant_id = j.tenant_id
where j.name = $1
"""


async def test_a_copied_job_is_the_one_that_the_api_writes(house: House) -> None:
    now = house.clock.now()
    moment = (now + timedelta(days=2)).replace(microsecond=123_000)
    copied = [
        Entry(Sleepers(now).entry(7).mould, "daily", Sleepers(now).entry(7).first, tags_of(7)),
        Entry(Mould.of({"at": "2100-12-31T23:59:59.999999Z"}, now=now), "once", moment),
    ]
    await copy_jobs(house.database, range(2), lambda number: copied[number])
    found = {name: await _row(house.database, name) for name in ("daily", "once")}
    await house.database.execute("update jobs set name = name || '-copied'")
    created = await house.jobs.create_many(CALLER, [orjson.loads(row["spec"]) for row in found.values()])
    assert [each.error for each in created] == [None, None]
    for name, row in found.items():
        assert await _row(house.database, name) == row
        assert row["is_dated"]


async def _row(database: Database, name: str) -> dict[str, Any]:
    [row] = await database.fetch(_ROWS, name)
    return dict(row)


async def test_a_load_spreads_its_first_slots(house: House) -> None:
    await register(house.database, Load(4, NOON, spread=timedelta(seconds=1), every=timedelta(seconds=1)))
    rows = await house.database.fetch("select next_slot, plan from cursors order by next_slot")
    quarter = timedelta(milliseconds=250)
    assert [row["next_slot"] for row in rows] == [NOON + n * quarter for n in range(4)]
    assert '"anchor":"2030-05-05T12:00:00.750000Z"' in rows[-1]["plan"]


@pytest.mark.parametrize("schedule", ["0 3 * * *", {"every": "90s", "anchor": "2100-12-31T23:59:59.999999Z"}])
def test_a_mould_is_filled_with_what_judging_each_job_would_give(schedule: object) -> None:
    mould = Mould.of(schedule, now=NOON, overlap="allow")
    entry = Entry(mould, "bench-1", NOON + timedelta(hours=1), '{"team":"a"}')
    raw = orjson.loads(mould.spec_of(entry))
    assert (raw["name"], raw["tags"]) == ("bench-1", {"team": "a"})
    judged = judge(raw, now=NOON, settings=Settings())
    assert judged.text == mould.spec_of(entry)
    assert judged.plan is not None
    assert judged.plan.canonical() == mould.plan_of(entry)


def test_no_sleeper_is_due_in_the_next_hours_and_they_share_few_schedules() -> None:
    entries = [Sleepers(NOON).entry(number) for number in (0, 1, 500, 1259)]
    more = Sleepers(NOON).entry(1260)
    assert min(entry.first for entry in entries) == NOON + timedelta(hours=3)
    assert max(entry.first for entry in entries) == NOON + timedelta(days=1, minutes=-1)
    assert more.mould == entries[0].mould


def test_teams_stay_as_large_when_jobs_become_more() -> None:
    numbers = range(200_000)
    sizes: dict[str, int] = {}
    for number in numbers:
        sizes[team_of(number)] = sizes.get(team_of(number), 0) + 1
    assert set(sizes.values()) == {1000}
    assert len(sizes) == 200
    assert orjson.loads(tags_of(30)) == {"team": "team-30", "environment": "test"}


async def test_woken_jobs_are_due_in_their_second_and_fire_daily(house: House) -> None:
    sleepers = Sleepers(NOON)
    await sleepers.grow(house.database, 10, lambda done, total: None)
    assert sleepers.count == 10
    jobs = [row["id"] for row in await house.database.fetch("select id from jobs order by name limit 6")]
    woken = Woken(NOON + timedelta(minutes=5, seconds=59), rate=3, seconds=2)
    await woken.wake(house.database, jobs)
    rows = await house.database.fetch(
        "select name, next_slot, plan, spec ->> 'schedule' as schedule, c.revision from jobs as j"
        " join cursors as c on c.job_id = j.id where c.next_slot < $1 order by name",
        NOON + timedelta(hours=1),
    )
    assert [row["name"] for row in rows] == [name_of(number) for number in range(6)]
    assert [row["next_slot"] for row in rows] == [woken.start] * 3 + [woken.start + timedelta(seconds=1)] * 3
    assert {row["schedule"] for row in rows} == {"59 5 12 * * *", "0 6 12 * * *"}
    assert all(row["schedule"] in row["plan"] and row["revision"] == 2 for row in rows)
    assert dataclasses.replace(woken, rate=5).count == 10


async def test_a_sample_is_of_the_jobs_with_the_numbers_asked_for(house: House) -> None:
    await Sleepers(NOON).grow(house.database, 10, lambda done, total: None)
    found = await sample_of(house.database, range(3, 7), 10)
    names = await house.database.fetch("select name from jobs where id = any($1)", found)
    assert sorted(row["name"] for row in names) == [name_of(number) for number in range(3, 7)]
    assert len(await sample_of(house.database, range(10), 2)) == 2


async def test_loads_of_two_tenants_are_theirs_and_are_called_as_they_say(house: House) -> None:
    await house.database.execute(
        "insert into tenants (id, name, signing_secret) values (2, 'other', 'whsec_other')"
    )
    await register(house.database, Load(1, NOON, name="crowd"))
    await register(house.database, Load(2, NOON, tenant_id=2))
    found = await house.database.fetch(
        "select j.tenant_id, j.name, c.next_slot from jobs as j"
        " join cursors as c on c.job_id = j.id and c.tenant_id = j.tenant_id order by 1, 2"
    )
    assert [tuple(row) for row in found] == [(1, "crowd-0", NOON), (2, "bench-0", NOON), (2, "bench-1", NOON)]
