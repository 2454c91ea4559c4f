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
    and e.worker = $6
    and e.state::text = 'running'
    and e.started_at is null
    and e.cancel_requested_at is null
    and not e.is_last_attempt

-- name: confirm
-- Ask anew for claims that were not started in time. One that may start counts as claimed at $8, so that whoever pauses or
-- deletes its job, or cancels it, waits for its start as after any other claim. What a pause or delete has reached does
-- not start any more. The state that each led to comes back, and whether somebody asked to cancel it.
update executions as e
set claimed_at = case when e.is_last_attempt then e.claimed_at else $8::timestamptz end,
    state = case
        when not e.is_last_attempt then e.state
        when e.attempt > 1 then 'cancelled'::execution_state
        else 'skipped'::execution_state
    end,
    reason = case when e.is_last_attempt then case when j.state::text = 'deleted' then 'deleted' else 'paused' end else e.reason end,
    finished_at = case when e.is_last_attempt then $7::timestamptz end,
    attempt = case when e.is_last_attempt then e.attempt - 1 else e.attempt end
from unnest($1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[], $5::bigint[]) with ordinality
    as r (tenant_id, job_id, kind, slot, fence, place)
left join lateral (
    select jobs.state
    from jobs
    where jobs.tenant_id = r.tenant_id
        and jobs.id = r.job_id
    limit 1
) as j on true
where e.tenant_id = r.tenant_id
    and e.job_id = r.job_id
    and e.kind = r.kind
    and e.slot = r.slot
    and e.fence = r.fence
    and e.worker = $6
    and e.state::text = 'running'
    and e.started_at is null
returning r.place, e.state, e.cancel_requested_at is not null as is_cancelled

-- name: report
-- Write what running attempts have to tell: when they started, and their progress.
update executions as e
set started_at = coalesce(e.started_at, r.started_at),
    progress = coalesce(r.progress::json, e.progress)
from unnest($1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[], $5::bigint[], $6::uuid[], $7::timestamptz[], $8::text[])
    as r (tenant_id, job_id, kind, slot, fence, worker, started_at, progress)
where e.tenant_id = r.tenant_id
    and e.job_id = r.job_id
    and e.kind = r.kind
    and e.slot = r.slot
    and e.fence = r.fence
    and e.worker = r.worker
    and e.state::text = 'running'

-- name: cancels
-- The executions of a worker that someone asked to cancel.
select tenant_id, job_id, kind, slot, fence
from executions
where worker = $1
    and state = 'running'
    and cancel_requested_at is not null

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
    and ($13::timestamptz is null or e.slot <= $13 or e.started_at is not null)
    and ($9::timestamptz is null or (e.slot <= $9 and (e.slot, e.job_id, e.kind) < ($9, $10::uuid, $11::execution_kind)))
order by e.slot desc, e.job_id desc, e.kind desc
limit $12

-- name: list_early
-- Executions that were moved before their slot, which is still ahead of $2, and have begun; as in `list_executions`. They
-- are looked for among the overrides, which are few, and not among all that is staged ahead; one by one, by the whole key.
select e.*, j.name as job_name
from overrides as o
cross join lateral (
    select *
    from executions as early
    where early.tenant_id = o.tenant_id
        and early.job_id = o.job_id
        and early.kind = 'scheduled'
        and early.slot = o.slot
    offset 0
) as e
join jobs as j
    on j.tenant_id = e.tenant_id
    and j.id = e.job_id
where o.tenant_id = $1
    and o.slot > $2
    and o.action = 'move'
    and o.ready_at <= $2
    and e.started_at is not null
    and ($3::timestamptz is null or e.slot >= $3)
    and ($4::uuid is null or e.worker = $4)
    and ($5::text is null or e.output ilike $5 or e.error ilike $5)
    and ($6::execution_kind is null or e.kind = $6)
    and ($7::timestamptz is null or (e.slot, e.job_id) < ($7, $8::uuid))
order by e.slot desc, e.job_id desc
limit $9

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
returning state, worker, greatest(ready_at, claimed_at) as starts_at, pool, fence, callback_worker

-- name: revive_execution
-- Give a dead letter, or what was cancelled, a new set of attempts, by what its job is now; not before its slot. The fence
-- goes on growing. The job is locked: its deletion finds the execution open again, or is seen here. Those that follow it are
-- judged anew when it has ended. Where later ones of a limited job have begun, or may at this moment, it is ready in 2 s: see
-- `may_start`.
with job as (
    select
        revision, pool,
        coalesce(spec -> 'group' ->> 'key', case when $1 = any(array(select limited_tenants())) then '' end) as gate,
        case when spec -> 'group' ->> 'key' is not null then coalesce(spec -> 'group' ->> 'limit', '1')::smallint end as gate_limit
    from jobs
    where tenant_id = $1 and id = $2 and state::text <> 'deleted'
    for share
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
    worker = null, claimed_at = null, started_at = null, finished_at = null,
    cancel_requested_at = null, is_last_attempt = false,
    reason = 'redriven',
    revision = job.revision,
    pool = job.pool,
    gate = job.gate,
    gate_limit = job.gate_limit,
    priority = tier_of((executions.priority % 3)::smallint, job.gate),
    is_followed = exists (select from dependencies as f where f.tenant_id = $1 and f.upstream_id = $2)
from job
where executions.tenant_id = $1
    and executions.job_id = $2
    and executions.kind = $3
    and executions.slot = $4
    and executions.state in ('failed', 'cancelled')
returning executions.pool

-- name: redrive
-- Give the oldest dead letters that match a new set of attempts, $7 of them a second, by what their jobs are now; of limited
-- jobs not sooner than in `revive_execution`. The job's
-- state is compared as text: behind row-level security the planner knows nothing of an enum's values, and would begin with
-- all jobs that are not deleted, by the index of their names.
with dead as (
    select
        tenant_id, job_id, kind, slot, revision, pool, row_number() over (order by slot, job_id) as place,
        coalesce(named ->> 'key', case when $1 = any(array(select limited_tenants())) then '' end) as gate,
        case when named ->> 'key' is not null then coalesce(named ->> 'limit', '1')::smallint end as gate_limit
    from (
        select e.tenant_id, e.job_id, e.kind, e.slot, j.revision, j.pool, j.spec -> 'group' as named
        from executions as e
        join jobs as j
            on j.tenant_id = e.tenant_id
            and j.id = e.job_id
        where e.tenant_id = $1
            and e.state = 'failed'
            and j.state::text <> 'deleted'
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
        array_agg(revision) as revisions, array_agg(pool) as pools, array_agg(gate) as gates, array_agg(gate_limit) as gate_limits
    from dead
)
update executions as e
set state = 'pending',
    attempt = 0,
    ready_at = greatest(
        $8::timestamptz + (d.place - 1) * interval '1 second' / $7::double precision,
        case when e.running_limit is not null and exists (
            select from executions as newer
            where newer.job_id = d.job_id
                and newer.slot > d.slot
                and newer.running_limit is not null
                and newer.state in ('pending', 'running', 'retrying')
                and (newer.attempt > 0 or newer.ready_at <= $8::timestamptz + interval '5 seconds')
        ) then $8::timestamptz + interval '2 seconds' end
    ),
    worker = null, claimed_at = null, started_at = null, finished_at = null,
    cancel_requested_at = null, is_last_attempt = false,
    reason = 'redriven',
    revision = d.revision,
    pool = d.pool,
    gate = d.gate,
    gate_limit = d.gate_limit,
    priority = tier_of((e.priority % 3)::smallint, d.gate),
    is_followed = exists (select from dependencies as f where f.tenant_id = e.tenant_id and f.upstream_id = e.job_id)
from keys
cross join lateral unnest(
    keys.jobs, keys.kinds, keys.slots, keys.places, keys.revisions, keys.pools, keys.gates, keys.gate_limits
) as d (job_id, kind, slot, place, revision, pool, gate, gate_limit)
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
