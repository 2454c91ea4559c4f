-- name: put_override
-- Keep what was decided about a slot, in place of what was decided before.
insert into overrides (
    tenant_id, job_id, slot, action, ready_at, payload, note, author, expires_at, created_at, applied_at
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, null)
on conflict (tenant_id, job_id, slot) do update
set action = excluded.action,
    ready_at = excluded.ready_at,
    payload = excluded.payload,
    note = excluded.note,
    author = excluded.author,
    expires_at = excluded.expires_at,
    created_at = excluded.created_at,
    applied_at = null

-- name: drop_override
-- Forget what was decided about a slot.
delete from overrides
where tenant_id = $1
    and job_id = $2
    and slot = $3
returning slot

-- name: get_override
-- What was decided about one slot.
select tenant_id, job_id, slot, action, ready_at, payload, note, author, expires_at, created_at, applied_at
from overrides
where tenant_id = $1
    and job_id = $2
    and slot = $3

-- name: list_overrides
-- What was decided about a job's slots, the latest slot first, from behind the place where the last page ended.
select tenant_id, job_id, slot, action, ready_at, payload, note, author, expires_at, created_at, applied_at
from overrides
where tenant_id = $1
    and job_id = $2
    and ($3::timestamptz is null or slot < $3)
order by slot desc
limit $4

-- name: overrides_after
-- What holds for a job's slots after a time, in their order. One that expired before it was applied does not.
select tenant_id, job_id, slot, action, ready_at, payload, note, author, expires_at, created_at, applied_at
from overrides
where tenant_id = $1
    and job_id = $2
    and slot > $3
    and (applied_at is not null or expires_at is null or expires_at > $4)
order by slot

-- name: overrides_waiting
-- Overrides that are to be applied by $2 and are not yet, of jobs that go on, with their plans; earliest first, from
-- behind the place where the last page ended. None is moved by more than $3, so nothing older can still wait.
select o.tenant_id, o.job_id, o.slot, least(o.slot, o.ready_at) as due_at, c.plan
from overrides as o
join cursors as c
    on c.tenant_id = o.tenant_id
    and c.job_id = o.job_id
where o.applied_at is null
    and least(o.slot, o.ready_at) > $1::timestamptz - $3::interval
    and least(o.slot, o.ready_at) <= $2
    and o.slot > $1
    and (o.expires_at is null or o.expires_at > $1)
    and not c.is_held
    and (
        $4::timestamptz is null
        or (least(o.slot, o.ready_at), o.job_id, o.slot) > ($4, $5::uuid, $6::timestamptz)
    )
order by least(o.slot, o.ready_at), o.job_id, o.slot
limit $7

-- name: overrides_applied
-- Note that overrides are written over their slots; the first time counts.
update overrides
set applied_at = coalesce(applied_at, $4)
where tenant_id = $1
    and job_id = $2
    and slot = any($3::timestamptz[])

-- name: slots_left_out
-- The slots of some jobs up to a time that overrides have skipped.
select o.tenant_id, o.job_id, o.slot
from unnest($1::integer[], $2::uuid[], $3::timestamptz[]) as asked (tenant_id, job_id, from_slot)
join overrides as o
    on o.tenant_id = asked.tenant_id
    and o.job_id = asked.job_id
    and o.slot >= asked.from_slot
where o.slot <= $4
    and o.action = 'skip'
    and o.applied_at is not null

-- name: insert_decided
-- Write slots of a job as overrides have them; the slots that had no row yet come back.
insert into executions (
    tenant_id, job_id, kind, slot, ready_at, state, revision, priority, running_limit, pool, payload, reason, finished_at,
    queueing, gate, gate_limit, is_followed
)
select
    $1, $2, 'scheduled', slot, ready_at, state, $3, tier_of($4, own.gate), $5, $6, payload::json, reason, finished_at, $13,
    own.gate, $15, $16
from (
    select coalesce($14::text, case when $1 = any(array(select limited_tenants())) then '' end) as gate
) as own
cross join unnest(
    $7::timestamptz[], $8::timestamptz[], $9::execution_state[], $10::text[], $11::text[], $12::timestamptz[]
) as decided (slot, ready_at, state, payload, reason, finished_at)
on conflict do nothing
returning slot

-- name: clear_slot
-- Take back what is written for one slot, unless a worker has it or it has ended.
delete from executions
where tenant_id = $1
    and job_id = $2
    and kind = 'scheduled'
    and slot = $3
    and ((state::text = 'pending' and attempt = 0) or (state::text = 'skipped' and reason = 'override'))

-- name: slot_state
-- What has become of a slot, where it has a row.
select state
from executions
where tenant_id = $1
    and job_id = $2
    and kind = 'scheduled'
    and slot = $3

-- name: count_ahead
-- How many slots of a job after $3, and before $4 where it is given, have a row that counts as a run.
select count(*)
from executions
where tenant_id = $1
    and job_id = $2
    and kind = 'scheduled'
    and slot > $3
    and ($4::timestamptz is null or slot < $4)
    and not (state::text = 'skipped' and reason = 'override')

-- name: forget_overrides
-- Forget overrides of slots before a time.
delete from overrides
where slot < $1
