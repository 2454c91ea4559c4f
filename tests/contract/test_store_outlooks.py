"""What a store tells of many jobs at once: for a forecast, for a reconciliation, and when rules of zones change."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from cronwell.model.planning import SkippedRange
from cronwell.model.shards import SHARDS, shard_of
from cronwell.store.port import EVER, Cursor, Herd, Revision, Store
from tests.contract.desk import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    OTHER_TENANT,
    PLAN,
    TENANT,
    Desk,
    cursor_of,
    move,
    new_job,
)

FIRST, LAST = UUID(int=0), UUID(int=(1 << 128) - 1)
ALL = ((TENANT, FIRST), (TENANT, LAST))


async def _marked(desk: Desk, cursor: Cursor, tzdata: str) -> int:
    async with desk.store.transaction() as transaction:
        return await transaction.mark_tzdata([cursor], tzdata)


class TestHerds:
    async def test_jobs_that_share_a_plan_are_counted_together(self, desk: Desk, store: Store) -> None:
        for _ in range(3):
            await desk.job()
        await desk.job(plan=PLAN, runs_left=4)
        await desk.job(plan=None, next_slot=None)
        await desk.job(next_slot=None)
        await desk.job(tenant_id=OTHER_TENANT)
        herds, share = await store.herds(TENANT, 100)
        assert (sorted(herds, key=lambda herd: herd.jobs), share) == (
            [Herd(PLAN, 4, 1), Herd(PLAN, None, 3)],
            1.0,
        )

    async def test_of_more_jobs_than_asked_for_a_share_is_looked_at(self, desk: Desk, store: Store) -> None:
        async with store.transaction() as transaction:
            await transaction.insert_jobs([new_job() for _ in range(1000)], NOON)
        herds, share = await store.herds(TENANT, 999)
        assert share == 1.0 or sum(herd.jobs for herd in herds) < 1000, "a share, or all of a small table"
        herds, share = await store.herds(TENANT, 100)
        assert 0 < share < 1


class TestAccountable:
    async def _jobs(self, store: Store, since: datetime = NOON, before: datetime = NOON + HOUR) -> set[UUID]:
        found = await store.accountable_jobs(TENANT, since, before, shard=None, after=None, limit=100)
        return {each.job_id for each in found}

    async def test_jobs_come_by_id_and_shard_in_pages(self, desk: Desk, store: Store) -> None:
        made = sorted([(await desk.job()).id for _ in range(30)])
        pages = []
        after = None
        while True:
            page = await store.accountable_jobs(TENANT, NOON, NOON + HOUR, shard=None, after=after, limit=8)
            pages += [each.job_id for each in page]
            if len(page) < 8:
                break
            after = page[-1].job_id
        assert pages == made
        for shard in range(SHARDS):
            found = await store.accountable_jobs(
                TENANT, NOON, NOON + HOUR, shard=shard, after=None, limit=100
            )
            assert [each.job_id for each in found] == [each for each in made if shard_of(each) == shard]

    async def test_a_job_answers_for_the_time_in_which_it_existed(self, desk: Desk, store: Store) -> None:
        job = await desk.job()
        other = await desk.job(tenant_id=OTHER_TENANT)
        assert await self._jobs(store, NOON - 3 * DAY, NOON - 2 * DAY) == set(), (
            "it was made a day before noon"
        )
        async with store.transaction() as transaction:
            await transaction.keep_revision(TENANT, job.id, NOON)
            await transaction.set_job_state(TENANT, job.id, "deleted", NOON)
            await transaction.drop_cursor(TENANT, job.id)
        assert await self._jobs(store, NOON - HOUR, NOON) == {job.id}
        assert await self._jobs(store, NOON + MINUTE, NOON + HOUR) == set()
        assert other.id != job.id

    async def test_every_definition_that_held_is_told_with_its_time(self, desk: Desk, store: Store) -> None:
        job = await desk.job()
        async with store.transaction() as transaction:
            await transaction.keep_revision(TENANT, job.id, NOON)
            await transaction.update_job(job, "active", NOON)
        [found] = await store.accountable_jobs(
            TENANT, NOON - HOUR, NOON + HOUR, shard=None, after=None, limit=10
        )
        assert found.revisions == (Revision(1, PLAN, NOON - DAY, NOON), Revision(2, PLAN, NOON, None))
        assert (found.name, found.created_at, found.paused_at, found.is_over) == (
            job.name, NOON - DAY, None, False
        )  # fmt: skip
        [later] = await store.accountable_jobs(
            TENANT, NOON + MINUTE, NOON + HOUR, shard=None, after=None, limit=10
        )
        assert [each.revision for each in later.revisions] == [2]

    async def test_a_pause_that_lasts_and_an_end_are_told(self, desk: Desk, store: Store) -> None:
        paused, over = await desk.job(), await desk.job(next_slot=None)
        async with store.transaction() as transaction:
            await transaction.set_job_state(TENANT, paused.id, "paused", NOON, paused_at=NOON)
            await transaction.put_cursor(cursor_of(paused), None, is_held=True)
        found = {
            each.job_id: each
            for each in await store.accountable_jobs(
                TENANT, NOON, NOON + HOUR, shard=None, after=None, limit=10
            )
        }
        assert (found[paused.id].paused_at, found[paused.id].is_over) == (NOON, False)
        assert (found[over.id].paused_at, found[over.id].is_over) == (None, True)

    async def test_every_plan_of_a_definition_is_told_with_its_time(self, desk: Desk, store: Store) -> None:
        job = await desk.job(next_slot=NOON + HOUR)
        other = '{"schedule":{"cron":"5 * * * *","timezone":"UTC"}}'
        async with store.transaction() as transaction:
            await transaction.keep_plan(TENANT, job.id, NOON)
            await transaction.put_cursor(cursor_of(job, plan=other), NOON + HOUR)
            await transaction.keep_plan(TENANT, job.id, NOON + MINUTE)
        [found] = await store.accountable_jobs(
            TENANT, NOON - HOUR, NOON + HOUR, shard=None, after=None, limit=10
        )
        wanted = [
            Revision(1, PLAN, NOON - DAY, NOON),
            Revision(1, other, NOON, NOON + MINUTE),
            Revision(1, other, NOON + MINUTE, None),
        ]
        assert list(found.revisions) == wanted
        assert await store.revisions_over(TENANT, job.id, NOON - HOUR, NOON + HOUR, 10) == wanted
        assert await store.revision_at(TENANT, job.id, NOON - MINUTE) == wanted[0]
        assert await store.revision_at(TENANT, job.id, NOON) == wanted[1]
        [standing] = await store.standings([(TENANT, job.id)], NOON, DAY)
        assert standing.since == NOON + MINUTE
        assert len(await store.definitions_at([(TENANT, job.id, 1)])) == 1, "of a revision, not of a plan"
        assert await store.last_plan(TENANT, job.id) == other

    async def test_what_a_finished_job_was_is_kept(self, desk: Desk, store: Store) -> None:
        job = await desk.job(next_slot=None)
        assert await store.finish_ended(NOON, 10) == 1
        [found] = await store.accountable_jobs(
            TENANT, NOON - HOUR, NOON + HOUR, shard=None, after=None, limit=10
        )
        assert found.revisions == (Revision(1, PLAN, NOON - DAY, NOON),)
        assert (found.job_id, found.is_over) == (job.id, True)

    async def test_slots_and_ranges_are_told_by_job_and_time(self, desk: Desk, store: Store) -> None:
        one, two = await desk.job(), await desk.job()
        await desk.staged(one, NOON, NOON + MINUTE, NOON + HOUR)
        await desk.staged(two, NOON + 2 * MINUTE)
        await desk.manual(one, NOON + 5 * MINUTE)
        ranges = [SkippedRange(NOON - HOUR, NOON, "paused"), SkippedRange(NOON + HOUR, NOON + DAY, "paused")]
        async with store.transaction() as transaction:
            await transaction.record([move(two, ranges=ranges)], NOON)
        both = [one.id, two.id]
        assert await store.slots_between(TENANT, both, NOON, NOON + HOUR) == {
            one.id: [NOON, NOON + MINUTE],
            two.id: [NOON + 2 * MINUTE],
        }
        assert await store.slots_between(OTHER_TENANT, both, NOON, NOON + HOUR) == {}
        assert await store.skips_between(TENANT, both, NOON, NOON + HOUR) == {two.id: [(NOON - HOUR, NOON)]}
        assert await store.skips_between(OTHER_TENANT, both, NOON, NOON + HOUR) == {}
        assert await store.last_slots(TENANT, both) == {one.id: NOON + HOUR, two.id: NOON + 2 * MINUTE}
        assert await store.last_slots(OTHER_TENANT, both) == {}


class TestReleases:
    async def test_cursors_by_other_releases_are_found_in_windows(self, desk: Desk, store: Store) -> None:
        jobs = sorted([await desk.job() for _ in range(5)], key=lambda job: job.id)
        await desk.job(tenant_id=OTHER_TENANT)
        await desk.job(next_slot=None)
        for job, release in zip(jobs, ["a", "b", "b held", "c", "a"], strict=True):
            await _marked(desk, cursor_of(job), release)
        found = await store.stale_cursors(*ALL, ["b", "b held"])
        assert [(each.job_id, each.tzdata) for each in found] == [
            (jobs[0].id, "a"), (jobs[3].id, "c"), (jobs[4].id, "a")
        ]  # fmt: skip
        end = await store.window_end(*ALL, 3)
        assert end is not None
        assert end[0] == TENANT
        assert await store.window_end(*ALL, 100) is None
        parts = [
            *await store.stale_cursors(ALL[0], end, ["b", "b held"]),
            *await store.stale_cursors(end, ALL[1], ["b", "b held"]),
        ]
        assert parts == found

    async def test_a_cursor_that_moved_meanwhile_is_not_marked(self, desk: Desk, store: Store) -> None:
        job = await desk.job()
        assert await _marked(desk, cursor_of(job, next_slot=NOON + HOUR), "b") == 0
        assert await _marked(desk, cursor_of(job, revision=2), "b") == 0
        assert await _marked(desk, cursor_of(job), "b") == 1
        async with store.transaction() as transaction:
            [due] = await transaction.lock_due(dict.fromkeys(range(SHARDS), EVER), NOON, 64)
            assert due.tzdata == "b"
            await transaction.stage([move(job)], NOON)
        [restaged] = await store.stale_cursors(*ALL, ["b"])
        assert restaged.tzdata != "b", "what moves goes by the rules of who moved it"

    async def test_a_standing_tells_what_was_staged_around_now(self, desk: Desk, store: Store) -> None:
        job = await desk.job(next_slot=NOON + HOUR)
        await desk.staged(job, NOON - 2 * DAY, NOON - HOUR, NOON - MINUTE, NOON + MINUTE, NOON + 2 * MINUTE)
        await desk.manual(job, NOON)
        await desk.manual(job, NOON + 3 * MINUTE)
        keys = [(TENANT, job.id), (OTHER_TENANT, job.id)]
        [found] = await store.standings(keys, NOON, DAY)
        assert (found.cursor.job_id, found.cursor.next_slot, found.name) == (job.id, NOON + HOUR, job.name)
        assert (found.since, found.reached) == (NOON - DAY, NOON - MINUTE)
        assert found.ahead == (NOON + MINUTE, NOON + 2 * MINUTE)
        [earlier] = await store.standings(keys, NOON - 3 * HOUR, DAY)
        assert earlier.reached is None, "the one before lies further back than was asked for"
        async with store.transaction() as transaction:
            await transaction.lock_cursors(keys)
            assert await transaction.standings(keys, NOON, DAY) == [found]

    async def test_cursors_without_a_next_slot_have_no_standing(self, desk: Desk, store: Store) -> None:
        over = await desk.job(next_slot=None)
        waiting = await desk.job(awaits=True)
        keys = [(TENANT, over.id), (TENANT, waiting.id)]
        assert await store.standings(keys, NOON, DAY) == []
        assert await store.stale_cursors(*ALL, ["b"]) == []

    async def test_a_locked_cursor_is_passed_over_by_staging(self, desk: Desk, store: Store) -> None:
        job = await desk.job()
        async with store.transaction() as transaction:
            await transaction.lock_cursors([(TENANT, job.id)])
            async with desk.another_process().transaction() as other:
                assert await other.lock_due(dict.fromkeys(range(SHARDS), EVER), NOON, 64) == []
