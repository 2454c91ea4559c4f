-- name: see
-- A process tells that it lives, and hears whether it was asked to drain. One that is not known, or was forgotten, enters
-- itself; one that was thought to have stopped has not.
insert into nodes (id, role, name, version, started_at, seen_at)
values ($1, $2, $3, $4, $5, $6)
on conflict (id) do update
set seen_at = excluded.seen_at, stopped_at = null
returning drain_requested_at

-- name: stop
-- A process has ended in order.
update nodes
set seen_at = $2, stopped_at = $2
where id = $1

-- name: ask_to_drain
-- Ask a process to drain; asked again, it was asked the first time.
update nodes
set drain_requested_at = coalesce(drain_requested_at, $2)
where id = $1
    and stopped_at is null
returning drain_requested_at

-- name: list_nodes
-- Processes that were seen since a time, those that live first.
select id, role, name, version, started_at, seen_at, stopped_at, drain_requested_at
from nodes
where seen_at >= $1
order by stopped_at is not null, role, started_at, id
limit 10000

-- name: forget_nodes
-- Remove processes that have not been seen for long.
delete from nodes
where seen_at < $1

-- name: incarnation
-- Which server, and which life of it, answers.
select incarnation()

-- name: put_findings
-- Keep what a whole walk found, in place of what the one before found.
insert into findings (kind, found, mended, examples, walked_at)
values ($1, $2, $3, $4, $5)
on conflict (kind) do update
set found = excluded.found, mended = excluded.mended, examples = excluded.examples, walked_at = excluded.walked_at

-- name: list_findings
-- What the last whole walk found, of each kind.
select kind, found, mended, examples, walked_at
from findings
order by kind
