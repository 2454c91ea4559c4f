-- name: all_plans
-- What a tenant's scheduled jobs share: each plan with the number of its jobs, unless they are more than a number. The
-- count is of no more than one job above it.
select plan, runs_left, count(*) as jobs
from (
    select plan, runs_left
    from cursors
    where tenant_id = $1
        and next_slot is not null
    order by job_id
    limit $2
) as counted
group by plan, runs_left

-- name: sampled_plans
-- The same of a part of the table's pages, chosen at random; $2 is their share in percent.
select plan, runs_left, count(*) as jobs
from cursors tablesample system ($2::real)
where tenant_id = $1
    and next_slot is not null
group by plan, runs_left

-- name: cursors_estimate
-- About how many cursors there are: as the last analysis found, or by the table's size where there was none.
select case when reltuples > 0 then reltuples else pg_relation_size(oid) / 400 end::float8
from pg_class
where oid = 'cursors'::regclass
