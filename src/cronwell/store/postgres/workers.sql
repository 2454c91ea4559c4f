-- name: register
-- Enter a worker with a lease, and tell in which incarnation.
insert into workers (
    id, name, state, version, pools, handlers, concurrency, started_at, heartbeat_at, lease_until, node, incarnation
)
values ($1, $2, 'active', $3, $4, $5, $6, $7, $7, $8, $9, incarnation())
returning incarnation

-- name: heartbeat
-- Lengthen a worker's lease, and tell in which incarnation. Nothing comes back for a worker that was given up as lost: it
-- has no lease to lengthen.
update workers
set heartbeat_at = $2,
    lease_until = $3,
    running = $4,
    state = case when $5 then 'draining'::worker_state else state end
where id = $1
    and state in ('active', 'draining')
returning incarnation() as incarnation

-- name: leave
-- A worker that stops in order gives its lease back.
update workers
set state = 'stopped', running = 0, lease_until = $2, heartbeat_at = $2
where id = $1
    and state in ('active', 'draining')

-- name: lose_workers
-- Give up the workers whose lease has ended.
update workers
set state = 'lost'
where state in ('active', 'draining')
    and lease_until < $1
returning id, name, heartbeat_at

-- name: orphans
-- Executions still held by workers that are gone. The offset keeps the planner from turning it round, which would look
-- at all that runs to find the few whose worker is gone.
select
    held.tenant_id, held.job_id, held.kind, held.slot, held.fence, held.attempt, held.ready_at, held.started_at,
    held.worker, held.cancel_requested_at, j.spec
from workers as w
cross join lateral (
    select *
    from executions as e
    where e.worker = w.id
        and e.state = 'running'
    offset 0
) as held
join jobs as j
    on j.tenant_id = held.tenant_id
    and j.id = held.job_id
where w.state in ('lost', 'stopped')
limit $1

-- name: disown
-- Give executions of a worker that it knows nothing of, and that have begun, to a name that has ended, so that they are rescued: the
-- worker's own may live on for as long as something else of it runs.
with heir as (
    insert into workers (
        id, name, state, version, pools, handlers, concurrency, started_at, heartbeat_at, lease_until, incarnation, node
    )
    select $2, name, 'stopped', version, pools, handlers, 0, started_at, $3, $3, incarnation, node
    from workers
    where id = $1
    returning id
)
update executions as e
set worker = heir.id
from heir
cross join unnest($4::integer[], $5::uuid[], $6::execution_kind[], $7::timestamptz[], $8::bigint[])
    as r (tenant_id, job_id, kind, slot, fence)
where e.tenant_id = r.tenant_id
    and e.job_id = r.job_id
    and e.kind = r.kind
    and e.slot = r.slot
    and e.fence = r.fence
    and e.worker = $1
    and e.state::text = 'running'

-- name: list_workers
-- Workers, living ones first.
select *
from workers
where state in ('active', 'draining')
    or heartbeat_at > $1
order by state, started_at desc
limit 1000

-- name: forget_workers
-- Remove workers that have been gone for long and hold nothing.
delete from workers
where state in ('stopped', 'lost')
    and heartbeat_at < $1
    and not exists (
        select from executions
        where executions.worker = workers.id
            and executions.state = 'running'
    )

-- name: held_by
-- What a worker holds, as the database sees it.
select tenant_id, job_id, kind, slot, fence
from executions
where worker = $1
    and state = 'running'
