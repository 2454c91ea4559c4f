-- part: called
-- What decides how an execution ends that waits for its callback.
select
    e.tenant_id, e.job_id, e.kind, e.slot, j.name as job_name, j.spec, e.state, e.fence,
    coalesce(e.worker, e.callback_worker) as worker, e.attempt, e.started_at,
    e.cancel_requested_at is not null as is_cancelled, e.callback_until, e.callback_deadline
from executions as e
join jobs as j
    on j.tenant_id = e.tenant_id
    and j.id = e.job_id

-- name: park
-- Let attempts wait for their callbacks: they are their worker's no more, whatever becomes of it. The state of each comes
-- back, also of one whose callback was faster than this. Parking twice is parking once.
with told as (
    select *
    from unnest(
        $1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[], $5::bigint[], $6::uuid[], $7::timestamptz[],
        $8::timestamptz[], $9::timestamptz[], $10::interval[]
    ) with ordinality as r (
        tenant_id, job_id, kind, slot, fence, worker, started_at, parked_at, deadline, heartbeat, place
    )
),
parked as (
    update executions as e
    set worker = null,
        callback_worker = r.worker,
        started_at = r.started_at,
        callback_deadline = r.deadline,
        callback_heartbeat = r.heartbeat,
        callback_until = least(r.deadline, r.parked_at + r.heartbeat)
    from told as r
    where e.tenant_id = r.tenant_id
        and e.job_id = r.job_id
        and e.kind = r.kind
        and e.slot = r.slot
        and e.fence = r.fence
        and coalesce(e.worker, e.callback_worker) = r.worker
        and e.state::text = 'running'
        and e.callback_until is null -- it has been given more time, perhaps, since it was parked by a try whose answer was lost
    returning r.place, e.state
)
select place, state
from parked
union all
select r.place, e.state
from told as r
join executions as e
    on e.tenant_id = r.tenant_id
    and e.job_id = r.job_id
    and e.kind = r.kind
    and e.slot = r.slot
    and e.fence = r.fence
    and coalesce(e.worker, e.callback_worker) = r.worker
where r.place not in (select place from parked)

-- name: hear
-- Keep what running attempts tell: progress, a checkpoint, or only that they live, which gives one that waits for its
-- callback time until its next heartbeat is due, or its deadline. An old fence, or another's, changes nothing.
update executions as e
set progress = coalesce(r.progress::json, e.progress),
    checkpoint = coalesce(r.checkpoint::json, e.checkpoint),
    callback_until = case
        when e.callback_until is not null then least(e.callback_deadline, $9::timestamptz + e.callback_heartbeat)
    end
from unnest(
    $1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[], $5::bigint[], $6::uuid[], $7::text[], $8::text[]
) with ordinality as r (tenant_id, job_id, kind, slot, fence, worker, progress, checkpoint, place)
where e.tenant_id = r.tenant_id
    and e.job_id = r.job_id
    and e.kind = r.kind
    and e.slot = r.slot
    and e.fence = r.fence
    and coalesce(e.worker, e.callback_worker) = r.worker
    and e.state::text = 'running'
returning r.place

-- name: get_called
-- One execution, as whoever calls back finds it.
/* part: called */
where e.tenant_id = $1
    and e.job_id = $2
    and e.kind = $3
    and e.slot = $4

-- name: lock_overdue
-- Executions that have waited for their callback for too long, the longest overdue first, until the transaction ends. What is
-- told by a callback at this moment is waited for by nobody: it is passed over, and looked at again.
/* part: called */
where e.callback_until <= $1
order by e.callback_until
limit $2
for update of e skip locked

-- name: lock_called_off
-- Executions that somebody cancelled while they waited for their callback, and that no worker can be asked to stop. In the
-- order of the index of what runs, so that it is gone by on days too that were empty when the plan was made.
/* part: called */
where e.state = 'running'
    and e.worker is null
    and e.cancel_requested_at <= $1
order by e.worker, e.cancel_requested_at
limit $2
for update of e skip locked

-- name: callback_terms
-- What the addresses of callbacks are signed with, and how fast a tenant may send requests.
select k.key, t.max_requests
from callback_keys as k
cross join tenants as t
where t.id = $1
