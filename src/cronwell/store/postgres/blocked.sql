-- name: skip_blocked
-- Skip the executions that came due while `running_limit` earlier ones of their job were unfinished. Run after a claim
-- that found less than it asked for: what is due and pending then is blocked, so there is little to look through. Only what is
-- ready since $3 is judged.
-- What catches up, was moved, or is run again, waits for its turn and is not skipped, and neither is what waits for nothing but
-- catching up. What was moved, or is run again, and is not ready yet holds up nothing; what has begun does, also where it comes
-- later, as beside a slot that was staged late.
-- Of a job that lets one wait (queueing 1), one more may be unfinished; of one that lets all wait (2), none is skipped. Of one
-- that cancels what runs (3), only the newest waits, and is told; where a newer one has begun, none.
-- Pool by pool and tier by tier, and with a case that hides from the planner that only limited ones are wanted: for a
-- day that is still empty PostgreSQL 15 and 16 would otherwise choose to go through all that is staged ahead as well.
with ahead as materialized (
    select e.job_id, e.slot
    from overrides as o
    cross join lateral (
        select job_id, slot
        from executions as moved
        where tenant_id = o.tenant_id
            and job_id = o.job_id
            and kind = 'scheduled'
            and slot = o.slot
            and running_limit is not null
            and state::text in ('running', 'retrying')
        offset 0
    ) as e
    where o.action = 'move'
        and o.slot > $2::timestamptz - interval '1 day'
        and o.ready_at <= $2
),
found as materialized (
    select late.tenant_id, late.job_id, late.kind, late.slot, late.verdict
    from unnest($1::text[]) as served (pool)
    cross join unnest(array[0, 1, 2, 3, 4, 5]::smallint[]) as tier (priority)
    cross join lateral (
        select
            tenant_id, job_id, kind, slot,
            case
                when running_limit is null or queueing = 2 then 'waits'
                when reason in ('catch_up', 'moved', 'redriven', 'rerun', 'upstream_ended') then 'waits'
                when queueing = 3 then case
                    when exists (
                        select from executions as newer
                        where newer.job_id = due.job_id
                            and newer.slot > due.slot
                            and newer.slot <= $2
                            and newer.running_limit is not null
                            and newer.state in ('pending', 'running', 'retrying')
                            and (
                                newer.attempt > 0
                                or (
                                    newer.ready_at <= $2
                                    and coalesce(newer.reason not in ('catch_up', 'moved', 'redriven', 'rerun', 'upstream_ended'), true)
                                )
                            )
                    ) then 'skipped'
                    else 'cancels'
                end
                when running_limit + case queueing when 1 then 1 else 0 end <= (
                    select count(*)
                    from executions as earlier
                    where earlier.job_id = due.job_id
                        and earlier.slot <= greatest(due.slot, $2::timestamptz + interval '10 seconds')
                        and (earlier.slot < due.slot or (earlier.slot > due.slot and earlier.attempt > 0))
                        and earlier.running_limit is not null
                        and earlier.state in ('pending', 'running', 'retrying')
                        and earlier.reason is distinct from 'catch_up'
                        and (
                            coalesce(earlier.reason not in ('moved', 'redriven', 'rerun', 'upstream_ended'), true)
                            or earlier.attempt > 0
                            or earlier.ready_at <= $2
                        )
                ) + (
                    select count(*)
                    from ahead
                    where ahead.job_id = due.job_id
                        and ahead.slot > greatest(due.slot, $2::timestamptz + interval '10 seconds')
                ) then 'skipped'
                else 'waits'
            end as verdict
        from executions as due
        where pool = served.pool
            and priority = tier.priority
            and ready_at between $3 and $2
            and state = 'pending'
        offset 0
    ) as late
    where late.verdict <> 'waits'
),
keys as (
    select array_agg(tenant_id) as tenants, array_agg(job_id) as jobs, array_agg(kind) as kinds, array_agg(slot) as slots
    from found
    where verdict = 'skipped'
),
skipped as (
    update executions as e
    set state = 'skipped', reason = 'overlap', finished_at = $2
    from keys
    cross join lateral unnest(keys.tenants, keys.jobs, keys.kinds, keys.slots) as b (tenant_id, job_id, kind, slot)
    where e.tenant_id = b.tenant_id
        and e.job_id = b.job_id
        and e.kind = b.kind
        and e.slot = b.slot
        and e.state::text = 'pending'
    returning e.slot
)
select
    (select count(*) from skipped) as skipped,
    (select array_agg(job_id) from found where verdict = 'cancels') as jobs,
    (select array_agg(slot) from found where verdict = 'cancels') as slots

-- name: cancel_overlapped
-- Ask the oldest executions of jobs to end, as many as one that is due needs to begin in their place; one that waits to be
-- tried again ends at once. Whose worker has to be told comes back.
with oldest as (
    select begun.tenant_id, begun.job_id, begun.kind, begun.slot
    from unnest($1::uuid[], $2::timestamptz[]) as newest (job_id, slot)
    cross join lateral (
        select tenant_id, job_id, kind, slot, running_limit, row_number() over (order by slot desc) as place
        from executions
        where job_id = newest.job_id
            and slot < newest.slot
            and running_limit is not null
            and state in ('pending', 'running', 'retrying')
            and attempt > 0
    ) as begun
    where begun.place >= begun.running_limit
),
-- In the order of the primary key, like results: no two writers wait for each other.
keys as (
    select
        array_agg(tenant_id order by job_id, slot, kind) as tenants, array_agg(job_id order by job_id, slot, kind) as jobs,
        array_agg(kind order by job_id, slot, kind) as kinds, array_agg(slot order by job_id, slot, kind) as slots
    from oldest
)
update executions as e
set state = case when e.state = 'running' then e.state else 'cancelled' end,
    reason = case when e.state = 'running' then e.reason else 'overlap' end,
    finished_at = case when e.state = 'running' then e.finished_at else $3 end,
    cancel_requested_at = $3
from keys
cross join lateral unnest(keys.tenants, keys.jobs, keys.kinds, keys.slots) as oldest (tenant_id, job_id, kind, slot)
where e.tenant_id = oldest.tenant_id
    and e.job_id = oldest.job_id
    and e.kind = oldest.kind
    and e.slot = oldest.slot
    and e.cancel_requested_at is null
    and e.state::text in ('running', 'retrying')
returning e.worker, e.state
