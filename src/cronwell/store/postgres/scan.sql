-- name: slice_end
-- The key of the job that stands so many places behind another: jobs are gone through a slice at a time.
select tenant_id, id
from jobs
where (tenant_id, id) > ($1::integer, $2::uuid)
order by tenant_id, id
offset $3
limit 1

-- name: suspects
-- The jobs of a slice that may stand where no job should: active with a schedule and without a cursor, held, without a
-- next slot, with one before $5, or awaiting an execution that ended before $6 (or is gone); or not active and yet to be
-- staged. Cursors are read as a slice of their own: looked up one by one, 5,000 of a million took 50-80 ms, and so 18-27
-- (November 2026, a busy machine). Executions are looked up one by one, of the few that await one.
select
    j.tenant_id, j.id as job_id, j.state::text as state, c.job_id is not null as has_cursor,
    coalesce(c.is_held, false) as is_held, coalesce(c.awaits, false) as awaits, c.next_slot, c.plan, c.runs_left,
    c.held_until
from (
    select tenant_id, id, state, spec
    from jobs as sliced
    where (tenant_id, id) > ($1::integer, $2::uuid)
        and (tenant_id, id) <= ($3::integer, $4::uuid)
    order by tenant_id, id
) as j
left join (
    select *
    from cursors as looked_up
    where (tenant_id, job_id) > ($1::integer, $2::uuid)
        and (tenant_id, job_id) <= ($3::integer, $4::uuid)
) as c
    on c.tenant_id = j.tenant_id
    and c.job_id = j.id
where case
    when j.state <> 'active' then c.job_id is not null and not c.is_held and c.next_slot is not null
    when c.job_id is null then coalesce(json_typeof(j.spec -> 'schedule'), 'null') <> 'null'
    when c.is_held or c.next_slot is null then true
    when c.awaits then c.next_slot < $6 and (
        select true
        from executions as awaited
        where awaited.tenant_id = c.tenant_id
            and awaited.job_id = c.job_id
            and awaited.kind = 'scheduled'
            and awaited.slot = c.next_slot
            and (awaited.state in ('pending', 'running', 'retrying') or awaited.finished_at >= $6)
        limit 1
    ) is null
    else c.next_slot < $5
end

-- name: abandoned
-- What is running, so the database says, under workers whose lease ended before $1 or that it does not know, of what was
-- claimed before then: how many, some of their jobs, and whether the worker is not known. Looked for between the names of those that
-- live: behind an old transaction lies under these whatever they have claimed since it began.
with names as (
    select id
    from workers
    where state in ('active', 'draining')
        or lease_until >= $1
    union all
    select '00000000-0000-0000-0000-000000000000'
),
gaps as (
    select id as above, lead(id, 1, 'ffffffff-ffff-ffff-ffff-ffffffffffff') over (order by id) as below
    from names
)
select
    held.worker, count(*) as held, (array_agg(held.job_id::text))[1:$2] as jobs, bool_and(w.id is null) as is_unknown
from gaps
cross join lateral (
    select worker, job_id
    from executions as e
    where worker > gaps.above
        and worker < gaps.below
        and state = 'running'
        and claimed_at < $1
    offset 0
) as held
left join workers as w on w.id = held.worker
group by held.worker

-- name: unserved
-- For each pool that is not among $2: how many executions wait that were ready by $1. Looked for between the names of those that are:
-- behind an old transaction lies under these whatever was ready since it began.
with gaps as (
    select pool as above, lead(pool, 1, chr(1114111)) over (order by pool collate "C") as below
    from unnest(array_prepend('', $2::text[])) as named (pool)
)
select waiting.pool, waiting.depth
from gaps
cross join lateral (
    select pool, count(*) as depth
    from executions as due
    where pool > gaps.above
        and pool < gaps.below
        and state in ('pending', 'retrying')
        and ready_at <= $1
    group by pool
) as waiting

-- name: enter_lost
-- Enter workers that nobody knows as lost, so that what is running under their names is taken back.
insert into workers (
    id, name, state, version, pools, handlers, concurrency, started_at, heartbeat_at, lease_until
)
select id, 'unknown', 'lost', '', '{}', '{}', 0, $2, $2, $2
from unnest($1::uuid[]) as gone (id)
on conflict do nothing
