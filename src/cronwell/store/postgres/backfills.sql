-- name: insert_backfill
-- Keep what was asked for.
insert into backfills (
    tenant_id, id, job_id, state, from_slot, to_slot, definition, is_newest_first, rate, concurrency, spans, slots,
    next_ready_at, payload, note, created_at, updated_at
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $16)

-- name: get_backfill
-- One backfill, with what its job is now.
select
    b.tenant_id, b.id, b.job_id, b.state, b.from_slot, b.to_slot, b.definition, b.is_newest_first, b.rate, b.concurrency,
    b.spans, b.slots, b.reached, b.next_ready_at, b.staged, b.passed_over, b.succeeded, b.failed, b.unfinished, b.payload,
    b.note, b.created_at, b.updated_at, b.finished_at, j.name as job_name, j.state as job_state,
    j.revision as job_revision, j.pool as job_pool, j.spec ->> 'group' as job_group
from backfills as b
join jobs as j
    on j.tenant_id = b.tenant_id
    and j.id = b.job_id
where b.tenant_id = $1
    and b.id = $2

-- name: lock_backfill
-- One backfill, for this transaction alone.
select
    tenant_id, id, job_id, state, from_slot, to_slot, definition, is_newest_first, rate, concurrency, spans, slots,
    reached, next_ready_at, staged, passed_over, succeeded, failed, unfinished, payload, note, created_at, updated_at,
    finished_at
from backfills
where tenant_id = $1
    and id = $2
for update

-- name: share_job
-- What a job is now; it stays so until the transaction ends, so that nothing is staged for one that is deleted in this
-- moment.
select name as job_name, state as job_state, revision as job_revision, pool as job_pool, spec ->> 'group' as job_group
from jobs
where tenant_id = $1
    and id = $2
for share

-- name: list_backfills
-- Backfills of a tenant or of one of its jobs, newest first, from behind the place where the last page ended.
select
    b.tenant_id, b.id, b.job_id, b.state, b.from_slot, b.to_slot, b.definition, b.is_newest_first, b.rate, b.concurrency,
    b.spans, b.slots, b.reached, b.next_ready_at, b.staged, b.passed_over, b.succeeded, b.failed, b.unfinished, b.payload,
    b.note, b.created_at, b.updated_at, b.finished_at, j.name as job_name, j.state as job_state,
    j.revision as job_revision, j.pool as job_pool, j.spec ->> 'group' as job_group
from backfills as b
join jobs as j
    on j.tenant_id = b.tenant_id
    and j.id = b.job_id
where b.tenant_id = $1
    and ($2::uuid is null or b.job_id = $2)
    and ($3::text is null or b.state = $3)
    and ($4::uuid is null or b.id < $4)
order by b.id desc
limit $5

-- name: open_backfills
-- The backfills that have something to stage, executions that have not ended, or a job that is gone.
select tenant_id, id
from backfills
where finished_at is null
    and (
        state = 'running'
        or unfinished <> '{}'
        or (
            select state
            from jobs
            where jobs.tenant_id = backfills.tenant_id
                and jobs.id = backfills.job_id
        ) = 'deleted'
    )
order by created_at
limit $1

-- name: put_backfill
-- Keep how far a backfill has come. It is locked, so nobody else has moved it meanwhile.
update backfills
set state = $3,
    reached = $4,
    next_ready_at = $5,
    staged = $6,
    passed_over = $7,
    succeeded = $8,
    failed = $9,
    unfinished = $10,
    updated_at = $11,
    finished_at = $12,
    note = $13
where tenant_id = $1
    and id = $2

-- name: backfilled
-- Which of some slots have an execution of a backfill, and how each stands.
select e.slot, e.state
from unnest($1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[])
    as wanted (tenant_id, job_id, kind, slot)
join executions as e
    on e.tenant_id = wanted.tenant_id
    and e.job_id = wanted.job_id
    and e.kind = wanted.kind
    and e.slot = wanted.slot

-- name: count_backfilled
-- How many slots of a job have an execution of a backfill, counted up to $5.
select count(*)
from (
    select
    from executions
    where tenant_id = $1
        and job_id = $2
        and kind = 'backfill'
        and slot >= $3
        and slot < $4
    limit $5
) as counted

-- name: insert_asked
-- Add executions that were asked for, rather than scheduled. One that is there already stays as it is. Messages of alerts do
-- not wait for their tenant's quotas: they may have to tell that these are used up. Whether others follow their job is looked up.
insert into executions (
    tenant_id, job_id, kind, slot, ready_at, state, revision, priority, running_limit, pool, payload, reason, queueing, gate,
    gate_limit, is_followed
)
select
    tenant_id, job_id, kind, slot, ready_at, 'pending', revision, tier_of(priority, gate), running_limit, pool, payload::json,
    reason, queueing, gate, gate_limit,
    is_followed or exists (
        select from dependencies as d
        where d.tenant_id = asked.tenant_id
            and d.upstream_id = asked.job_id
    )
from (
    select *, coalesce(named, case when tenant_id = any(array(select limited_tenants())) and reason is distinct from 'alert' then '' end) as gate
    from unnest(
        $1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[], $5::timestamptz[], $6::integer[], $7::smallint[],
        $8::smallint[], $9::text[], $10::text[], $11::text[], $12::smallint[], $13::text[], $14::smallint[], $15::boolean[]
    ) as given (
        tenant_id, job_id, kind, slot, ready_at, revision, priority, running_limit, pool, payload, reason, queueing, named,
        gate_limit, is_followed
    )
) as asked
on conflict do nothing
returning job_id, kind, slot

-- name: unstage
-- Take back executions that have not begun, and never had: their slots may be backfilled another time.
delete from executions as e
using unnest($1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[])
    as asked (tenant_id, job_id, kind, slot)
where e.tenant_id = asked.tenant_id
    and e.job_id = asked.job_id
    and e.kind = asked.kind
    and e.slot = asked.slot
    and e.state::text = 'pending'
    and e.reason is distinct from 'redriven'
returning e.slot

-- name: end_retries
-- What waits to be tried again is not; what runs may finish, but this attempt is its last.
update executions as e
set state = case when e.state = 'running' then e.state else 'cancelled' end,
    reason = case when e.state = 'running' then e.reason else 'cancelled' end,
    finished_at = case when e.state = 'running' then e.finished_at else $5 end,
    is_last_attempt = true
from unnest($1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[])
    as asked (tenant_id, job_id, kind, slot)
where e.tenant_id = asked.tenant_id
    and e.job_id = asked.job_id
    and e.kind = asked.kind
    and e.slot = asked.slot
    and e.state::text in ('pending', 'running', 'retrying')
