-- name: beat
-- Stay a member until $4 seconds from now by the server's clock. The others are told of one that comes, and of one that
-- begins or ceases to reach the preferred coordinator: all of them go by it, or none.
with before as (
    select reaches, lease_until > clock_timestamp() as was_living
    from members
    where id = $1
),
kept as (
    insert into members (id, weight, reaches, lease_until)
    values ($1, $2, $3, clock_timestamp() + make_interval(secs => $4))
    on conflict (id) do update
    set weight = excluded.weight, reaches = excluded.reaches, lease_until = excluded.lease_until
    returning id
)
select pg_notify($5, '')
from kept
where not exists (select from before where was_living and reaches = $3)

-- name: members
-- The members that live.
select id, weight, reaches
from members
where lease_until > clock_timestamp()

-- name: owners
-- Who was last given each duty.
select name, owner
from duties

-- name: take
-- Take duties from the owners that they were seen with, in the order of their names so that nobody waits in a circle.
-- One that nobody ever had is made. What another transaction changes at this moment is not had.
with wanted as (
    select name, seen
    from unnest($1::text[], $2::uuid[]) as w (name, seen)
    where exists (select from members where id = $3 and lease_until > clock_timestamp())
),
made as (
    insert into duties (name, owner)
    select name, $3
    from wanted
    where seen is null
    order by name
    on conflict do nothing
    returning name
),
there as (
    select d.name
    from duties as d
    join wanted as w on w.name = d.name and w.seen = d.owner
    order by d.name
    for update of d skip locked
),
taken as (
    update duties
    set owner = $3
    from there
    where duties.name = there.name
    returning duties.name
)
select name from made
union all
select name from taken

-- name: give
-- Give duties back and tell the others. A duty without an owner is one whose row has gone.
with given as (
    delete from duties
    where owner = $2
        and name = any($1::text[])
    returning name
)
select pg_notify($3, '')
from given
limit 1

-- name: leave
-- Give everything back and be a member no more.
with given as (
    delete from duties
    where owner = $1
),
gone as (
    delete from members
    where id = $1
)
select pg_notify($2, '')

-- name: forget
-- Members whose lease ended long ago, which are seen by nobody.
delete from members
where lease_until < clock_timestamp() - interval '1 hour'
