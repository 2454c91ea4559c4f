-- part: pools
-- The pools in which something waits, found by going from one to the next in the index: what is staged ahead is not read.
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

-- part: may_begin
-- Whether earlier executions of its job leave what is due room to begin.
(
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

-- part: is_held
-- Whether the execution that went through a gate is still running by that claim.
exists (
    select from executions as held
    where held.tenant_id = holds.tenant_id
        and held.job_id = holds.job_id
        and held.slot = holds.slot
        and held.kind = holds.kind
        and held.fence = holds.fence
        and held.state::text = 'running'
    offset 0
)

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
-- What waits for an earlier execution of its job is not overdue, and what waits at a gate is a matter of `open_gates`.
with recursive /* part: pools */
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
        and /* part: may_begin */
    order by due.ready_at
    limit $2
) as late
group by pools.pool
order by pools.pool

-- name: open_gates
-- The gates that have room and before which something has waited for $1, at most $2 in each pool and tier: the first in line
-- that its own job does not hold up, of the first $2. A gate that is busy has room for moments too.
with recursive /* part: pools */
select pools.pool, line.tenant_id, line.gate, first.job_id, first.slot, first.ready_at
from pools
cross join unnest(array[3, 4, 5]::smallint[]) as tier (priority)
cross join lateral (
    with recursive gated as (
        (
            select tenant_id, gate, ready_at
            from executions as front
            where pool = pools.pool
                and priority = tier.priority
                and gate is not null
                and state < 'succeeded'
                and state <> 'running'
            order by tenant_id, gate, ready_at
            limit 1
        )
        union all
        select next.tenant_id, next.gate, next.ready_at
        from gated
        cross join lateral (
            select tenant_id, gate, ready_at
            from executions as behind
            where pool = pools.pool
                and priority = tier.priority
                and gate is not null
                and (tenant_id, gate) > (gated.tenant_id, gated.gate)
                and state < 'succeeded'
                and state <> 'running'
            order by tenant_id, gate, ready_at
            limit 1
        ) as next
    )
    select tenant_id, gate
    from gated
    where ready_at < now() - $1::interval
    limit $2
) as line
join tenants on tenants.id = line.tenant_id
cross join lateral (
    select due.job_id, due.slot, due.ready_at, due.gate_limit
    from (
        select tenant_id, job_id, slot, ready_at, gate_limit, running_limit
        from executions as waiting
        where pool = pools.pool
            and priority = tier.priority
            and tenant_id = line.tenant_id
            and gate = line.gate
            and gate is not null
            and ready_at < now() - $1::interval
            and state < 'succeeded'
            and state <> 'running'
        order by ready_at
        limit $2
    ) as due
    where /* part: may_begin */
    limit 1
) as first
where coalesce(
        first.gate_limit > (
            select count(*)
            from holds
            where holds.tenant_id = line.tenant_id
                and holds.gate = line.gate
                and /* part: is_held */
        ),
        true
    )
    and coalesce(
        tenants.max_running > (
            select count(*)
            from holds
            where holds.tenant_id = line.tenant_id
                and holds.gate = ''
                and /* part: is_held */
        ),
        true
    )
    and not exists (
        select from gates
        where gates.tenant_id = line.tenant_id
            and gates.gate = ''
            and gates.minute >= date_trunc('minute', now())
            and gates.used >= tenants.max_per_minute
        offset 0
    )
