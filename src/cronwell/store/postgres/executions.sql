-- name: claim
-- Take up to $5 executions of a pool and priority that are ready by $3, raise their fences and give them to a live
-- worker. One of a job that limits its executions is passed over while `running_limit` earlier ones are unfinished.
-- Earlier ones are looked up in the day before the slot; `stale` holds the rest, which are few, so that a claim does
-- not probe every day's partition for each candidate. It reaches to a day before $3, which no candidate's slot lies
-- behind by more than the microseconds that keep triggers apart.
with alive as (
    select id from workers where id = $4 and state = 'active' and lease_until > $6
),
stale as materialized (
    select job_id, slot
    from executions
    where slot < $3::timestamptz - interval '1 day' + interval '1 second'
        and running_limit is not null
        and state in ('pending', 'running', 'retrying')
),
due as (
    select tenant_id, job_id, kind, slot
    from executions as candidate
    where pool = $1
        and priority = $2
        and ready_at <= $3
        and state in ('pending', 'retrying')
        and (
            running_limit is null
            or running_limit > (
                select count(*)
                from executions as earlier
                where earlier.job_id = candidate.job_id
                    and earlier.slot < candidate.slot
                    and earlier.slot >= candidate.slot - interval '1 day'
                    and earlier.running_limit is not null
                    and earlier.state in ('pending', 'running', 'retrying')
            ) + (
                select count(*)
                from stale
                where stale.job_id = candidate.job_id
                    and stale.slot < candidate.slot - interval '1 day'
            )
        )
        and exists (select from alive)
    order by ready_at
    limit $5
    for update skip locked
),
-- Arrays, because the planner takes an unnest for few rows and so always goes by the primary key. Joined to `due`
-- itself it hashed the whole partition: 8 k/s against 38-54 k/s at 200,000 rows (November 2026).
keys as (
    select array_agg(tenant_id) as tenants, array_agg(job_id) as jobs, array_agg(kind) as kinds, array_agg(slot) as slots
    from due
)
update executions
set state = 'running',
    fence = executions.fence + 1,
    attempt = executions.attempt + 1,
    worker = $4,
    claimed_at = $6,
    started_at = null
from keys
cross join lateral unnest(keys.tenants, keys.jobs, keys.kinds, keys.slots) as due (tenant_id, job_id, kind, slot)
where executions.tenant_id = due.tenant_id
    and executions.job_id = due.job_id
    and executions.kind = due.kind
    and executions.slot = due.slot
returning
    executions.tenant_id, executions.job_id, executions.kind, executions.slot, executions.ready_at,
    executions.attempt, executions.fence, executions.revision, executions.priority, executions.payload

-- name: complete
-- Record how attempts ended, where the fence is still the one that was claimed. What did not succeed leaves a row in
-- attempts. A retry is not taken up after a cancel, nor after a pause or delete that made this attempt the last.
-- The state is compared as text, here and below, so that the planner cannot see that the index of running executions
-- would do: a plan made while nothing ran went through all that runs for each result, and with 10,000 running a batch
-- of 1,000 took 6 s against 80 ms (November 2026).
with results as (
    select *
    from unnest(
        $1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[], $5::bigint[], $6::execution_state[],
        $7::attempt_result[], $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::text[], $12::text[],
        $13::text[], $14::boolean[]
    ) with ordinality as r (
        tenant_id, job_id, kind, slot, fence, state, result, started_at, finished_at, ready_at, error_kind, error,
        output, output_truncated, place
    )
),
failed as (
    insert into attempts (
        tenant_id, job_id, kind, slot, fence, attempt, result, worker, ready_at, claimed_at, started_at, finished_at,
        error_kind, error, output, output_truncated
    )
    select
        e.tenant_id, e.job_id, e.kind, e.slot, r.fence, e.attempt, r.result, e.worker, e.ready_at, e.claimed_at,
        coalesce(r.started_at, e.started_at), r.finished_at, r.error_kind, r.error, r.output, r.output_truncated
    from results as r
    join executions as e
        on e.tenant_id = r.tenant_id
        and e.job_id = r.job_id
        and e.kind = r.kind
        and e.slot = r.slot
    where r.result <> 'succeeded'
        and e.fence = r.fence
        and e.state::text = 'running'
    on conflict do nothing
)
update executions as e
set state = case
        when r.state = 'retrying' and e.cancel_requested_at is not null then 'cancelled'
        when r.state = 'retrying' and e.is_last_attempt then 'failed'
        else r.state
    end,
    started_at = coalesce(r.started_at, e.started_at),
    finished_at = r.finished_at,
    ready_at = case
        when r.state = 'retrying' and e.cancel_requested_at is null and not e.is_last_attempt then r.ready_at
        else e.ready_at
    end,
    error_kind = r.error_kind,
    error = r.error,
    output = r.output,
    output_truncated = r.output_truncated
from results as r
where e.tenant_id = r.tenant_id
    and e.job_id = r.job_id
    and e.kind = r.kind
    and e.slot = r.slot
    and e.fence = r.fence
    and e.state::text = 'running'
returning r.place, e.state

-- name: succeed
-- What `complete` does, for attempts that succeeded and have nothing to say: half of its columns are spared.
update executions as e
set state = 'succeeded', started_at = r.started_at, finished_at = r.finished_at, error_kind = null, error = null,
    output = null, output_truncated = false
from unnest(
    $1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[], $5::bigint[], $6::timestamptz[], $7::timestamptz[]
) with ordinality as r (tenant_id, job_id, kind, slot, fence, started_at, finished_at, place)
where e.tenant_id = r.tenant_id
    and e.job_id = r.job_id
    and e.kind = r.kind
    and e.slot = r.slot
    and e.fence = r.fence
    and e.state::text = 'running'
returning r.place, e.state

-- name: skip_blocked
-- Skip the executions that came due while `running_limit` earlier ones of their job were unfinished. Run after a claim
-- that found less than it asked for: what is due and pending then is blocked, so there is little to look through.
-- What catches up waits for its turn and is not skipped, and neither is what waits for nothing but that.
-- Pool by pool and tier by tier, and with a case that hides from the planner that only limited ones are wanted: for a
-- day that is still empty PostgreSQL 15 and 16 would otherwise choose to go through all that is staged ahead as well.
with blocked as (
    select found.tenant_id, found.job_id, found.kind, found.slot
    from unnest($1::text[]) as served (pool)
    cross join unnest(array[0, 1, 2]::smallint[]) as tier (priority)
    cross join lateral (
        select tenant_id, job_id, kind, slot
        from executions as late
        where pool = served.pool
            and priority = tier.priority
            and ready_at <= $2
            and state = 'pending'
            and case
                when running_limit is null or reason = 'catch_up' then false
                else running_limit <= (
                    select count(*)
                    from executions as earlier
                    where earlier.job_id = late.job_id
                        and earlier.slot < late.slot
                        and earlier.running_limit is not null
                        and earlier.state in ('pending', 'running', 'retrying')
                        and earlier.reason is distinct from 'catch_up'
                )
            end
        offset 0
    ) as found
),
keys as (
    select array_agg(tenant_id) as tenants, array_agg(job_id) as jobs, array_agg(kind) as kinds, array_agg(slot) as slots
    from blocked
)
update executions as e
set state = 'skipped', reason = 'overlap', finished_at = $2
from keys
cross join lateral unnest(keys.tenants, keys.jobs, keys.kinds, keys.slots) as b (tenant_id, job_id, kind, slot)
where e.tenant_id = b.tenant_id
    and e.job_id = b.job_id
    and e.kind = b.kind
    and e.slot = b.slot
    and e.state::text = 'pending'
returning e.tenant_id, e.job_id, e.kind, e.slot

-- name: hand_back
-- Give up claims that were not started, so that another worker may take them at once.
update executions as e
set state = case when e.attempt > 1 then 'retrying'::execution_state else 'pending'::execution_state end,
    attempt = e.attempt - 1,
    worker = null,
    claimed_at = null
from unnest($1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[], $5::bigint[])
    as r (tenant_id, job_id, kind, slot, fence)
where e.tenant_id = r.tenant_id
    and e.job_id = r.job_id
    and e.kind = r.kind
    and e.slot = r.slot
    and e.fence = r.fence
    and e.state::text = 'running'
    and e.started_at is null
    and e.cancel_requested_at is null
    and not e.is_last_attempt

-- name: report
-- Write what running attempts have to tell: when they started, and their progress.
update executions as e
set started_at = coalesce(e.started_at, r.started_at),
    progress = coalesce(r.progress::json, e.progress)
from unnest($1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[], $5::bigint[], $6::timestamptz[], $7::text[])
    as r (tenant_id, job_id, kind, slot, fence, started_at, progress)
where e.tenant_id = r.tenant_id
    and e.job_id = r.job_id
    and e.kind = r.kind
    and e.slot = r.slot
    and e.fence = r.fence
    and e.state::text = 'running'

-- name: cancels
-- The executions of a worker that someone asked to cancel.
select tenant_id, job_id, kind, slot, fence
from executions
where worker = $1
    and state = 'running'
    and cancel_requested_at is not null

-- name: insert_execution
-- Add an execution that was asked for, rather than scheduled.
insert into executions (
    tenant_id, job_id, kind, slot, ready_at, state, revision, priority, running_limit, pool, payload, reason
)
values ($1, $2, $3, $4, $5, 'pending', $6, $7, $8, $9, $10, $11)
on conflict do nothing
returning slot

-- name: get_execution
-- One execution by its key.
select e.*, j.name as job_name
from executions as e
join jobs as j
    on j.tenant_id = e.tenant_id
    and j.id = e.job_id
where e.tenant_id = $1
    and e.job_id = $2
    and e.kind = $3
    and e.slot = $4

-- name: list_executions
-- Executions, newest slot first, from behind the place where the last page ended.
select e.*, j.name as job_name
from executions as e
join jobs as j
    on j.tenant_id = e.tenant_id
    and j.id = e.job_id
where e.tenant_id = $1
    and ($2::uuid is null or e.job_id = $2)
    and ($3::execution_state[] is null or e.state = any($3))
    and ($4::timestamptz is null or e.slot >= $4)
    and ($5::timestamptz is null or e.slot < $5)
    and ($6::uuid is null or e.worker = $6)
    and ($7::text is null or e.output ilike $7 or e.error ilike $7)
    and ($8::execution_kind is null or e.kind = $8)
    and ($9::timestamptz is null or (e.slot <= $9 and (e.slot, e.job_id, e.kind) < ($9, $10::uuid, $11::execution_kind)))
order by e.slot desc, e.job_id desc, e.kind desc
limit $12

-- name: list_attempts
-- The attempts of one execution that did not succeed, in order.
select *
from attempts
where tenant_id = $1
    and job_id = $2
    and kind = $3
    and slot = $4
order by fence

-- name: cancel_execution
-- End an execution that has not started, or ask its worker to stop it.
update executions
set state = case when state = 'running' then state else 'cancelled' end,
    reason = case when state = 'running' then reason else 'cancelled' end,
    finished_at = case when state = 'running' then finished_at else $5 end,
    cancel_requested_at = coalesce(cancel_requested_at, $5)
where tenant_id = $1
    and job_id = $2
    and kind = $3
    and slot = $4
    and state in ('pending', 'retrying', 'running')
returning state, worker, greatest(ready_at, claimed_at) as starts_at, pool

-- name: revive_execution
-- Give a dead letter, or what was cancelled, a new set of attempts, by what its job is now; not before its slot. The fence
-- goes on growing. The job is locked: its deletion finds the execution open again, or is seen here.
with job as (
    select revision, pool from jobs where tenant_id = $1 and id = $2 and state <> 'deleted' for share
)
update executions
set state = 'pending',
    attempt = 0,
    ready_at = greatest($5, slot),
    worker = null,
    claimed_at = null, started_at = null, finished_at = null,
    cancel_requested_at = null,
    is_last_attempt = false,
    reason = 'redriven',
    revision = job.revision,
    pool = job.pool
from job
where executions.tenant_id = $1
    and executions.job_id = $2
    and executions.kind = $3
    and executions.slot = $4
    and executions.state in ('failed', 'cancelled')
returning executions.pool

-- name: redrive
-- Give the oldest dead letters that match a new set of attempts, $7 of them a second, by what their jobs are now.
with dead as (
    select tenant_id, job_id, kind, slot, revision, pool, row_number() over (order by slot, job_id) as place
    from (
        select e.tenant_id, e.job_id, e.kind, e.slot, j.revision, j.pool
        from executions as e
        join jobs as j
            on j.tenant_id = e.tenant_id
            and j.id = e.job_id
        where e.tenant_id = $1
            and e.state = 'failed'
            and j.state <> 'deleted'
            and ($2::uuid is null or e.job_id = $2)
            and ($3::timestamptz is null or e.slot >= $3)
            and ($4::timestamptz is null or e.slot < $4)
            and ($5::text is null or e.output ilike $5 or e.error ilike $5)
            and e.finished_at <= $9
            and (
                $10::uuid[] is null
                or (e.job_id, e.kind, e.slot) in (
                    select job_id, kind, slot
                    from unnest($10::uuid[], $11::execution_kind[], $12::timestamptz[]) as named (job_id, kind, slot)
                )
            )
        order by e.slot
        limit $6
        for update of e skip locked for share of j
    ) as oldest
),
keys as (
    select
        array_agg(job_id) as jobs, array_agg(kind) as kinds, array_agg(slot) as slots, array_agg(place) as places,
        array_agg(revision) as revisions, array_agg(pool) as pools
    from dead
)
update executions as e
set state = 'pending',
    attempt = 0,
    ready_at = $8::timestamptz + (d.place - 1) * interval '1 second' / $7::double precision,
    worker = null,
    claimed_at = null,
    started_at = null,
    finished_at = null,
    cancel_requested_at = null,
    is_last_attempt = false,
    reason = 'redriven',
    revision = d.revision,
    pool = d.pool
from keys
cross join lateral unnest(keys.jobs, keys.kinds, keys.slots, keys.places, keys.revisions, keys.pools)
    as d (job_id, kind, slot, place, revision, pool)
where e.tenant_id = $1
    and e.job_id = d.job_id
    and e.kind = d.kind
    and e.slot = d.slot
returning e.pool, e.ready_at

-- name: dismiss
-- Let a dead letter rest: it stays in the history, as cancelled. As text, so that it is found by its key and not among
-- the dead letters of its slot, which may be a herd.
update executions
set state = 'cancelled', reason = 'dismissed'
where tenant_id = $1
    and job_id = $2
    and kind = $3
    and slot = $4
    and state::text = 'failed'
returning state

-- name: backlog
-- For each pool: how many executions are due and waiting, and since when the oldest waits.
select pool, count(*) as depth, min(ready_at) as oldest
from executions
where state in ('pending', 'retrying')
    and ready_at <= $1
group by pool
