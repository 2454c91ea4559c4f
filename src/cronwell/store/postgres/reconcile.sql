-- name: accountable_jobs
-- Jobs that existed in a range of time, of one shard or of all, by id, with the definition that holds now. A deleted or
-- finished job has none: its last one is among the revisions. The shard is a job's last byte: see `model.shards`.
select j.id, j.name, j.revision, j.created_at, coalesce(j.defined_at, j.updated_at) as defined_at,
    case when j.state = 'paused' then j.paused_at end as paused_at, c.plan, c.next_slot is null and not c.is_held as is_over
from (
    select *
    from jobs as listed
    where tenant_id = $1
        and id > $2
        and ($3::integer is null or get_byte(uuid_send(id), 15) % 64 = $3)
        and created_at < $5
        and (deleted_at is null or deleted_at >= $4)
    order by id
    limit $6
) as j
left join cursors as c
    on c.tenant_id = j.tenant_id
    and c.job_id = j.id
order by j.id

-- name: revisions_between
-- The definitions of some jobs that an edit, a calendar, a delete or their end replaced, and that held in a range of time.
select job_id, revision, nullif(plan, '') as plan, valid_from, valid_to
from job_revisions
where tenant_id = $1
    and job_id = any($2::uuid[])
    and valid_from < $4
    and valid_to >= $3

-- name: skips_between
-- The ranges of slots of some jobs that were not run, and that reach into a range of time.
select job_id, from_slot, to_slot
from skips
where tenant_id = $1
    and job_id = any($2::uuid[])
    and from_slot < $4
    and to_slot >= $3

-- name: slots_between
-- The slots of some jobs that have an execution, whatever became of it, in a range of time.
select job_id, slot
from executions
where tenant_id = $1
    and job_id = any($2::uuid[])
    and kind = 'scheduled'
    and slot >= $3
    and slot < $4
order by job_id, slot

-- name: last_slots
-- The newest slot of each of some jobs that has an execution.
select wanted.job_id, last.slot
from unnest($2::uuid[]) as wanted (job_id)
cross join lateral (
    select e.slot
    from executions as e
    where e.tenant_id = $1
        and e.job_id = wanted.job_id
        and e.kind = 'scheduled'
    order by e.slot desc
    limit 1
) as last
