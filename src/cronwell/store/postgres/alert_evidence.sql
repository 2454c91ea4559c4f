-- part: pools
-- The pools in which something waits, found by going from one to the next in the index.
pools as (
    (
        select head.pool
        from executions as head
        where head.state in ('pending', 'retrying')
        order by head.pool
        limit 1
    )
    union all
    select following.pool
    from pools
    cross join lateral (
        select step.pool
        from executions as step
        where step.state in ('pending', 'retrying')
            and step.pool > pools.pool
        order by step.pool
        limit 1
    ) as following
)

-- name: watched_by_name
-- Jobs by their names.
select j.id, j.name, j.state::text as state, j.tags::text as tags, j.updated_at
from unnest($2::text[]) as wanted (name)
cross join lateral (
    select looked_up.id, looked_up.name, looked_up.state, looked_up.tags, looked_up.updated_at
    from jobs as looked_up
    where looked_up.tenant_id = $1
        and looked_up.name = wanted.name
        and looked_up.state <> 'deleted'
    limit 1
) as j

-- name: watched_by_id
-- Jobs by their ids.
select j.id, j.name, j.state::text as state, j.tags::text as tags, j.updated_at
from unnest($2::uuid[]) as wanted (id)
cross join lateral (
    select looked_up.id, looked_up.name, looked_up.state, looked_up.tags, looked_up.updated_at
    from jobs as looked_up
    where looked_up.tenant_id = $1
        and looked_up.id = wanted.id
    limit 1
) as j

-- name: watched_slice
-- The next jobs of a tenant from behind a place, by their ids: those that a schedule fires and that have some tags, and where
-- the slice ended; null where it was the last.
with sliced as (
    select id, name, state, tags, updated_at
    from jobs
    where tenant_id = $1
        and id > $2
    order by id
    limit $4
)
select
    (select max(id::text)::uuid from sliced having count(*) = $4) as ended_at,
    scheduled.id, scheduled.name, scheduled.state, scheduled.tags, scheduled.updated_at
from (select 1) as always
left join (
    select s.id, s.name, s.state::text as state, s.tags::text as tags, s.updated_at
    from sliced as s
    cross join lateral (
        select looked_up.job_id
        from cursors as looked_up
        where looked_up.tenant_id = $1
            and looked_up.job_id = s.id
        limit 1
    ) as c
    where s.state::text = 'active'
        and s.tags @> $3::jsonb
) as scheduled on true

-- name: newest_runs
-- The newest executions of jobs whose slot has come, no more than $4 of each; what a backfill runs is a matter of its own.
select wanted.job_id, e.state, e.slot, e.ready_at, e.started_at
from unnest($2::uuid[]) as wanted (job_id)
cross join lateral (
    select newest.state, newest.slot, newest.ready_at, newest.started_at, newest.kind
    from executions as newest
    where newest.tenant_id = $1
        and newest.job_id = wanted.job_id
        and newest.slot <= $3
    order by newest.slot desc
    limit $4
) as e
where e.kind <> 'backfill'

-- name: last_successes
-- When jobs last succeeded, as far as their newest $5 executions since $3 tell; and whether those are all there are. Looked
-- through from the newest, so that of a job that is well one execution is read.
select
    wanted.job_id,
    success.finished_at,
    case
        when success.finished_at is null then (
            select count(*)
            from (
                select
                from executions as counted
                where counted.tenant_id = $1
                    and counted.job_id = wanted.job_id
                    and counted.slot > $3
                    and counted.slot <= $4
                limit $5
            ) as looked_at
        ) < $5
        else true
    end as is_known
from unnest($2::uuid[]) as wanted (job_id)
left join lateral (
    select newest.finished_at
    from (
        select e.state, e.slot, e.finished_at
        from executions as e
        where e.tenant_id = $1
            and e.job_id = wanted.job_id
            and e.slot > $3
            and e.slot <= $4
        order by e.slot desc
        limit $5
    ) as newest
    where newest.state::text = 'succeeded'
    order by newest.slot desc
    limit 1
) as success on true

-- name: dead_by_job
-- How many of a tenant's newest $2 dead letters each job has.
select job_id, count(*) as dead
from (
    select job_id
    from executions
    where tenant_id = $1
        and state = 'failed'
    order by slot desc
    limit $2
) as newest
group by job_id

-- name: waiting_long
-- What of a tenant has been due since before $2 and waits, the oldest first, no more than $3 in each pool and priority.
with recursive /* part: pools */
select late.job_id, late.state, late.slot, late.ready_at, late.started_at
from pools
cross join generate_series(0, 5) as tier (priority)
cross join lateral (
    select due.job_id, due.state, due.slot, due.ready_at, null::timestamptz as started_at
    from executions as due
    where due.state in ('pending', 'retrying')
        and due.pool = pools.pool
        and due.priority = tier.priority
        and due.tenant_id = $1
        and due.tenant_id > 0
        and due.ready_at <= $2
    order by due.ready_at
    limit $3
) as late

-- name: running_long
-- Executions of a tenant whose attempt has been running since before $2, the oldest first. As much is read as workers hold at
-- the moment.
select job_id, state, slot, ready_at, started_at
from executions
where state = 'running'
    and tenant_id = $1
    and started_at < $2
order by started_at
limit $3

-- name: waiting_depth
-- How much of a tenant is due and waits, in each pool; counted up to $3 in each pool and priority. Messages of alerts do not
-- count: an alert would keep itself going.
with recursive /* part: pools */
select pools.pool, count(*) as depth
from pools
cross join generate_series(0, 5) as tier (priority)
cross join lateral (
    select
    from executions as due
    where due.state in ('pending', 'retrying')
        and due.pool = pools.pool
        and due.priority = tier.priority
        and due.tenant_id = $1
        and due.tenant_id > 0
        and due.ready_at <= $2
        and due.reason is distinct from 'alert'
    limit $3
) as waiting
group by pools.pool
