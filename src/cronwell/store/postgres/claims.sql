-- part: claimants
-- Where a claim begins: the worker if it may claim, and what the jobs that limit their executions have unfinished. Earlier
-- ones are looked up in the day before the slot; `stale` holds the rest, which are few, so that a claim does
-- not probe every day's partition for each candidate. It reaches to a day before $3, which no candidate's slot lies
-- behind by more than the microseconds that keep triggers apart. `ahead` has the moved ones that began before their slot,
-- found by their overrides, which are few.
-- A partition that a statement names costs it 0.01 ms, whether it is read or not, and a month has thirty. So candidates have slots not
-- before $8, which PostgreSQL knows before it begins, and by which it leaves out the days that do not matter. What is asked of all
-- days is in functions, which are only gone into where they are asked. Nothing else here is bounded like that: a search that is bounded
-- beforehand and goes by what comes out of another table as well finds nothing any more once a row was met that had
-- just been changed (PostgreSQL 18.4). The fences are raised by such a one, but of rows that are locked.
with alive as (
    select id
    from workers
    where id = $4
        and state = 'active'
        and lease_until > $6
        and incarnation = (select incarnation())
),
stale as materialized (
    select job_id, slot, has_begun, is_nearly_ready
    from unfinished_before($3::timestamptz - interval '1 day' + interval '1 second', greatest($3::timestamptz, $6))
),
ahead as materialized (
    select job_id, slot, is_running
    from begun_early(greatest($3::timestamptz, $6))
)

-- part: may_start
-- One of a job that limits its executions is passed over while `running_limit` others come first: all that run, then those that
-- are to be tried again, in the order of their slots, and then the rest in that order. So nobody waits for one that waits
-- for him. What runs may well have a later slot: a trigger, beside a slot that is staged late. Slots that
-- somebody moved, has run again, or that catch up, are out of the order of time, and so may dependents be: such a one waits for
-- none before it that is not nearly ready, and holds up no other until it is nearly ready itself.
-- Nearly is 2 s, longer than a claim takes: no claim that did not see it yet is still under way when it is claimed itself.
-- A dependent holds up what was triggered after it from the start.
-- What has begun lies less than 10 s ahead, but for what was moved, and for dependents of what was, as far as overrides reach. Slots
-- need not look so far for dependents: a job has a schedule or follows others, and one that fires each second has a
-- minute staged. $3 lies behind $6 in a claim of what has waited for long.
(
    running_limit is null
    or running_limit > (
        select count(*)
        from (
            select
            from executions as other
            where other.job_id = candidate.job_id
                and other.slot >= least(candidate.slot, candidate.ready_at) - interval '1 day'
                and other.slot <= greatest(
                    candidate.slot,
                    greatest($3::timestamptz, $6)
                        + case candidate.kind when 'scheduled' then interval '10 seconds' else interval '32 days' end
                )
                and (other.slot <> candidate.slot or other.kind <> candidate.kind)
                and other.running_limit is not null
                and other.state in ('pending', 'running', 'retrying')
                and case
                    when other.state::text = 'running' then true
                    when other.attempt > 0
                    then candidate.attempt = 0 or (other.slot, other.kind) < (candidate.slot, candidate.kind)
                    when candidate.attempt > 0 or (other.slot, other.kind) > (candidate.slot, candidate.kind) then false
                    when candidate.kind = 'dependency'
                        or candidate.reason in ('moved', 'catch_up', 'redriven', 'rerun', 'upstream_ended')
                        or other.reason in ('moved', 'catch_up', 'redriven', 'rerun', 'upstream_ended')
                    then other.ready_at <= greatest($3::timestamptz, $6) + interval '2 seconds'
                    else true
                end
            limit candidate.running_limit -- of many that wait each looks for as many as hold it up
        ) as first
    ) + (
        select count(*)
        from ahead
        where ahead.job_id = candidate.job_id
            and ahead.slot > greatest(
                candidate.slot,
                greatest($3::timestamptz, $6)
                    + case candidate.kind when 'scheduled' then interval '10 seconds' else interval '32 days' end
            )
            and (ahead.is_running or candidate.attempt = 0)
    ) + (
        select count(*)
        from stale
        where stale.job_id = candidate.job_id
            and stale.slot < least(candidate.slot, candidate.ready_at) - interval '1 day'
            and (
                stale.has_begun
                or (
                    candidate.attempt = 0
                    and (
                        stale.is_nearly_ready
                        or (
                            candidate.kind <> 'dependency'
                            and coalesce(
                                candidate.reason not in ('moved', 'catch_up', 'redriven', 'rerun', 'upstream_ended'), true
                            )
                        )
                    )
                )
            )
    )
)
and exists (select from alive)

-- part: take
-- Raise the fences of what was found and give it to the worker.
-- By its place in the table, where it stays while it is locked. One that was changed between the look and the lock has
-- another place, which this statement cannot see: it is left to the next claim. The key is asked for as well, for a plan that was
-- made while a day had no rows: it goes by the primary key then, and by nothing worse.
-- Arrays, because the planner takes an unnest for few rows and so always goes by the place or the key. Joined to `due`
-- itself it hashed the whole partition: 8 k/s against 38-54 k/s at 200,000 rows (November 2026).
keys as (
    select
        array_agg(place) as places, array_agg(tenant_id) as tenants, array_agg(job_id) as jobs, array_agg(kind) as kinds,
        array_agg(slot) as slots
    from due
)
update executions
set state = 'running',
    fence = executions.fence + 1,
    attempt = executions.attempt + 1,
    worker = $4,
    claimed_at = $6,
    started_at = null,
    held_by = null
from keys
cross join lateral unnest(keys.places, keys.tenants, keys.jobs, keys.kinds, keys.slots)
    as due (place, tenant_id, job_id, kind, slot)
where executions.ctid = due.place
    and executions.tenant_id = due.tenant_id
    and executions.job_id = due.job_id
    and executions.kind = due.kind
    and executions.slot = due.slot
    and executions.slot >= $8
returning
    executions.tenant_id, executions.job_id, executions.kind, executions.slot,
    nullif(executions.ready_at, executions.slot) as ready_at, -- a moment is what takes longest to read
    executions.attempt, executions.fence, executions.revision, executions.priority, executions.payload, executions.gate,
    executions.queueing is not null or executions.gate is not null as is_awaited, executions.checkpoint, executions.held_until

-- name: claim
-- Take up to $5 executions of a pool and priority that are ready by $3 and not before $7, with slots not before $8 (nor is $7, but
-- where all slots are meant), raise their fences and give them to a live worker, in the incarnation of the database in which it entered: one that outlived it enters under another name
-- first, so that no name ever has the same fence twice.
/* part: claimants */,
due as (
    select ctid as place, tenant_id, job_id, kind, slot
    from executions as candidate
    where pool = $1
        and priority = $2
        and ready_at between $7 and $3
        and slot >= $8
        and state in ('pending', 'retrying')
        and /* part: may_start */
    order by ready_at
    limit $5
    for update skip locked
),
/* part: take */

-- name: claim_shares
-- What `claim` does, with a number and a moment for each tenant: of the tenants $5, up to $7 each, not ready before $9.
/* part: claimants */,
due as (
    select found.place, found.tenant_id, found.job_id, found.kind, found.slot
    from unnest($5::integer[], $7::integer[], $9::timestamptz[]) as share (tenant, wanted, since)
    cross join lateral (
        select ctid as place, tenant_id, job_id, kind, slot
        from executions as candidate
        where pool = $1
            and priority = $2
            and tenant_id = share.tenant
            and tenant_id > 0
            and ready_at between share.since and $3
            and slot >= $8
            and state in ('pending', 'retrying')
            and /* part: may_start */
        order by ready_at
        limit share.wanted
        for update skip locked
    ) as found
),
/* part: take */

-- name: startable
-- The keys of up to $5 executions, each of one of the pools and tiers $1 and $2, that could be claimed and were ready before the
-- moment that is given with those. It locks nothing: this may be a long way to go, and is gone beside the claims.
/* part: claimants */
select served.pool, served.priority, found.tenant_id, found.job_id, found.kind, found.slot
from unnest($1::text[], $2::smallint[], $7::timestamptz[]) as served (pool, priority, before)
cross join lateral (
    select tenant_id, job_id, kind, slot
    from executions as candidate
    where pool = served.pool
        and priority = served.priority
        and ready_at < served.before
        and state in ('pending', 'retrying')
        and /* part: may_start */
    order by ready_at
    limit $5
) as found
limit $5

-- name: count_before
-- How many wait in the pools and tiers $1 and $2 that were ready before the moment $3 of each, up to $4 in each.
select count(*)
from unnest($1::text[], $2::smallint[], $3::timestamptz[]) as served (pool, priority, before)
cross join lateral (
    select
    from executions as due
    where pool = served.pool
        and priority = served.priority
        and ready_at < served.before
        and state in ('pending', 'retrying')
    limit $4
) as found

-- name: claim_found
-- What `claim` does, of the executions with the keys $1, $2, $5 and $7 that are in the pool $9.
/* part: claimants */,
due as (
    select found.place, found.tenant_id, found.job_id, found.kind, found.slot
    from unnest($1::integer[], $2::uuid[], $5::execution_kind[], $7::timestamptz[]) as given (tenant_id, job_id, kind, slot)
    cross join lateral (
        select ctid as place, tenant_id, job_id, kind, slot
        from executions as candidate
        where tenant_id = given.tenant_id
            and job_id = given.job_id
            and kind = given.kind
            and slot = given.slot
            and pool = $9
            and ready_at <= $3
            and state::text in ('pending', 'retrying')
            and gate is null
            and /* part: may_start */
        for update skip locked
    ) as found
),
/* part: take */

-- name: due_tiers
-- The pools and tiers of $1 and $2 in which something is ready by $3, and not before the moment that is given with them, whether
-- it may start or not: one entry of the index is read for each. Slots before $5 do not count.
select served.pool, served.priority
from unnest($1::text[], $2::smallint[], $4::timestamptz[]) as served (pool, priority, since)
cross join lateral (
    select
    from executions as due
    where pool = served.pool
        and priority = served.priority
        and ready_at between served.since and $3
        and slot >= $5
        and state in ('pending', 'retrying')
    limit 1
) as found

-- name: waiting_tenants_since
-- The tenants that have executions of a pool and priority ready by $3 and not before $4, with their weights. Each is asked: on a way
-- from one to the next along the index lies whatever vacuum cannot clear away.
select id, weight
from tenants
cross join lateral (
    select
    from executions as due
    where pool = $1
        and priority = $2
        and tenant_id = tenants.id
        and tenant_id > 0
        and ready_at between $4 and $3
        and state in ('pending', 'retrying')
    limit 1
) as found

-- name: waiting_tenants
-- The tenants that have executions of a pool and priority ready by $3, with their weights. Each is found by a
-- step to the next one in the index, however many executions the one before has.
with recursive waiting as (
    (
        select tenant_id, ready_at
        from executions
        where pool = $1
            and priority = $2
            and tenant_id > 0
            and state in ('pending', 'retrying')
        order by tenant_id, ready_at
        limit 1
    )
    union all
    select next.tenant_id, next.ready_at
    from waiting
    cross join lateral (
        select tenant_id, ready_at
        from executions as following
        where pool = $1
            and priority = $2
            and tenant_id > waiting.tenant_id
            and tenant_id > 0
            and state in ('pending', 'retrying')
        order by tenant_id, ready_at
        limit 1
    ) as next
)
select id, weight
from tenants
join waiting on waiting.tenant_id = tenants.id
where waiting.ready_at <= $3

-- name: claim_gated
-- What `claim` does, of executions that wait at gates, which the caller has locked: up to $9 of each line, as long as its
-- group's limit leaves room for that many beside the $10 that run. The gates remember who went through.
/* part: claimants */,
due as (
    select found.place, found.tenant_id, found.job_id, found.kind, found.slot
    from unnest($1::text[], $2::smallint[], $7::integer[], $11::text[], $9::integer[], $10::integer[])
        as line (pool, priority, tenant_id, gate, wanted, running)
    cross join lateral (
        select ctid as place, tenant_id, job_id, kind, slot
        from executions as candidate
        where pool = line.pool
            and priority = line.priority
            and tenant_id = line.tenant_id
            and gate = line.gate
            and gate is not null
            and ready_at <= $3
            and state < 'succeeded'
            and state <> 'running'
            and coalesce(gate_limit >= line.running + line.wanted, true)
            and /* part: may_start */
        order by ready_at
        limit line.wanted
        for update skip locked
    ) as found
    limit $5
),
/* part: take */
