"""The sentinel by its parts: how it judges, when it tells, that it delivers, and that it only reads."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from cronwell import errors
from cronwell.config import DatabaseSettings, Settings
from cronwell.runtime.service import run_services
from cronwell.sentinel.incidents import Incidents, Notice
from cronwell.sentinel.judging import Level, Limits, Problem, Reading, Verdict, Waiting, in_words, judge
from cronwell.sentinel.lines import Line, Lines
from cronwell.sentinel.paging import Pager
from cronwell.sentinel.watching import Eye, Watch, look_once
from cronwell.store.port import Claimed
from tests.support.house import House
from tests.support.pages import paging_desk
from tests.support.waiting import until

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LIMITS = Limits(
    warn_at=45 * SECOND,
    page_at=30 * SECOND,
    unmarked=30 * SECOND,
    overdue=30 * SECOND,
    unanswered=15 * SECOND,
)
FINE = Reading(NOON, NOON + 59 * SECOND, (), schedulers=2, workers=3, overdue=())
EVERYTHING = {"watermark", "shards", "overdue", "workers", "schedulers"}


def _levels(verdict: Verdict) -> dict[str, Level]:
    return {each.kind: each.level for each in verdict.problems}


def _judged(reading: Reading | None, silence: timedelta = timedelta()) -> dict[str, Level]:
    return _levels(judge(reading, silence, "refused", LIMITS))


def test_nothing_is_said_while_all_is_well() -> None:
    assert judge(FINE, timedelta(), "", LIMITS) == Verdict(())
    assert "59 s from now; 2 schedulers, 3 workers, nothing overdue" in in_words(FINE)


@pytest.mark.parametrize(
    ("ahead", "level"),
    [
        (45, None),
        (44.9, Level.WARNING),
        (30, Level.WARNING),
        (29.9, Level.CRITICAL),
        (0, Level.CRITICAL),
        (-60, Level.CRITICAL),
    ],
)
def test_a_watermark_that_is_used_up_warns_and_then_pages(ahead: float, level: Level | None) -> None:
    reading = dataclasses.replace(FINE, watermark=NOON + timedelta(seconds=ahead))
    assert _judged(reading).get("watermark") == level


def test_what_is_wrong_is_told_apart() -> None:
    assert _judged(dataclasses.replace(FINE, unmarked=(3,))) == {"shards": Level.CRITICAL}
    assert _judged(dataclasses.replace(FINE, workers=0)) == {"workers": Level.CRITICAL}
    assert _judged(dataclasses.replace(FINE, schedulers=0)) == {"schedulers": Level.WARNING}
    late = (Waiting("a", 2, NOON - 40 * SECOND), Waiting("b", 1, NOON - 90 * SECOND))
    [problem] = judge(dataclasses.replace(FINE, overdue=late), timedelta(), "", LIMITS).problems
    assert problem.words == "3 executions are overdue, the oldest for 90 s in the pool 'b'"
    many = judge(dataclasses.replace(FINE, unmarked=tuple(range(64))), timedelta(), "", LIMITS)
    assert "shards 0, 1, 2, 3, 4, 5, 6, 7 and 56 more for 30 s" in many.problems[0].words


def test_a_silent_database_warns_and_then_pages() -> None:
    assert _judged(None, 14 * SECOND) == {"database": Level.WARNING}
    assert _judged(None, 15 * SECOND) == {"database": Level.CRITICAL}
    verdict = judge(None, 15 * SECOND, "connection refused", LIMITS)
    assert "does not answer: connection refused" in verdict.problems[0].words
    assert verdict.unknown == EVERYTHING


def test_a_watermark_is_used_up_also_while_the_database_is_silent() -> None:
    verdict = judge(FINE, 20 * SECOND, "", LIMITS)
    assert _levels(verdict) == {"database": Level.CRITICAL, "watermark": Level.WARNING}
    verdict = judge(FINE, 40 * SECOND, "", LIMITS)
    assert _levels(verdict) == {"database": Level.CRITICAL, "watermark": Level.CRITICAL}
    assert verdict.unknown == EVERYTHING - {"watermark"}


class _Told:
    def __init__(self, *, patience: timedelta = timedelta(), repeat: timedelta = timedelta(hours=1)) -> None:
        self.notices: list[Notice] = []
        self.incidents = Incidents(patience=patience, repeat=repeat, tell=self.notices.append)

    def look(
        self, at: float, *kinds: str, level: Level = Level.CRITICAL, unknown: Sequence[str] = ()
    ) -> list[str]:
        """What is told of a look that sees these."""
        before = len(self.notices)
        problems = tuple(Problem(kind, level, f"{kind} at {at}") for kind in kinds)
        self.incidents.take(Verdict(problems, frozenset(unknown)), at)
        return [f"{each.event} {each.kind}" for each in self.notices[before:]]


def test_an_incident_is_paged_once_and_resolved_once() -> None:
    told = _Told()
    looks = [told.look(n, *(["overdue"] if 1 <= n <= 3 else [])) for n in range(8)]
    assert looks == [[], ["page overdue"], [], [], [], ["resolve overdue"], [], []]
    page, resolve = told.notices
    assert page.incident == resolve.incident
    assert resolve.lasted == timedelta(seconds=4)
    assert told.look(9, "overdue") == ["page overdue"]
    assert told.notices[-1].incident != page.incident, "another one"


def test_a_moment_of_calm_is_not_the_end() -> None:
    told = _Told()
    assert told.look(0, "overdue") == ["page overdue"]
    assert [told.look(n, *(["overdue"] if n % 2 else [])) for n in range(1, 6)] == [[]] * 5


def test_a_warning_pages_nobody_and_one_that_it_becomes_is_over() -> None:
    told = _Told()
    assert told.look(0, "watermark", level=Level.WARNING) == []
    assert told.look(1, "watermark") == ["page watermark"]
    told.look(2, "watermark", level=Level.WARNING)
    assert told.look(3, "watermark", level=Level.WARNING) == ["resolve watermark"]


def test_what_lasts_is_told_again() -> None:
    told = _Told(repeat=timedelta(seconds=10))
    assert told.look(0, "overdue") == ["page overdue"]
    assert told.look(9, "overdue") == []
    assert told.look(10, "overdue") == ["repeat overdue"]
    assert told.notices[-1].words == "overdue at 10"
    assert told.look(19, "overdue") == []
    assert told.look(20, "overdue") == ["repeat overdue"]


def test_a_restart_is_waited_for() -> None:
    told = _Told(patience=timedelta(seconds=10))
    assert [told.look(n, "workers") for n in (0, 5, 9)] == [[]] * 3
    assert told.look(9.5) == []
    assert told.look(10, "workers") == [], "counted anew"
    assert told.look(20, "workers") == ["page workers"]


def test_what_cannot_be_seen_is_neither_begun_nor_over() -> None:
    told = _Told(patience=timedelta(seconds=10))
    told.look(0, "workers")
    told.look(10, "workers")
    assert [told.look(n, unknown=["workers"]) for n in (11, 12, 13, 14)] == [[]] * 4
    assert [told.look(15), told.look(16)] == [[], ["resolve workers"]]


async def test_a_notice_is_posted_until_it_arrives_and_in_order() -> None:
    with paging_desk() as desk:
        desk.refusals = 2
        pager, stop = Pager(desk.url), asyncio.Event()
        running = asyncio.create_task(run_services([pager], stop=stop))
        for event in ("page", "resolve"):
            pager.tell(Notice(event, "1", "overdue", "words", SECOND))
        await until(lambda: len(desk.notices) == 2, within=15)
        stop.set()
        await running
    assert [each["event"] for each in desk.notices] == ["page", "resolve"]
    assert desk.notices[0].items() >= {"kind": "overdue", "summary": "words", "severity": "critical"}.items()


@pytest.mark.parametrize("url", ["ftp://x/y", "not an address", "http://", "file:///etc/passwd"])
def test_a_webhook_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(errors.ConfigError, match="is not an address to post to"):
        Pager(url)


def _settings(url: str) -> Settings:
    return Settings(database=DatabaseSettings(url=url))


async def test_the_sentinel_reads_how_things_stand(house: House) -> None:
    now = house.clock.now()
    held = house.every_shard
    await held.enter(house.store, now)
    await house.store.mark_shards(held.member, dict(list(held.epochs.items())[:60]), now + 60 * SECOND, now)
    await house.enter()
    await house.create("late", pool="a")
    await house.create("blocked")
    for name in ("late", "blocked"):
        await house.trigger(name)
    await house.database.execute(
        "insert into executions (tenant_id, job_id, kind, slot, ready_at, state, revision, priority, running_limit, pool)"
        " select tenant_id, job_id, kind, slot + interval '1 ms', ready_at, state, revision, priority, 1, pool"
        " from executions where pool = 'default'"
    )
    await house.database.execute("update executions set running_limit = 1")
    await house.database.execute("update executions set ready_at = now() - interval '1 hour'")
    eye = Eye(_settings(house.url), LIMITS)
    reading = await eye.look()
    assert abs(reading.now - house.clock.now()) < SECOND
    assert reading.watermark == now + 60 * SECOND
    assert reading.unmarked == (60, 61, 62, 63)
    assert (reading.workers, reading.schedulers) == (1, 0)
    assert {each.pool: each.count for each in reading.overdue} == {"a": 1, "default": 1}, (
        "the second of one job waits for the first"
    )
    await eye.close()


async def test_what_waits_before_a_gate_that_lets_nobody_through_is_overdue(house: House) -> None:
    await house.create("full", group={"key": "warehouse", "limit": 1})
    for _ in range(3):
        await house.trigger("full", overlap="allow")
    await house.database.execute("update executions set ready_at = now() - interval '1 hour'")
    # So short that it has always passed between two looks.
    eye = Eye(_settings(house.url), dataclasses.replace(LIMITS, overdue=timedelta(microseconds=1)))

    async def overdue() -> list[int]:
        return [each.count for each in (await eye.look()).overdue]

    assert await overdue() == [], "one look does not tell"
    assert await overdue() == [1], "the first in line"
    worker = await house.enter()
    [line] = await house.store.waiting_lines(["default"], house.clock.now())
    claims: list[Claimed] = []
    for _ in range(2):  # at first there is no gate to lock
        found, _ = await house.store.claim_gated(
            worker.id, [line], places=9, shares={}, ready_by=house.clock.now(), now=house.clock.now()
        )
        claims += found
    assert len(claims) == 1
    assert [await overdue(), await overdue()] == [[], []], "the gate is full"
    await house.database.execute("update executions set fence = fence + 1 where state = 'running'")
    assert [await overdue(), await overdue()] == [[], [1]], (
        "who went through does not run by that claim any more"
    )
    await house.database.execute(
        "insert into gates (tenant_id, gate, minute, used) select tenant_id, '', date_trunc('minute', now()) + interval"
        " '1 minute', 5 from executions limit 1"
    )
    await house.database.execute("update tenants set max_per_minute = 5")
    assert await overdue() == [], "nor while the minute's quota is used up"
    await eye.close()


def test_a_line_that_moves_is_not_overdue() -> None:
    lines = Lines(10 * SECOND)
    first, second = (Line("a", 1, "g", UUID(int=n), NOON, NOON) for n in (1, 2))
    assert [lines.take([first], NOON + n * SECOND) for n in (0, 5, 9)] == [()] * 3
    assert lines.take([first, second], NOON + 10 * SECOND) == (Waiting("a", 1, NOON),)
    assert lines.take([second], NOON + 19 * SECOND) == ()
    assert lines.take([], NOON + 20 * SECOND) == (), "no room for a moment"
    assert [lines.take([second], NOON + n * SECOND) for n in (21, 30)] == [()] * 2, "counted anew"


async def test_what_is_staged_ahead_is_not_overdue(house: House) -> None:
    await house.create("ticks", schedule="* * * * * *")
    eye = Eye(_settings(house.url), dataclasses.replace(LIMITS, overdue=5 * SECOND))
    assert (await eye.look()).overdue == ()
    await eye.close()


async def test_the_sentinels_connection_cannot_write(house: House) -> None:
    eye = Eye(_settings(house.url), LIMITS)
    await eye.look()
    assert eye._connection is not None
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await eye._connection.execute("delete from workers")
    await eye.close()


async def test_one_look_says_a_line_for_each_thing_and_ends_with_how_bad_it_is(
    house: House, tmp_path: Path
) -> None:
    watch = Watch(LIMITS, every=SECOND, patience=SECOND, repeat=SECOND)

    async def look(settings: Settings) -> tuple[Level, list[str]]:
        said: list[str] = []
        return await asyncio.to_thread(look_once, settings, watch, said.append), said

    level, said = await look(_settings(house.url))
    assert level == 2
    assert said[0].startswith("CRITICAL: ")
    assert said[-1].startswith("WARNING: no scheduler lives")
    now = house.clock.now()
    held = house.every_shard
    await held.enter(house.store, now)
    await house.store.mark_shards(held.member, held.epochs, now + 60 * SECOND, now)
    await house.enter()
    level, said = await look(_settings(house.url))
    assert (level, said) == (1, ["WARNING: no scheduler lives: nothing more is staged"])
    await house.database.execute(
        "insert into nodes (id, role, name, version, started_at, seen_at)"
        " values (gen_random_uuid(), 'scheduler', 'x', '0', now(), now())"
    )
    level, said = await look(_settings(house.url))
    assert (level, len(said), said[0].startswith("OK: slots are accounted for up to ")) == (0, 1, True)
    level, said = await look(Settings(data_dir=tmp_path))
    assert (level, "no PostgreSQL runs in" in said[0]) == (2, True)
    level, said = await look(_settings("postgresql://127.0.0.1:1/none"))
    assert (level, said[0].startswith("CRITICAL: the database does not answer")) == (2, True)
