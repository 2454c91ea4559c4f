-- name: any_to_judge
-- Whether there is anything to judge: asked several times a second, and mostly there is not.
select
    exists (
        select from executions
        where is_followed
            and state in ('succeeded', 'failed', 'cancelled', 'skipped')
    )
    or exists (select from waiting_slots where look_at <= $1)

-- name: unfollowed
-- Jobs that others follow and whose plan does not say so, as an edit by the release before leaves it.
select d.tenant_id, d.upstream_id
from (select distinct tenant_id, upstream_id from dependencies) as d
join lateral (
    select plan
    from cursors
    where cursors.tenant_id = d.tenant_id
        and cursors.job_id = d.upstream_id
    limit 1
) as c on true
where c.plan not like '%"followed":true%'
limit $1

-- name: try_chaining
-- Whether this transaction may judge dependents: one does at a time.
select pg_try_advisory_xact_lock(hashtext('cronwell.chaining'))

-- name: await_chaining
-- No dependent is judged until the transaction ends.
select pg_advisory_xact_lock(hashtext('cronwell.chaining'))

-- name: lock_followed
-- Executions that have ended and whose dependents have not been judged since; they are locked.
select tenant_id, job_id, kind, slot
from executions
where is_followed
    and state in ('succeeded', 'failed', 'cancelled', 'skipped')
order by slot
limit $1
for update skip locked

-- name: waiting_due
-- Slots of dependents that are to be looked at again.
select tenant_id, job_id, slot
from waiting_slots
where look_at <= $1
order by look_at
limit $2

-- name: dependents_of
-- The jobs that follow some jobs.
select d.tenant_id, d.upstream_id, d.dependent_id
from unnest($1::integer[], $2::uuid[]) as wanted (tenant_id, upstream_id)
join dependencies as d
    on d.tenant_id = wanted.tenant_id
    and d.upstream_id = wanted.upstream_id

-- name: upstreams_of
-- What some jobs follow.
select d.tenant_id, d.dependent_id, d.upstream_id, d.place, d.condition
from unnest($1::integer[], $2::uuid[]) as wanted (tenant_id, dependent_id)
join dependencies as d
    on d.tenant_id = wanted.tenant_id
    and d.dependent_id = wanted.dependent_id
order by d.dependent_id, d.place

-- name: share_dependents
-- What dependents are now; they are not paused, edited or deleted until the transaction ends. In order, as whoever locks
-- several jobs does.
select j.tenant_id, j.id, j.name, j.revision, j.state, j.spec, f.is_followed
from unnest($1::integer[], $2::uuid[]) as wanted (tenant_id, id)
join jobs as j
    on j.tenant_id = wanted.tenant_id
    and j.id = wanted.id
cross join lateral (
    select exists (
        select from dependencies as d
        where d.tenant_id = wanted.tenant_id
            and d.upstream_id = wanted.id
    ) as is_followed
) as f
order by j.id
for share of j

-- name: executions_at
-- What became of jobs at slots: an execution of each kind at the most.
select e.tenant_id, e.job_id, e.kind, e.slot, e.state, e.reason, e.finished_at, e.is_followed
from unnest($1::integer[], $2::uuid[], $3::timestamptz[]) as wanted (tenant_id, job_id, slot)
cross join lateral (
    select tenant_id, job_id, kind, slot, state, reason, finished_at, is_followed
    from executions as there
    where there.tenant_id = wanted.tenant_id
        and there.job_id = wanted.job_id
        and there.slot = wanted.slot
    offset 0
) as e

-- name: prospects_at
-- Whether jobs that have no execution at slots may still get one: their schedule has not passed it (`is_ahead`), it waits for
-- its upstreams (`is_waiting`), or the slot was skipped with others (`is_skipped`).
select
    wanted.tenant_id, wanted.job_id, wanted.slot,
    coalesce(c.next_slot <= wanted.slot and not c.awaits, false) as is_ahead,
    exists (
        select from waiting_slots as w
        where w.tenant_id = wanted.tenant_id
            and w.job_id = wanted.job_id
            and w.slot = wanted.slot
    ) as is_waiting,
    exists (
        select from skips as s
        where s.tenant_id = wanted.tenant_id
            and s.job_id = wanted.job_id
            and s.from_slot <= wanted.slot
            and s.to_slot >= wanted.slot
    ) as is_skipped
from unnest($1::integer[], $2::uuid[], $3::timestamptz[]) as wanted (tenant_id, job_id, slot)
left join lateral (
    select next_slot, awaits
    from cursors
    where cursors.tenant_id = wanted.tenant_id
        and cursors.job_id = wanted.job_id
    limit 1
) as c on true

-- name: skip_unmet
-- Dependents that do not run at slots, with the reason. They were added in this transaction, with all that they would run by: a
-- re-run of an upstream may bring them back. Their kind comes with them, here and below: a plan made for an empty day would
-- go by a kind that is written here alone.
update executions as e
set state = 'skipped', reason = u.reason, finished_at = $5
from unnest($1::integer[], $2::uuid[], $3::timestamptz[], $4::text[], $6::execution_kind[])
    as u (tenant_id, job_id, slot, reason, kind)
where e.tenant_id = u.tenant_id
    and e.job_id = u.job_id
    and e.kind = u.kind
    and e.slot = u.slot
    and e.state::text = 'pending'

-- name: revise_unmet
-- Dependents that were skipped for their upstreams' sake, and are judged otherwise now that these have ended otherwise: they
-- run, from `ready_at` on, or are skipped for another reason. The fence goes on growing.
update executions as e
set state = case when r.ready_at is null then 'skipped' else 'pending' end::execution_state,
    reason = r.reason,
    ready_at = coalesce(r.ready_at, e.ready_at),
    revision = r.revision,
    pool = r.pool,
    gate = r.gate,
    gate_limit = r.gate_limit,
    priority = tier_of((e.priority % 3)::smallint, r.gate),
    attempt = 0,
    worker = null,
    claimed_at = null,
    started_at = null,
    finished_at = case when r.ready_at is null then $9::timestamptz end,
    cancel_requested_at = null,
    is_last_attempt = false,
    is_followed = r.is_followed
from (
    select *, coalesce(named, case when tenant_id = any(array(select limited_tenants())) then '' end) as gate
    from unnest(
        $1::integer[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::text[], $6::integer[], $7::text[], $8::boolean[],
        $10::execution_kind[], $11::text[], $12::smallint[]
    ) as given (tenant_id, job_id, slot, ready_at, reason, revision, pool, is_followed, kind, named, gate_limit)
) as r
where e.tenant_id = r.tenant_id
    and e.job_id = r.job_id
    and e.kind = r.kind
    and e.slot = r.slot
    and e.state::text = 'skipped'

-- name: outrun
-- Those of some slots that come up after later ones of their job, which have not ended. Looked up one by one, here too.
select wanted.tenant_id, wanted.job_id, wanted.slot
from unnest($1::integer[], $2::uuid[], $3::timestamptz[]) as wanted (tenant_id, job_id, slot)
cross join lateral (
    select
    from executions as newer
    where newer.job_id = wanted.job_id
        and newer.slot > wanted.slot
        and newer.running_limit is not null
        and newer.state in ('pending', 'running', 'retrying')
    limit 1
) as found

-- name: clear_followed
-- The dependents of executions have been judged.
update executions as e
set is_followed = false
from unnest($1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[]) as done (tenant_id, job_id, kind, slot)
where e.tenant_id = done.tenant_id
    and e.job_id = done.job_id
    and e.kind = done.kind
    and e.slot = done.slot

-- name: keep_waiting
-- Slots of dependents that wait go on to do so, and are looked at again.
insert into waiting_slots (tenant_id, job_id, slot, since, look_at)
select tenant_id, job_id, slot, since, look_at
from unnest($1::integer[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[])
    as waiting (tenant_id, job_id, slot, since, look_at)
on conflict (tenant_id, job_id, slot) do update
set since = least(waiting_slots.since, excluded.since), look_at = excluded.look_at

-- name: waiting_since
-- Since when those of some slots of dependents wait that do.
select w.tenant_id, w.job_id, w.slot, w.since
from unnest($1::integer[], $2::uuid[], $3::timestamptz[]) as wanted (tenant_id, job_id, slot)
join waiting_slots as w
    on w.tenant_id = wanted.tenant_id
    and w.job_id = wanted.job_id
    and w.slot = wanted.slot

-- name: end_waiting
-- Slots of dependents that have been judged wait no more.
delete from waiting_slots as w
using unnest($1::integer[], $2::uuid[], $3::timestamptz[]) as done (tenant_id, job_id, slot)
where w.tenant_id = done.tenant_id
    and w.job_id = done.job_id
    and w.slot = done.slot

-- name: tell_stuck
-- Slots that have waited since before $1 and of which nobody has been told; each is told of once.
update waiting_slots as w
set is_told = true
from jobs as j
where w.since <= $1
    and not w.is_told
    and j.tenant_id = w.tenant_id
    and j.id = w.job_id
returning w.tenant_id, w.job_id, w.slot, w.since, j.name

-- name: count_waiting
-- How many slots of dependents wait, since when the oldest does, and how many have since before $1.
select count(*) as waiting, min(since) as oldest, count(*) filter (where since <= $1) as stuck
from waiting_slots

-- name: lock_rerun
-- What became of jobs at a slot, locked: one of them is to be run again, and the others after it.
select job_id, kind, slot, state
from executions as e
where e.tenant_id = $1
    and e.job_id = any($2::uuid[])
    and e.slot = $3
order by e.job_id
for update

-- name: rerun
-- Run an execution that has ended once more, by what its job is now; not before its slot. The fence goes on growing. The
-- job is locked, and what began meanwhile is waited for, as in `revive_execution`. Of an attempt that succeeded the row itself
-- tells, until now: it is kept with those that did not.
with job as (
    select
        revision, pool,
        coalesce(spec -> 'group' ->> 'key', case when $1 = any(array(select limited_tenants())) then '' end) as gate,
        case when spec -> 'group' ->> 'key' is not null then coalesce(spec -> 'group' ->> 'limit', '1')::smallint end as gate_limit
    from jobs
    where tenant_id = $1
        and id = $2
        and state::text <> 'deleted'
    for share
),
kept as (
    insert into attempts (
        tenant_id, job_id, kind, slot, fence, attempt, result, worker, ready_at, claimed_at, started_at, finished_at,
        error_kind, error, output, output_truncated
    )
    select
        e.tenant_id, e.job_id, e.kind, e.slot, e.fence, e.attempt, 'succeeded', e.worker, e.ready_at, e.claimed_at, e.started_at,
        e.finished_at, e.error_kind, e.error, e.output, e.output_truncated
    from executions as e
    where e.tenant_id = $1
        and e.job_id = $2
        and e.kind = $3
        and e.slot = $4
        and e.state::text = 'succeeded'
        and exists (select from job)
    on conflict do nothing
)
update executions
set state = 'pending',
    attempt = 0,
    ready_at = greatest(
        $5::timestamptz + case when executions.running_limit is not null and exists (
            select from executions as newer
            where newer.job_id = $2
                and newer.slot > $4
                and newer.running_limit is not null
                and newer.state in ('pending', 'running', 'retrying')
                and (newer.attempt > 0 or newer.ready_at <= $5::timestamptz + interval '5 seconds')
        ) then interval '2 seconds' else interval '0' end,
        slot
    ),
    worker = null,
    claimed_at = null,
    started_at = null,
    finished_at = null,
    cancel_requested_at = null,
    is_last_attempt = false,
    reason = 'rerun',
    revision = job.revision,
    pool = job.pool,
    gate = job.gate,
    gate_limit = job.gate_limit,
    priority = tier_of((executions.priority % 3)::smallint, job.gate),
    is_followed = $6
from job
where executions.tenant_id = $1
    and executions.job_id = $2
    and executions.kind = $3
    and executions.slot = $4
    and executions.state::text in ('succeeded', 'failed', 'cancelled', 'skipped')
returning executions.pool

-- name: undo_dependents
-- What follows an execution that is run again will be judged anew when it has ended.
update executions
set state = 'skipped', reason = 'upstream_rerun', finished_at = $4, is_followed = false
where tenant_id = $1
    and job_id = any($2::uuid[])
    and kind = 'dependency'
    and slot = $3
    and state::text in ('succeeded', 'failed', 'cancelled', 'skipped')
