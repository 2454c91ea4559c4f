-- name: insert_jobs
-- Add jobs, with cursors for those that have a schedule; one whose name is taken is left out of the answer. It also tells whether
-- jobs of their tenants are counted: with a lock, so that this is known as of now and stays so.
with made as materialized (
    select *
    from unnest(
        $1::integer[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::smallint[],
        $9::timestamptz[], $10::text[], $11::integer[], $12::boolean[], $13::timestamptz[]
    ) as made (
        tenant_id, id, name, pool, target_kind, tags, spec, shard, next_slot, plan, runs_left, awaits, held_until
    )
),
added as (
    insert into jobs (
        tenant_id, id, name, state, revision, pool, target_kind, tags, spec, created_at, updated_at, defined_at
    )
    select tenant_id, id, name, 'active', 1, pool, target_kind, tags::jsonb, spec::json, $14, $14, $14
    from made
    on conflict (tenant_id, name) where state <> 'deleted' do nothing
    returning id
),
started as (
    insert into cursors (
        tenant_id, job_id, shard, revision, next_slot, plan, runs_left, awaits, is_held, held_until, tzdata
    )
    select
        made.tenant_id, made.id, made.shard, 1, made.next_slot, made.plan, made.runs_left, made.awaits,
        made.held_until is not null, made.held_until, $15
    from made
    join added using (id)
    where made.plan is not null
),
held as materialized (
    select max_jobs is not null as is_counted
    from tenants
    where id = any ($1)
    for key share
)
select id, exists (select from held where is_counted) as is_counted
from added

-- name: get_job
-- One job by id, with its cursor, the next instant that is staged already, and the slots behind the cursor that overrides
-- skip or move.
select j.*, case when not c.awaits then c.next_slot end as next_slot, c.plan, c.runs_left, c.held_until,
    staged.ready_at as staged_at, decided.slots as decided_slots, decided.times as decided_times
from jobs as j
left join cursors as c
    on c.tenant_id = j.tenant_id
    and c.job_id = j.id
left join lateral (
    select min(e.ready_at) as ready_at
    from executions as e
    where e.tenant_id = j.tenant_id
        and e.job_id = j.id
        and e.kind = 'scheduled'
        and e.slot >= least(
            $3::timestamptz - interval '2 days',
            (select min(o.slot) from overrides as o where o.tenant_id = j.tenant_id and o.job_id = j.id and o.ready_at > $3)
        )
        and e.ready_at > $3
        and e.state in ('pending', 'running')
) as staged on true
left join lateral (
    select
        array_agg(o.slot) as slots,
        array_agg(case when o.applied_at is null then o.ready_at end) as times
    from overrides as o
    where o.tenant_id = j.tenant_id
        and o.job_id = j.id
        and o.slot >= c.next_slot
        and o.action <> 'payload'
        and (o.applied_at is not null or o.expires_at is null or o.expires_at > $3)
) as decided on true
where j.tenant_id = $1
    and j.id = $2

-- name: find_job
-- The id of the job that has a name now.
select id
from jobs
where tenant_id = $1
    and name = $2
    and state <> 'deleted'

-- name: await_changes
-- Wait until nobody else changes a job. A statement of its own, so that the next one sees what they committed: one that
-- waits for the job's row does not see the cursor that the job got meanwhile.
select pg_advisory_xact_lock(hashtextextended('cronwell.job.' || $1::integer || '.' || $2::uuid, 0))

-- name: lock_job
-- One job by id, locked until the transaction ends; its cursor first, in the order that staging locks.
with cursor as (
    select tenant_id, job_id, case when not awaits then next_slot end as next_slot, plan, runs_left, held_until
    from cursors
    where tenant_id = $1
        and job_id = $2
    for update
)
select j.*, cursor.next_slot, cursor.plan, cursor.runs_left, cursor.held_until, null::timestamptz as staged_at
from jobs as j
left join cursor on true
where j.tenant_id = $1
    and j.id = $2
for update of j

-- name: list_jobs
-- Jobs by name, from behind the place where the last page ended. The page is cut before anything is looked up for it. Jobs
-- with tags are not asked for behind row-level security, where the index of tags is of no use; so it is said here.
select j.*, case when not c.awaits then c.next_slot end as next_slot, c.plan, c.runs_left, c.held_until,
    staged.ready_at as staged_at, decided.slots as decided_slots, decided.times as decided_times
from (
    select *
    from jobs as listed
    where tenant_id = $1
        and state <> 'deleted'
        and ($3::job_state is null or state = $3)
        and ($4::text is null or (name >= $4 and name < $5))
        and ($6::text is null or (tags @> $6::jsonb and tenant_id = coalesce(acting_tenant(), tenant_id)))
        and ($7::text is null or pool = $7)
        and ($8::text is null or target_kind = $8)
        and ($9::text is null or name > $9)
    order by name
    limit $10
) as j
left join cursors as c
    on c.tenant_id = j.tenant_id
    and c.job_id = j.id
left join lateral (
    select min(e.ready_at) as ready_at
    from executions as e
    where e.tenant_id = j.tenant_id
        and e.job_id = j.id
        and e.kind = 'scheduled'
        and e.slot >= least(
            $2::timestamptz - interval '2 days',
            (select min(o.slot) from overrides as o where o.tenant_id = j.tenant_id and o.job_id = j.id and o.ready_at > $2)
        )
        and e.ready_at > $2
        and e.state in ('pending', 'running')
) as staged on true
left join lateral (
    select
        array_agg(o.slot) as slots,
        array_agg(case when o.applied_at is null then o.ready_at end) as times
    from overrides as o
    where o.tenant_id = j.tenant_id
        and o.job_id = j.id
        and o.slot >= c.next_slot
        and o.action <> 'payload'
        and (o.applied_at is not null or o.expires_at is null or o.expires_at > $2)
) as decided on true
order by j.name

-- name: list_deleted_jobs
-- Deleted jobs by name and id, from behind the place where the last page ended.
select j.*, null::timestamptz as next_slot, null::text as plan, null::integer as runs_left,
    null::timestamptz as held_until, null::timestamptz as staged_at
from jobs as j
where j.tenant_id = $1
    and j.state = 'deleted'
    and ($2::text is null or (j.name >= $2 and j.name < $3))
    and ($4::text is null or j.tags @> $4::jsonb)
    and ($5::text is null or j.pool = $5)
    and ($6::text is null or j.target_kind = $6)
    and ($7::text is null or (j.name, j.id) > ($7, $8::uuid))
order by j.name, j.id
limit $9

-- name: keep_revision
-- Keep what a job was and by which plan it went, before that changes.
insert into job_revisions (tenant_id, job_id, revision, spec, plan, valid_from, valid_to)
select j.tenant_id, j.id, j.revision, j.spec, coalesce(c.plan, ''), coalesce(j.defined_at, j.updated_at), $3
from jobs as j
left join cursors as c
    on c.tenant_id = j.tenant_id
    and c.job_id = j.id
where j.tenant_id = $1
    and j.id = $2
on conflict do nothing

-- name: begin_plan
-- A job goes by another plan from now on; its definition is the same.
update jobs
set defined_at = $3
where tenant_id = $1
    and id = $2

-- name: update_job
-- Give a job a new definition.
update jobs
set name = $3,
    state = $4,
    revision = revision + 1,
    pool = $5,
    target_kind = $6,
    tags = $7::jsonb,
    spec = $8::json,
    updated_at = $9,
    defined_at = $9
where tenant_id = $1
    and id = $2
returning revision

-- name: set_job_state
-- Pause, resume or delete a job.
update jobs
set state = $3,
    pause_note = $4,
    paused_at = $5,
    paused_until = $6,
    deleted_at = case when $3 = 'deleted'::job_state then $7 else deleted_at end,
    updated_at = $7
where tenant_id = $1
    and id = $2

-- name: put_cursor
-- Set where a job stands.
insert into cursors (tenant_id, job_id, shard, is_held, revision, next_slot, plan, runs_left, awaits, tzdata, held_until)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
on conflict (tenant_id, job_id) do update
set is_held = excluded.is_held,
    revision = excluded.revision,
    next_slot = excluded.next_slot,
    plan = excluded.plan,
    runs_left = excluded.runs_left,
    awaits = excluded.awaits,
    tzdata = excluded.tzdata,
    held_until = excluded.held_until

-- name: drop_cursor
-- A job without a schedule has no cursor.
delete from cursors
where tenant_id = $1
    and job_id = $2

-- name: drop_staged
-- Unstage the slots of a job that lie ahead, and what overrides have written there, as a step of replacing them in the
-- same transaction.
delete from executions
where tenant_id = $1
    and job_id = $2
    and kind = 'scheduled'
    and slot > $3
    and ((state = 'pending' and attempt = 0) or (state = 'skipped' and reason = 'override'))

-- name: withhold_due
-- What is due but not started does not start any more; what runs may finish, but is not tried again. What is open is
-- asked for in three parts, here and in the next two statements, because each of them has an index: by the primary key
-- the whole history of a job is read. Of 860,000 executions that took 300-800 ms, and takes 1 (November 2026).
-- A backfill was asked for and goes on through a pause, but ends with its job.
update executions
set state = case state when 'pending' then 'skipped' when 'retrying' then 'cancelled' else state end::execution_state,
    reason = case when state = 'running' then reason else $4 end,
    finished_at = case when state = 'running' then finished_at else $3 end,
    is_last_attempt = true
where tenant_id = $1
    and job_id = $2
    and (kind <> 'backfill' or $4 = 'deleted')
    and (
        (running_limit is not null and state in ('pending', 'running', 'retrying'))
        or (running_limit is null and state in ('pending', 'retrying'))
        or (running_limit is null and state = 'running')
    )
returning state, greatest(ready_at, claimed_at) as starts_at, worker

-- name: rebase_open
-- What is not finished goes on under the job's new revision, pool, priority and group. A backfill keeps its own priority, and its
-- revision where that is the one of the time of the slot. What runs waits for the new group when it is tried again.
update executions
set revision = case when kind = 'backfill' and reason = 'backfill_then' then revision else $3 end,
    pool = case when state = 'running' then pool else $4 end,
    priority = tier_of(
        (case when state = 'running' or kind = 'backfill' then priority % 3 else $5::smallint end)::smallint,
        case when reason is distinct from 'alert' then own.gate end
    ),
    gate = case when reason is distinct from 'alert' then own.gate end,
    gate_limit = $7
from (
    select coalesce($6::text, case when $1 = any(array(select limited_tenants())) then '' end) as gate
) as own
where tenant_id = $1
    and job_id = $2
    and (
        (running_limit is not null and state in ('pending', 'running', 'retrying'))
        or (running_limit is null and state in ('pending', 'retrying'))
        or (running_limit is null and state = 'running')
    )
returning state, greatest(ready_at, claimed_at) as starts_at, worker

-- name: hurry
-- End this transaction where its process does nothing, or it waits for a lock, for the time $1.
select set_config('idle_in_transaction_session_timeout', $1, true), set_config('lock_timeout', $1, true)

-- name: make_way
-- Keep workers from what comes of a limited job from $3 to $4, until they see what this transaction adds before it. A claim
-- that is under way is waited for, and none is made until this transaction has ended: what waits is locked. One that began before
-- that end, and comes to the lock after it, has not seen what was added: the rows it knows have another place by then, and it
-- leaves them to the next (part `take` in claims.sql). That is all that this changes of them. What was moved so far ahead is found by its
-- override; a job with dependents has nothing else there.
with keys as (
    select array_agg(tenant_id) as tenants, array_agg(job_id) as jobs, array_agg(slot) as slots
    from overrides
    where tenant_id = $1
        and job_id = $2
        and action = 'move'
        and slot > $4
        and ready_at <= $4
),
marked as (
    update executions as moved
    set ready_at = moved.ready_at
    from keys
    cross join lateral unnest(keys.tenants, keys.jobs, keys.slots) as at (tenant_id, job_id, slot)
    where moved.tenant_id = at.tenant_id
        and moved.job_id = at.job_id
        and moved.kind = 'scheduled'
        and moved.slot = at.slot
        and moved.running_limit is not null
        and moved.state::text in ('pending', 'retrying')
)
update executions
set ready_at = ready_at
where tenant_id = $1
    and job_id = $2
    and slot > $3
    and (slot <= $4 or kind = 'dependency')
    and running_limit is not null
    and state in ('pending', 'running', 'retrying')
    and state::text <> 'running'

-- name: begun_ahead
-- The last of those which `make_way` would keep workers from that comes first all the same: it had begun, claimed ahead of its
-- instant, or it is a trigger that was answered already. What was moved, and so begins before its slot, is none of them.
select slot
from executions
where tenant_id = $1
    and job_id = $2
    and slot > $3
    and slot <= $4
    and running_limit is not null
    and state in ('pending', 'running', 'retrying')
    and (attempt > 0 or kind = 'manual')
    and reason is distinct from 'moved'
order by slot desc
limit 1

-- name: unfinished
-- The executions of a job whose slot has come and that have not ended, newest first. What was moved counts from the time
-- that it was moved to, and what a worker has claimed counts already: it starts by itself when its slot comes. So does what is to be
-- tried again. Those of a
-- backfill do not count: it has a limit of its own.
select job_id, kind, slot
from executions
where tenant_id = $1
    and job_id = $2
    and (case when reason = 'moved' then ready_at else slot end <= $3 or attempt > 0)
    and kind <> 'backfill'
    and (
        (running_limit is not null and state in ('pending', 'running', 'retrying'))
        or (running_limit is null and state in ('pending', 'retrying'))
        or (running_limit is null and state = 'running')
    )
order by slot desc
limit $4

-- name: definitions
-- What workers need to know of jobs.
select jobs.tenant_id, jobs.id, jobs.name, jobs.revision, jobs.state, jobs.spec
from unnest($1::integer[], $2::uuid[]) as wanted (tenant_id, id)
join jobs
    on jobs.tenant_id = wanted.tenant_id
    and jobs.id = wanted.id

-- name: definitions_at
-- What workers need to know of jobs as they were at a revision that an edit has replaced since.
select distinct on (r.tenant_id, r.job_id, r.revision)
    jobs.tenant_id, jobs.id, jobs.name, r.revision, jobs.state, r.spec
from unnest($1::integer[], $2::uuid[], $3::integer[]) as wanted (tenant_id, id, revision)
join job_revisions as r
    on r.tenant_id = wanted.tenant_id
    and r.job_id = wanted.id
    and r.revision = wanted.revision
join jobs
    on jobs.tenant_id = wanted.tenant_id
    and jobs.id = wanted.id

-- name: pauses_over
-- Jobs whose pause has come to its end.
select tenant_id, id
from jobs
where state = 'paused'
    and paused_until <= $1
limit $2

-- name: signing_secret
-- The secret that a tenant's deliveries are signed with.
select signing_secret
from tenants
where id = $1
