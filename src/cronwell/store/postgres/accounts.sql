-- name: revision_at
-- The definition that a job had at a time: the present one, or one that an edit replaced. A deleted job's last one is
-- among the replaced.
select revision, plan, valid_from, valid_to
from (
    select j.revision, c.plan, coalesce(j.defined_at, j.updated_at) as valid_from, null::timestamptz as valid_to
    from jobs as j
    join cursors as c
        on c.tenant_id = j.tenant_id
        and c.job_id = j.id
    where j.tenant_id = $1
        and j.id = $2
    union all
    select revision, nullif(plan, ''), valid_from, valid_to
    from job_revisions
    where tenant_id = $1
        and job_id = $2
) as known
where valid_from <= $3
    and (valid_to is null or valid_to > $3)
order by revision desc, valid_from desc
limit 1

-- name: last_plan
-- By which plan a job went last.
select plan
from job_revisions
where tenant_id = $1
    and job_id = $2
    and plan <> ''
order by revision desc, valid_from desc
limit 1

-- name: revisions_over
-- The definitions that a job had between two times, in the order in which they held, at most so many. Its state is compared as
-- text, so that the index of names, whose one column that fits is the tenant, cannot be gone by.
select revision, plan, valid_from, valid_to
from (
    select j.revision, c.plan, coalesce(j.defined_at, j.updated_at) as valid_from, null::timestamptz as valid_to
    from jobs as j
    left join cursors as c
        on c.tenant_id = j.tenant_id
        and c.job_id = j.id
    where j.tenant_id = $1
        and j.id = $2
        and j.state::text <> 'deleted'
    union all
    select revision, nullif(plan, ''), valid_from, valid_to
    from job_revisions
    where tenant_id = $1
        and job_id = $2
) as known
where valid_from < $4
    and (valid_to is null or valid_to >= $3)
order by revision, valid_from
limit $5

-- name: skips_over
-- The ranges of a job's slots that were not run and that reach over a time.
select reason, from_slot, to_slot, slots, noted_at
from skips
where tenant_id = $1
    and job_id = $2
    and from_slot <= $3
    and to_slot >= $3
order by noted_at
