-- name: lock_due
-- The cursors of some shards with a slot to stage up to $2, and not before the moment that is given with the shard, earliest
-- first; those locked by another scheduler are passed over: it is staging them now.
select due.tenant_id, due.job_id, due.revision, due.next_slot, due.plan, due.runs_left, due.tzdata
from unnest($1::smallint[], $4::timestamptz[]) as owned (shard, since)
cross join lateral (
    select tenant_id, job_id, revision, next_slot, plan, runs_left, tzdata
    from cursors
    where shard = owned.shard
        and next_slot between owned.since and $2
        and not awaits
    order by next_slot
    limit $3
    for update skip locked
) as due

-- name: insert_executions
-- Stage slots. A slot that already has its verdict (a cancelled one, say) keeps it.
insert into executions (
    tenant_id, job_id, kind, slot, ready_at, state, revision, priority, running_limit, pool, reason, finished_at, queueing,
    gate, gate_limit, is_followed
)
select
    tenant_id, job_id, 'scheduled', slot, ready_at, state, revision, tier_of(priority, gate), running_limit, pool, reason,
    finished_at, queueing, gate, gate_limit, is_followed
from (
    select *, coalesce(named, case when tenant_id = any(array(select limited_tenants())) then '' end) as gate
    from unnest(
        $1::integer[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::execution_state[], $6::integer[],
        $7::smallint[], $8::smallint[], $9::text[], $10::text[], $11::timestamptz[], $12::smallint[], $13::text[],
        $14::smallint[], $15::boolean[]
    ) as given (
        tenant_id, job_id, slot, ready_at, state, revision, priority, running_limit, pool, reason, finished_at, queueing,
        named, gate_limit, is_followed
    )
    offset 0
) as staged
on conflict do nothing

-- part: staged
-- Slots that simply wait for their instant, of which a job has many: what they share with their job is sent once for each
-- job, and looked up by its number. Numbers, not a join: a plan made for few rows would compare each slot with each job. A limit
-- of 0 stands for none, because an array with nulls is searched from its start. Times are microseconds since 1970, which a
-- client writes in a third of the time that it takes for a timestamp; a slot without another time is ready at its own.
(
    tenant_id, job_id, kind, slot, ready_at, state, revision, priority, running_limit, pool, queueing, gate, gate_limit,
    is_followed
)
select
    ($1::integer[])[job], ($2::uuid[])[job], 'scheduled', slot, ready_at, 'pending', ($3::integer[])[job],
    tier_of(($4::smallint[])[job], gate), nullif(($5::smallint[])[job], 0), ($6::text[])[($7::integer[])[job]],
    nullif(($11::smallint[])[job], 0), gate, ($13::smallint[])[($14::integer[])[job]], ($15::boolean[])[job]
from (
    select
        *,
        coalesce(
            ($12::text[])[($14::integer[])[job]],
            case when ($1::integer[])[job] = any(array(select limited_tenants())) then '' end
        ) as gate
    from (
        select
            job,
            timestamptz 'epoch' + at * interval '1 microsecond' as slot,
            timestamptz 'epoch' + coalesce(later, at) * interval '1 microsecond' as ready_at
        from unnest($8::integer[], $9::bigint[], $10::bigint[]) as given (job, at, later)
    ) as given
    offset 0
) as staged

-- name: insert_fresh
-- Stage slots that simply wait for their instant, none of which has its verdict already, as it nearly always is: with one
-- that has, nothing is staged. Without a clause for conflicts a row is not first entered on trial: stage, claim and record
-- reached 35.1 and 34.0 k/s in all, and 30.7, 18.8, 22.0 and 30.3 k/s with it, on a machine that others used too (November 2026).
insert into executions /* part: staged */

-- name: insert_staged
-- What `insert_executions` does for slots that simply wait for their instant.
insert into executions /* part: staged */
on conflict do nothing

-- name: move_cursors
-- Compare and set: a cursor moves only from the slot and revision that its executions were planned from.
update cursors
set next_slot = moved.next_slot,
    runs_left = moved.runs_left,
    awaits = moved.awaits,
    is_held = moved.held_until is not null,
    held_until = moved.held_until,
    tzdata = $9
from unnest(
    $1::integer[], $2::uuid[], $3::integer[], $4::timestamptz[], $5::timestamptz[], $6::integer[], $7::boolean[],
    $8::timestamptz[]
) as moved (tenant_id, job_id, revision, from_slot, next_slot, runs_left, awaits, held_until)
where cursors.tenant_id = moved.tenant_id
    and cursors.job_id = moved.job_id
    and cursors.revision = moved.revision
    and cursors.next_slot = moved.from_slot

-- name: insert_skips
-- Note ranges of slots that are not run, with the reason. Of two that begin alike the longer one stays, with its count;
-- none is known of a range without one.
insert into skips (tenant_id, job_id, reason, from_slot, to_slot, slots, noted_at)
select tenant_id, job_id, reason, from_slot, to_slot, slots, $7::timestamptz
from unnest($1::integer[], $2::uuid[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::integer[])
    as ranges (tenant_id, job_id, reason, from_slot, to_slot, slots)
on conflict (tenant_id, job_id, from_slot, reason) do update
set to_slot = greatest(skips.to_slot, excluded.to_slot),
    slots = case when excluded.to_slot >= skips.to_slot then excluded.slots else skips.slots end,
    noted_at = excluded.noted_at

-- name: lock_awaiting
-- Cursors whose execution has ended, with when it did (null where retention has taken it), and their plan. An execution
-- that waits to be tried again has not ended.
select c.tenant_id, c.job_id, c.revision, c.next_slot, c.plan, c.runs_left, e.finished_at
from cursors as c
left join lateral (
    -- Looked up one by one, by the whole key: with a plan from a time without executions it would read them all.
    select awaited.state, awaited.finished_at
    from executions as awaited
    where awaited.tenant_id = c.tenant_id
        and awaited.job_id = c.job_id
        and awaited.kind = 'scheduled'
        and awaited.slot = c.next_slot
    limit 1
) as e on true
where c.awaits
    and not c.is_held
    and c.next_slot <= $1
    and (e.state is null or e.state not in ('pending', 'running', 'retrying'))
limit $2
for update of c skip locked

-- name: finish_ended
-- Jobs without a further slot are finished once their last execution has ended; their cursors go, they follow no calendar
-- any more, and what they were is kept with the time until which it held. Executions are looked
-- through from the newest, so that as long as the last one goes on its job's history is not read. The job's state is
-- compared as text, so that a plan made while there were no jobs cannot go by the index of names, whose one column that
-- fits is the tenant: it would read all jobs for each one that ends.
with ended as (
    select tenant_id, job_id, plan
    from cursors
    where next_slot is null
        and not is_held
        and (
            select slot
            from executions
            where executions.tenant_id = cursors.tenant_id
                and executions.job_id = cursors.job_id
                and executions.state in ('pending', 'running', 'retrying')
            order by slot desc
            limit 1
        ) is null
    limit $1
    for update skip locked
),
gone as (
    delete from cursors
    using ended
    where cursors.tenant_id = ended.tenant_id
        and cursors.job_id = ended.job_id
),
unfollowed as (
    delete from calendar_uses
    using ended
    where calendar_uses.tenant_id = ended.tenant_id
        and calendar_uses.job_id = ended.job_id
),
kept as (
    insert into job_revisions (tenant_id, job_id, revision, spec, plan, valid_from, valid_to)
    select j.tenant_id, j.id, j.revision, j.spec, ended.plan, coalesce(j.defined_at, j.updated_at), $2
    from ended
    join jobs as j
        on j.tenant_id = ended.tenant_id
        and j.id = ended.job_id
    on conflict do nothing
)
update jobs
set state = 'finished', updated_at = $2
from ended
where jobs.tenant_id = ended.tenant_id
    and jobs.id = ended.job_id
    and jobs.state::text = 'active'

-- name: ensure_day
-- Make the partitions of one day, unless they are there.
select ensure_day($1::date)

-- name: days
-- The days that have partitions.
select to_date(right(child.relname, 8), 'YYYYMMDD') as day
from pg_inherits
join pg_class as child on child.oid = pg_inherits.inhrelid
where pg_inherits.inhparent = 'executions'::regclass
order by day

-- name: is_day_busy
-- Whether a day still has an execution that is not finished. Asked in two halves, each of which has an index that is
-- nearly empty for such a day; in one it read the whole day.
select
    exists (
        select from executions
        where slot >= $1
            and slot < $2
            and state in ('pending', 'retrying')
    )
    or exists (
        select from executions
        where slot >= $1
            and slot < $2
            and state = 'running'
    )

-- name: span
-- From the first moment of the oldest day that has partitions to the last of the newest.
select
    to_date(min(right(child.relname, 8)), 'YYYYMMDD')::timestamp at time zone 'UTC' as oldest,
    (to_date(max(right(child.relname, 8)), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC' as newest
from pg_inherits
join pg_class as child on child.oid = pg_inherits.inhrelid
where pg_inherits.inhparent = 'executions'::regclass
