-- name: window_end
-- The key of the cursor that stands so many places behind another, up to a last key: cursors are gone through in windows,
-- as those that are looked for may be none among millions.
select tenant_id, job_id
from cursors
where (tenant_id, job_id) > ($1::integer, $2::uuid)
    and (tenant_id, job_id) <= ($3::integer, $4::uuid)
order by tenant_id, job_id
offset $5
limit 1

-- name: stale_cursors
-- The cursors of a window whose next slot was found by another release of the zones' rules than these.
select tenant_id, job_id, revision, next_slot, plan, runs_left, tzdata
from cursors
where (tenant_id, job_id) > ($1::integer, $2::uuid)
    and (tenant_id, job_id) <= ($3::integer, $4::uuid)
    and next_slot is not null
    and not awaits
    and (tzdata is null or tzdata <> all ($5::text[]))
order by tenant_id, job_id

-- name: lock_cursors
-- Hold some cursors until the transaction ends, in the order of their keys, so that two who want the same do not wait in
-- a circle.
select c.tenant_id, c.job_id
from unnest($1::integer[], $2::uuid[]) as wanted (tenant_id, job_id)
join cursors as c
    on c.tenant_id = wanted.tenant_id
    and c.job_id = wanted.job_id
order by c.tenant_id, c.job_id
for update of c

-- name: standings
-- Where some jobs stand: the cursor, since when it goes by its plan, the newest slot that has an execution in the day
-- before, and the slots that are staged ahead.
select c.tenant_id, c.job_id, c.revision, c.next_slot, c.plan, c.runs_left, c.tzdata, j.name,
    greatest(j.updated_at, j.defined_at) as since,
    (
        select max(e.slot)
        from executions as e
        where e.tenant_id = c.tenant_id
            and e.job_id = c.job_id
            and e.kind = 'scheduled'
            and e.slot <= $3
            and e.slot > least(c.next_slot, $3) - $4::interval
            and e.slot < c.next_slot
    ) as reached,
    array(
        select e.slot
        from executions as e
        where e.tenant_id = c.tenant_id
            and e.job_id = c.job_id
            and e.kind = 'scheduled'
            and e.slot > $3
            and e.slot < c.next_slot
        order by e.slot
    ) as ahead
from unnest($1::integer[], $2::uuid[]) as wanted (tenant_id, job_id)
join cursors as c
    on c.tenant_id = wanted.tenant_id
    and c.job_id = wanted.job_id
join jobs as j
    on j.tenant_id = c.tenant_id
    and j.id = c.job_id
where c.next_slot is not null
    and not c.awaits
order by c.tenant_id, c.job_id

-- name: mark_tzdata
-- Note by which release cursors go, unless they have moved meanwhile.
update cursors
set tzdata = $5
from unnest($1::integer[], $2::uuid[], $3::integer[], $4::timestamptz[])
    as marked (tenant_id, job_id, revision, next_slot)
where cursors.tenant_id = marked.tenant_id
    and cursors.job_id = marked.job_id
    and cursors.revision = marked.revision
    and cursors.next_slot = marked.next_slot
