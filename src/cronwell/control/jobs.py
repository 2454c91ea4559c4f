"""What a user can do with jobs, in verbs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from pydantic import BaseModel

from cronwell import errors, telemetry
from cronwell.bus.port import Bus, work_in
from cronwell.config import Settings
from cronwell.control.adding import Created, Judged, Placed, add, insert
from cronwell.control.calendars import Calendars, Known
from cronwell.control.crew import Crew
from cronwell.control.definitions import Definition, Kept, judge, payload_size, remark
from cronwell.control.drafts import (
    Turn,
    as_stored,
    check_revision,
    first_fire_at,
    merge,
    new_job,
    priority_of,
    read_id,
)
from cronwell.control.following import keep_followed, leave_dependents, relink, take_turn
from cronwell.control.gathering import Gathering, is_plain
from cronwell.control.idempotency import Answered, RequestKey, once
from cronwell.control.naming import forget_named, note_renamed
from cronwell.control.overriding import begin, begin_again
from cronwell.control.paging import read_cursor, write_cursor
from cronwell.control.scheduling import (
    FireMissed,
    put_moved,
    resumed_at,
    unstage,
    wait_until_started,
)
from cronwell.control.shapes import Shapes
from cronwell.control.views import JobDetail, JobView, Page, job_detail, job_view
from cronwell.model.access import Caller
from cronwell.model.alerts import is_own
from cronwell.model.planning import load_plan
from cronwell.runtime.clock import Clock
from cronwell.store.port import (
    Cursor,
    ExecutionFilter,
    Job,
    JobFilter,
    Move,
    Store,
    Touched,
    Transaction,
    Worker,
)

LATEST = 5
BATCH = 1000


class Jobs:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, bus: Bus, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._settings = settings
        self._calendars = Calendars(store, clock)
        self._crew = Crew(store, clock)
        self._shapes = Shapes(settings)
        self._judging = asyncio.Lock()
        self._gathering = Gathering(store, clock, settings.scheduler)

    async def close(self) -> None:
        """End what outlives the request that began it."""
        await self._gathering.close()

    async def create(self, caller: Caller, raw: Mapping[str, Any], key: RequestKey | None = None) -> Answered:
        """Add a job; its slots inside the look-ahead are staged in the same transaction."""
        workers = await self._crew.for_job(raw)
        known = await self._calendars.known(caller.tenant_id, [raw])
        if key is None:
            definition = self._judge_new(caller, raw, known, self._clock.now())
            if is_plain(definition):
                now, placed = await self._gathering.add(caller.tenant_id, definition)
                view, move = _shown(definition, placed, workers, now)
                await self._tell_of(view, move)
                return Answered(201, view.model_dump_json())
        made: list[tuple[JobView, Move | None]] = []

        async def act(transaction: Transaction) -> tuple[int, BaseModel]:
            now = self._clock.now()
            definition = self._judge_new(caller, raw, known, now)
            [placed] = await insert(
                transaction, caller.tenant_id, [definition], known, now=now, settings=self._settings.scheduler
            )
            view, move = _shown(definition, placed, workers, now)
            made.append((view, move))
            return 201, view

        answered = await once(self._store, self._clock, caller.tenant_id, key, act, is_frequent=True)
        for view, move in made:
            await self._tell_of(view, move)
        return answered

    async def create_many(self, caller: Caller, raws: Sequence[Mapping[str, Any]]) -> list[Created]:
        """Add many jobs, each on its own merit; the results come in the order of the jobs."""
        return await self.add_many(caller, await self.judge_many(caller, raws))

    async def judge_many(self, caller: Caller, raws: Sequence[Mapping[str, Any]]) -> Judged:
        """Judge many new jobs, each on its own merit, for `add_many`."""
        known = await self._calendars.known(caller.tenant_id, raws)
        results: list[Created | None] = [None] * len(raws)
        good: list[tuple[int, Definition]] = []
        # In turn: judged side by side batches would also come to the database side by side, and keep it waiting in between.
        async with self._judging:
            now, turn = self._clock.now(), Turn()
            for place, raw in enumerate(raws):
                await turn.give_way()
                try:
                    good.append((place, self._judge_new(caller, raw, known, now)))
                except errors.UserError as error:
                    results[place] = Created(error=error)
        return Judged(good, results, known)

    async def add_many(self, caller: Caller, judged: Judged) -> list[Created]:
        """Add the jobs that were found good; the results of all come in the order of the jobs."""
        results = list(judged.results)
        for start in range(0, len(judged.good), BATCH):
            chunk = judged.good[start : start + BATCH]
            _, made = await add(
                self._store.transaction,
                self._clock,
                self._settings.scheduler,
                caller.tenant_id,
                [definition for _, definition in chunk],
                judged.known,
            )
            moves: list[Move | None] = []
            for (place, definition), created in zip(chunk, made, strict=True):
                if isinstance(created, errors.UserError):
                    results[place] = Created(error=created)
                else:
                    job, move = created
                    results[place] = Created(job.id, job.name, first_fire_at(job, definition.plan, move))
                    moves.append(move)
            await self._announce(moves)
        return [result for result in results if result is not None]

    async def get(self, tenant_id: int, reference: str) -> JobDetail:
        """One job with its latest executions."""
        job = await self.find(tenant_id, reference)
        latest = await self._store.list_executions(
            tenant_id, ExecutionFilter(job_id=job.id, begun_by=self._clock.now()), None, LATEST
        )
        return job_detail(job, latest)

    async def page(
        self, tenant_id: int, where: JobFilter, *, cursor: str | None, limit: int
    ) -> Page[JobView]:
        """Jobs by name."""
        place = read_cursor(cursor, 2)
        try:
            after = None if place is None else (place[0], UUID(place[1]))
        except ValueError:
            raise errors.Invalid.field("cursor", "is not a cursor of this list") from None
        jobs = await self._store.list_jobs(tenant_id, where, after, limit + 1, self._clock.now())
        page, more = jobs[:limit], len(jobs) > limit
        following = write_cursor(page[-1].name, str(page[-1].id)) if more else None
        return Page(items=[job_view(job) for job in page], next_cursor=following)

    async def replace(
        self, caller: Caller, reference: str, raw: Mapping[str, Any], *, revision: int | None
    ) -> JobView:
        """Give a job a new definition."""
        return await self._edit(caller, reference, lambda _: dict(raw), revision)

    async def patch(
        self, caller: Caller, reference: str, changes: Mapping[str, Any], *, revision: int | None
    ) -> JobView:
        """Merge changes into a job's definition (RFC 7396): null removes a field."""
        return await self._edit(caller, reference, lambda raw: merge(raw, changes), revision)

    async def pause(
        self, tenant_id: int, reference: str, *, note: str | None = None, until: datetime | None = None
    ) -> JobView:
        """Stop a job's slots until it is resumed; nothing starts after the answer."""
        now = self._clock.now()
        if until is not None and until <= now:
            raise errors.Invalid.field("until", f"lies in the past (now is {now.isoformat()})")
        job = await self.find(tenant_id, reference)
        async with self._store.transaction() as transaction:
            locked = await self._locked(transaction, job)
            if locked.state == "finished":
                raise errors.IllegalState(f"job {locked.name!r} is finished: it has no further slot to pause")
            touched: list[Touched] = []
            runs_left = locked.runs_left
            if locked.state == "active":
                runs_left, touched = await self._withhold(transaction, locked, "paused", now)
            await transaction.set_job_state(
                tenant_id, locked.id, "paused", now, note=note, paused_at=locked.paused_at or now, until=until
            )
            if locked.plan is not None:
                held = Cursor(tenant_id, locked.id, locked.revision, now, locked.plan, runs_left)
                await transaction.put_cursor(held, None, is_held=True)
        telemetry.job_changed("paused", job=str(locked.id), name=locked.name, note=note)
        await wait_until_started(touched, self._clock)
        return await self._view(tenant_id, locked.id)

    async def resume(self, tenant_id: int, reference: str, *, fire_missed: FireMissed = "none") -> JobView:
        """Let a paused job go on with its next slot. What it missed is skipped, unless asked for."""
        job = await self.find(tenant_id, reference)
        async with self._store.transaction() as transaction:
            locked = await self._locked(transaction, job)
            if locked.state != "paused":
                raise errors.IllegalState(f"job {locked.name!r} is {locked.state}, not paused")
            now = self._clock.now()
            await transaction.set_job_state(tenant_id, locked.id, "active", now)
            move = None
            if locked.plan is not None:
                move = await begin_again(
                    transaction,
                    locked,
                    locked.plan,
                    now=resumed_at(locked, now, self._settings.scheduler.late_grace),
                    settings=self._settings.scheduler,
                    fire_missed=fire_missed,
                )
                await put_moved(transaction, move, now)
        telemetry.job_changed("resumed", job=str(locked.id), name=locked.name)
        await self._announce([move])
        return await self._view(tenant_id, locked.id)

    async def delete(
        self, tenant_id: int, reference: str, *, revision: int | None = None, is_forced: bool = False
    ) -> None:
        """Stop a job for good; its history stays until retention takes it. One that others follow must be forced."""
        job = await self.find(tenant_id, reference)
        now = self._clock.now()
        async with self._store.transaction() as transaction:
            locked = await self._locked(transaction, job)
            check_revision(locked, revision)
            await leave_dependents(transaction, locked, is_forced=is_forced)
            _, touched = await self._withhold(transaction, locked, "deleted", now)
            await transaction.keep_revision(tenant_id, locked.id, now)
            await transaction.set_job_state(tenant_id, locked.id, "deleted", now)
            await transaction.count_jobs(tenant_id, -1)
            await transaction.drop_cursor(tenant_id, locked.id)
            await transaction.note_uses(tenant_id, [locked.id], [])
            await forget_named(transaction, tenant_id, locked.id, locked.spec)
        telemetry.job_changed("deleted", job=str(locked.id), name=locked.name)
        await wait_until_started(touched, self._clock)

    async def find(self, tenant_id: int, reference: str) -> Job:
        """A job by its id or by `name:<name>`; raises NotFound."""
        job_id: UUID | None
        if reference.startswith("name:"):
            job_id = await self._store.find_job(tenant_id, reference.removeprefix("name:"))
        else:
            job_id = read_id(reference)
        job = None
        if job_id is not None:
            job = await self._store.get_job(tenant_id, job_id, self._clock.now())
        if job is None or is_own(job.name):
            raise errors.NotFound(
                f"there is no job {reference!r}; use its id, or name:<name> for the job of that name"
            )
        return job

    def _judge_new(self, caller: Caller, raw: Mapping[str, Any], known: Known, now: datetime) -> Definition:
        """What the caller wants a new job to be; raises where it may not be that, or not by this caller."""
        return _allowed(caller, self._shapes.judge(raw, now=now, calendars=known.calendars))

    async def _view(self, tenant_id: int, job_id: UUID) -> JobView:
        job = await self._store.get_job(tenant_id, job_id, self._clock.now())
        assert job is not None
        return job_view(job)

    async def _locked(self, transaction: Transaction, job: Job) -> Job:
        locked = await transaction.lock_job(job.tenant_id, job.id)
        if locked is None or locked.state == "deleted":
            raise errors.NotFound(f"job {job.name!r} is deleted")
        return locked

    async def _edit(self, caller: Caller, reference: str, change: Any, revision: int | None) -> JobView:
        tenant_id = caller.tenant_id
        job = await self.find(tenant_id, reference)
        wanted = change(orjson.loads(job.spec))
        known = await self._calendars.known(tenant_id, [wanted])
        workers = await self._crew.for_job(wanted)
        async with self._store.transaction() as transaction:
            await take_turn(transaction, job, wanted)
            locked = await self._locked(transaction, job)
            check_revision(locked, revision)
            now = self._clock.now()
            raw = orjson.loads(locked.spec)
            kept = Kept(raw, None if locked.plan is None else load_plan(locked.plan).schedule)
            caller.check_target(locked.target_kind)
            definition = _allowed(
                caller,
                judge(change(raw), now=now, settings=self._settings, kept=kept, calendars=known.calendars),
            )
            await note_renamed(transaction, tenant_id, locked.id, definition, locked.spec)
            definition = await keep_followed(transaction, locked, definition)
            runs_left = await unstage(transaction, locked, now=now, settings=self._settings.scheduler)
            await transaction.keep_revision(tenant_id, locked.id, now)
            if definition.plan is None or kept.schedule != definition.plan.schedule:
                runs_left = None if definition.plan is None else definition.plan.schedule.max_runs
            touched, move = await self._apply(transaction, locked, definition, now, runs_left)
            await relink(transaction, locked, definition)
            schedule = None if definition.plan is None else definition.plan.schedule
            if schedule != kept.schedule:
                followed = [] if schedule is None else known.uses(locked.id, schedule)
                await transaction.note_uses(tenant_id, [locked.id], followed)
        telemetry.job_changed("edited", job=str(locked.id), name=definition.spec.name)
        await self._announce([move])
        await wait_until_started(touched, self._clock)
        view = await self._view(tenant_id, locked.id)
        return remark(definition, workers, now=now).added_to(view)

    async def _apply(
        self,
        transaction: Transaction,
        job: Job,
        definition: Definition,
        now: datetime,
        runs_left: int | None,
    ) -> tuple[list[Touched], Move | None]:
        """Write the new definition, its cursor and its staged slots."""
        new = new_job(job.tenant_id, job.id, definition, None, now)
        is_paused = job.state == "paused"
        was_finished = job.state == "finished" and definition.plan is None and definition.spec.after is None
        state = "paused" if is_paused else "finished" if was_finished else "active"
        revision = await transaction.update_job(new, state, now)
        plan = definition.plan
        move = None
        if plan is None:
            await transaction.drop_cursor(job.tenant_id, job.id)
        else:
            cursor = Cursor(job.tenant_id, job.id, revision, now, plan.canonical(), runs_left)
            if is_paused:
                await transaction.put_cursor(cursor, None, is_held=True)
            else:
                move = await begin(transaction, cursor, now=now, settings=self._settings.scheduler)
                await put_moved(transaction, move, now)
        priority = plan.priority if plan is not None else priority_of(definition)
        touched = await transaction.rebase_open(new, revision, priority, definition.spec.group_limit)
        return touched, move

    async def _withhold(
        self, transaction: Transaction, job: Job, reason: str, now: datetime
    ) -> tuple[int | None, list[Touched]]:
        """Keep what is staged from starting: how many runs are left, and what was reached."""
        runs_left = await unstage(transaction, job, now=now, settings=self._settings.scheduler)
        return runs_left, await transaction.withhold_due(job.tenant_id, job.id, now, reason)

    async def _tell_of(self, view: JobView, move: Move | None) -> None:
        telemetry.job_changed("created", job=str(view.id), name=view.name)
        await self._announce([move])

    async def _announce(self, moves: Iterable[Move | None]) -> None:
        """Tell workers of slots that are due before they would look by themselves."""
        soon = self._clock.now() + self._settings.worker.pre_claim + timedelta(seconds=1)
        topics = {
            work_in(move.pool)
            for move in moves
            if move is not None and any(each.ready_at <= soon for each in move.planned)
        }
        if topics:
            await self._bus.publish(topics)


def _allowed(caller: Caller, definition: Definition) -> Definition:
    """The definition, where this caller may have it; raises where not."""
    caller.check_target(definition.spec.target.kind)
    if caller.quotas.payload_bytes is not None:
        caller.quotas.check_payload(payload_size(definition.spec.payload))
    return definition


def _shown(
    definition: Definition, placed: Placed, workers: Sequence[Worker], now: datetime
) -> tuple[JobView, Move | None]:
    """What is told of a job that was added; raises where it was not."""
    if isinstance(placed, errors.UserError):
        raise placed
    job, move = placed
    return job_view(as_stored(job, move, now), remark(definition, workers, now=now)), move
