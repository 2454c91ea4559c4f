-- name: hold_back
-- Give up claims whose target cannot take them now: each is ready again later, and has used up no attempt. Not what somebody
-- has cancelled, paused or deleted meanwhile; the places of the others come back.
update executions as e
set state = case when e.attempt > 1 then 'retrying'::execution_state else 'pending'::execution_state end,
    attempt = e.attempt - 1,
    worker = null,
    claimed_at = null,
    ready_at = greatest(e.ready_at, r.ready_at),
    held_until = greatest(e.ready_at, r.ready_at),
    held_by = r.held_by
from unnest(
    $1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[], $5::bigint[], $6::timestamptz[], $7::text[]
) with ordinality as r (tenant_id, job_id, kind, slot, fence, ready_at, held_by, place)
where e.tenant_id = r.tenant_id
    and e.job_id = r.job_id
    and e.kind = r.kind
    and e.slot = r.slot
    and e.fence = r.fence
    and e.worker = $8
    and e.state::text = 'running'
    and e.started_at is null
    and e.cancel_requested_at is null
    and not e.is_last_attempt
returning r.place

-- name: release_held
-- Let up to $4 of those that wait for a target be ready now; those of limited jobs in 2 s, as others did not wait for them: see
-- `may_start`. They waited from when they were due on, so none is early.
-- The tenant and the state are hidden from the planner, here and below: it knows of no other way to find what is held.
with waiting as (
    select tenant_id, job_id, kind, slot
    from executions
    where held_by = $2
        and tenant_id + 0 = $1
        and state::text in ('pending', 'retrying')
        and held_until = ready_at
        and ready_at > $3
    order by ready_at
    limit $4
    for update skip locked
),
keys as (
    select array_agg(tenant_id) as tenants, array_agg(job_id) as jobs, array_agg(kind) as kinds, array_agg(slot) as slots
    from waiting
)
update executions as e
set (ready_at, held_until) = (
    select soonest, soonest
    from (
        select least(
            e.ready_at,
            $3::timestamptz + case when e.running_limit is null then interval '0' else interval '2 seconds' end
        ) as soonest
    ) as released
)
from keys
cross join lateral unnest(keys.tenants, keys.jobs, keys.kinds, keys.slots) as w (tenant_id, job_id, kind, slot)
where e.tenant_id = w.tenant_id
    and e.job_id = w.job_id
    and e.kind = w.kind
    and e.slot = w.slot
    and e.state::text in ('pending', 'retrying')

-- name: count_held
-- How many executions wait for each of some targets, counted up to $3 each.
select wanted.target, found.number
from unnest($2::text[]) as wanted (target)
cross join lateral (
    select count(*) as number
    from (
        select
        from executions
        where held_by = wanted.target
            and tenant_id + 0 = $1
            and state::text in ('pending', 'retrying')
            and held_until = ready_at
        limit $3
    ) as waiting
) as found

-- name: throttling
-- What tells a worker whether limits have changed, and who shares them: the living workers that have a pool in common with it.
select
    (select count(*) from target_limits) as limits,
    (select max(updated_at) from target_limits) as newest,
    array(
        select id
        from workers
        where state = 'active'
            and lease_until > $1
            and pools && $2::text[]
        order by id
    ) as workers

-- name: every_limit
-- What all targets bear, of all tenants.
select tenant_id, target, rate, concurrency, breaker, created_at, updated_at
from target_limits

-- name: lock_limit
-- One limit, until the transaction ends.
select tenant_id, target, rate, concurrency, breaker, created_at, updated_at
from target_limits
where tenant_id = $1
    and target = $2
for update

-- name: put_limit
-- Keep what a target bears. A clock that runs behind another's does not hide the change from those who look for the newest.
insert into target_limits as kept (tenant_id, target, rate, concurrency, breaker, created_at, updated_at)
values ($1, $2, $3, $4, $5, $6, $6)
on conflict (tenant_id, target) do update
set rate = excluded.rate,
    concurrency = excluded.concurrency,
    breaker = excluded.breaker,
    updated_at = greatest(excluded.updated_at, kept.updated_at + interval '1 microsecond')
returning tenant_id, target, rate, concurrency, breaker, created_at, updated_at

-- name: drop_limit
-- Forget what a target bears.
delete from target_limits
where tenant_id = $1
    and target = $2

-- name: get_limit
-- What one target bears.
select tenant_id, target, rate, concurrency, breaker, created_at, updated_at
from target_limits
where tenant_id = $1
    and target = $2

-- name: list_limits
-- What targets bear, by name, from behind the place where the last page ended.
select tenant_id, target, rate, concurrency, breaker, created_at, updated_at
from target_limits
where tenant_id = $1
    and ($2::text is null or target > $2)
order by target
limit $3

-- name: note_limit
-- Write down who changed what a target bears.
select note_changes(
    array[$1::integer], array[$2::text], array[$3::text], array[$4::text::json], array[$5::text::json]
)

-- name: note_hosts
-- Tell the others how hosts fare; what somebody has found out later stays.
insert into hosts as kept (
    tenant_id, host, state, since, failures, waits, next_probe_at, error, changed_at
)
select tenant_id, host, state, since, failures, waits, next_probe_at, error, changed_at
from unnest(
    $1::integer[], $2::text[], $3::text[], $4::timestamptz[], $5::integer[], $6::integer[], $7::timestamptz[], $8::text[],
    $9::timestamptz[]
) as found (tenant_id, host, state, since, failures, waits, next_probe_at, error, changed_at)
on conflict (tenant_id, host) do update
set state = excluded.state,
    since = excluded.since,
    failures = excluded.failures,
    waits = excluded.waits,
    next_probe_at = excluded.next_probe_at,
    error = coalesce(excluded.error, kept.error),
    changed_at = excluded.changed_at
where kept.changed_at <= excluded.changed_at

-- name: changed_hosts
-- What has been found out of hosts since a time.
select tenant_id, host, state, since, failures, waits, next_probe_at, error, changed_at
from hosts
where changed_at >= $1

-- name: list_hosts
-- A tenant's hosts that fail or have failed lately, by name, from behind the place where the last page ended.
select tenant_id, host, state, since, failures, waits, next_probe_at, error, changed_at
from hosts
where tenant_id = $1
    and ($2::text is null or host > $2)
    and ($4::text is null or state = $4)
order by host
limit $3

-- name: get_host
-- How one host fares.
select tenant_id, host, state, since, failures, waits, next_probe_at, error, changed_at
from hosts
where tenant_id = $1
    and host = $2

-- name: close_host
-- Somebody says that a host is well: it is called as any other.
update hosts
set state = 'closed', failures = 0, waits = 0, changed_at = greatest($3, changed_at + interval '1 microsecond')
where tenant_id = $1
    and host = $2
    and state <> 'closed'
returning host

-- name: forget_hosts
-- Forget hosts that have been well for long.
delete from hosts
where state = 'closed'
    and changed_at < $1
