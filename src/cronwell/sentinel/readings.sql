-- name: marks
-- What time it is, up to where the slots of every shard are accounted for, and the shards that were not marked for $1.
select
    now() as now,
    min(watermark) as oldest,
    coalesce(array_agg(shard order by shard) filter (where marked_at is null or marked_at < now() - $1::interval), '{}')
        as unmarked
from shards

-- name: processes
-- How many workers have a lease, and how many schedulers were seen in the last $1.
select
    (select count(*) from workers where state in ('active', 'draining') and lease_until > now()) as workers,
    (
        select count(*)
        from nodes
        where role = 'scheduler'
            and stopped_at is null
            and seen_at > now() - $1::interval
    ) as schedulers

-- name: overdue
-- In each pool, what could have started $1 ago and has not: how many, counted up to $2 in each priority, and since when.
-- Pools are found by going from one to the next in the index, so that what is staged ahead is not read. What waits for an
-- earlier execution of its job is not overdue.
with recursive pools as (
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
select pools.pool, count(*) as waiting, min(late.ready_at) as oldest
from pools
cross join generate_series(0, 2) as tier (priority)
cross join lateral (
    select due.ready_at
    from executions as due
    where due.state in ('pending', 'retrying')
        and due.pool = pools.pool
        and due.priority = tier.priority
        and due.ready_at < now() - $1::interval
        and (
            due.running_limit is null
            or due.running_limit > (
                select count(*)
                from executions as earlier
                where earlier.tenant_id = due.tenant_id
                    and earlier.job_id = due.job_id
                    and earlier.slot < due.slot
                    and earlier.running_limit is not null
                    and earlier.state in ('pending', 'running', 'retrying')
            )
        )
    order by due.ready_at
    limit $2
) as late
group by pools.pool
order by pools.pool
