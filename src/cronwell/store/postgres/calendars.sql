-- name: put_calendar
-- Keep a calendar: a new one at revision 1, a changed one at the next. The same content again is no change.
insert into calendars (tenant_id, name, revision, content, created_at, updated_at)
values ($1, $2, 1, $3, $4, $4)
on conflict (tenant_id, name) do update
set revision = calendars.revision + 1, content = excluded.content, updated_at = excluded.updated_at
where ($5::integer is null or calendars.revision = $5)
    and calendars.content::text <> excluded.content::text
returning revision

-- name: get_calendars
-- Some calendars of a tenant, by name.
select name, revision, content::text as content, created_at, updated_at
from calendars
where tenant_id = $1
    and name = any($2::text[])
order by name

-- name: list_calendars
-- A tenant's calendars by name, from behind the place where the last page ended.
select name, revision, content::text as content, created_at, updated_at
from calendars
where tenant_id = $1
    and ($2::text is null or name > $2)
order by name
limit $3

-- name: calendar_users
-- The jobs that follow a calendar; more than $3 are not counted.
select count(*)
from (
    select from calendar_uses
    where tenant_id = $1
        and calendar = $2
    limit $3
) as followers

-- name: shifting_users
-- The names of jobs that follow a calendar and shift by it, at most so many.
select j.name
from calendar_uses as u
join jobs as j
    on j.tenant_id = u.tenant_id
    and j.id = u.job_id
where u.tenant_id = $1
    and u.calendar = $2
    and j.spec -> 'schedule' ->> 'shift' is not null
order by j.name
limit $3

-- name: drop_calendar
-- Forget a calendar that no job follows.
delete from calendars
where tenant_id = $1
    and name = $2
    and not exists (
        select from calendar_uses
        where calendar_uses.tenant_id = $1
            and calendar_uses.calendar = $2
    )
returning name

-- name: forget_uses
-- A job's schedule is written anew: what it followed before does not count any more.
delete from calendar_uses
where tenant_id = $1
    and job_id = any($2::uuid[])

-- name: note_uses
-- Note which calendars jobs follow, and the revisions that their plans are made of. The calendar's row is locked, so that
-- it cannot be dropped or changed unseen in the same moment; of one that is gone nothing is noted.
insert into calendar_uses (tenant_id, calendar, job_id, revision)
select $1, used.calendar, used.job_id, used.revision
from unnest($2::text[], $3::uuid[], $4::integer[]) as used (calendar, job_id, revision)
join (
    select name
    from calendars
    where tenant_id = $1
        and name = any($2)
    for share
) as held
    on held.name = used.calendar
on conflict (tenant_id, calendar, job_id) do update
set revision = excluded.revision
returning calendar

-- name: waits_over
-- Jobs that their calendars leave without a slot, and that are to be looked at again.
select tenant_id, job_id
from cursors
where held_until <= $1
order by held_until
limit $2

-- name: outdated_uses
-- Jobs whose plan is made of another revision of a calendar than the present one.
select distinct u.tenant_id, u.job_id
from calendars as c
join calendar_uses as u
    on u.tenant_id = c.tenant_id
    and u.calendar = c.name
    and u.revision <> c.revision
limit $1
