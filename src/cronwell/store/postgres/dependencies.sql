-- name: lock_graph
-- Nobody else changes what a tenant's jobs follow until the transaction ends: two changes, each of them fine, could make a
-- cycle together.
select pg_advisory_xact_lock(hashtextextended('cronwell.graph.' || $1::integer, 0))

-- name: jobs_named
-- The jobs that have these names now.
select j.id, j.name
from unnest($2::text[]) as wanted (name)
cross join lateral (
    select looked_up.id, looked_up.name
    from jobs as looked_up
    where looked_up.tenant_id = $1
        and looked_up.name = wanted.name
        and looked_up.state <> 'deleted'
    limit 1
) as j

-- name: jobs_of_ids
-- What some jobs are called, and how they stand.
select id, name, state, spec ->> 'schedule' as schedule, (spec -> 'after')::text as after
from jobs
where tenant_id = $1
    and id = any($2::uuid[])

-- name: names_between
-- Names in use, to find the one that was meant.
select name
from jobs
where tenant_id = $1
    and state <> 'deleted'
    and name >= $2
    and name < $3
order by name
limit $4

-- name: drop_edges
-- Jobs follow others from now on, or none; their waiting slots are judged by that.
delete from dependencies
where tenant_id = $1
    and dependent_id = any($2::uuid[])

-- name: insert_edges
-- Note what jobs follow.
insert into dependencies (tenant_id, dependent_id, upstream_id, place, condition)
select $1, dependent_id, upstream_id, place, condition
from unnest($2::uuid[], $3::uuid[], $4::smallint[], $5::text[])
    as followed (dependent_id, upstream_id, place, condition)

-- name: drop_waiting
-- A job that follows none any more waits for none.
delete from waiting_slots
where tenant_id = $1
    and job_id = any($2::uuid[])

-- name: edges_above
-- What some jobs follow, directly and by way of others; no more than $3 edges.
with recursive above as (
    select dependent_id, upstream_id, place, condition
    from dependencies
    where tenant_id = $1
        and dependent_id = any($2::uuid[])
    union
    select d.dependent_id, d.upstream_id, d.place, d.condition
    from above
    join dependencies as d
        on d.tenant_id = $1
        and d.dependent_id = above.upstream_id
)
select dependent_id, upstream_id, place, condition
from above
limit $3

-- name: edges_below
-- What follows a job, directly and by way of others; no more than $3 edges.
with recursive below as (
    select dependent_id, upstream_id, place, condition
    from dependencies
    where tenant_id = $1
        and upstream_id = any($2::uuid[])
    union
    select d.dependent_id, d.upstream_id, d.place, d.condition
    from below
    join dependencies as d
        on d.tenant_id = $1
        and d.upstream_id = below.dependent_id
)
select dependent_id, upstream_id, place, condition
from below
limit $3

-- name: jobs_around
-- All jobs that have to do with a job, at most $3 of them.
with recursive around as (
    select $2::uuid as id
    union
    select case when d.dependent_id = around.id then d.upstream_id else d.dependent_id end
    from around
    join dependencies as d
        on d.tenant_id = $1
        and (d.dependent_id = around.id or d.upstream_id = around.id)
)
select id
from around
limit $3

-- name: edges_among
-- What some jobs follow.
select dependent_id, upstream_id, place, condition
from dependencies
where tenant_id = $1
    and dependent_id = any($2::uuid[])
order by dependent_id, place

-- name: followed_jobs
-- Those of some jobs that others follow.
select distinct upstream_id
from dependencies
where tenant_id = $1
    and upstream_id = any($2::uuid[])

-- name: dependents_named
-- The names of the jobs that follow a job, at most so many.
select j.name
from dependencies as d
join jobs as j
    on j.tenant_id = d.tenant_id
    and j.id = d.dependent_id
where d.tenant_id = $1
    and d.upstream_id = $2
order by j.name
limit $3

-- name: set_plan
-- A job goes by another plan, of the same slots.
update cursors
set plan = $3
where tenant_id = $1
    and job_id = $2

-- name: mark_followed
-- What of a job has not ended yet is followed from now on. In three parts, as in `withhold_due`.
update executions
set is_followed = true
where tenant_id = $1
    and job_id = $2
    and (
        (running_limit is not null and state in ('pending', 'running', 'retrying'))
        or (running_limit is null and state in ('pending', 'retrying'))
        or (running_limit is null and state = 'running')
    )

-- name: waiting_of
-- The slots at which some jobs wait, the oldest first, at most $3 of them.
select w.job_id, w.slot, w.since
from waiting_slots as w
where w.tenant_id = $1
    and w.job_id = any($2::uuid[])
order by w.since
limit $3

-- name: latest_of
-- The newest execution of each of some jobs that has begun or ended by $3; or, with $4, those of that slot.
select e.*
from unnest($2::uuid[]) as wanted (job_id)
cross join lateral (
    select there.job_id, there.kind, there.slot, there.state, there.reason
    from executions as there
    where there.tenant_id = $1
        and there.job_id = wanted.job_id
        and there.slot <= $3
        and ($4::timestamptz is null or there.slot = $4)
    order by there.slot desc
    limit 1
) as e

-- name: upstream_results
-- What the upstreams of dependents ended with, at the dependents' slots; of each the execution that ended last, and of its output
-- the first $4 characters.
select wanted.job_id as dependent_id, wanted.slot, d.place, j.name, e.upstream_id, e.kind, e.state, e.output, e.is_cut
from unnest($1::integer[], $2::uuid[], $3::timestamptz[]) as wanted (tenant_id, job_id, slot)
join dependencies as d
    on d.tenant_id = wanted.tenant_id
    and d.dependent_id = wanted.job_id
join jobs as j
    on j.tenant_id = d.tenant_id
    and j.id = d.upstream_id
cross join lateral (
    select
        there.job_id as upstream_id, there.kind, there.state, left(there.output, $4) as output,
        there.output_truncated or length(there.output) > $4 as is_cut
    from executions as there
    where there.tenant_id = d.tenant_id
        and there.job_id = d.upstream_id
        and there.slot = wanted.slot
        and there.state::text in ('succeeded', 'failed', 'cancelled', 'skipped')
    order by there.finished_at desc
    limit 1
) as e
order by wanted.job_id, wanted.slot, d.place
