-- name: put_channel
-- Keep a channel: a new one at revision 1, a changed one at the next. Its job is the one that it got first.
insert into alert_channels (tenant_id, id, revision, content, job_id, created_at, updated_at)
values ($1, $2, 1, $3, $4, $5, $5)
on conflict (tenant_id, id) do update
set revision = alert_channels.revision + 1, content = excluded.content, updated_at = excluded.updated_at
returning id, revision, content::text as content, job_id, created_at, updated_at

-- name: get_channels
-- Some channels of a tenant, by name, with the revision of the job of each.
select c.id, c.revision, c.content::text as content, c.job_id, c.created_at, c.updated_at, j.revision as job_revision
from alert_channels as c
cross join lateral (
    -- Looked up one by one, here and below: with a plan from a time without jobs all of a tenant's would be read.
    select looked_up.revision
    from jobs as looked_up
    where looked_up.tenant_id = c.tenant_id
        and looked_up.id = c.job_id
    limit 1
) as j
where c.tenant_id = $1
    and c.id = any($2::text[])
order by c.id

-- name: lock_channels
-- Which channels of a tenant there are, until the transaction ends.
select id
from alert_channels
where tenant_id = $1
    and id = any($2::text[])
for share

-- name: list_channels
-- A tenant's channels by name, from behind the place where the last page ended.
select id, revision, content::text as content, job_id, created_at, updated_at
from alert_channels
where tenant_id = $1
    and ($2::text is null or id > $2)
order by id
limit $3

-- name: drop_channel
-- Forget a channel.
delete from alert_channels
where tenant_id = $1
    and id = $2
returning job_id

-- name: channel_users
-- The rules that speak by a channel; no more than $3 of them.
select id
from alert_rules
where tenant_id = $1
    and $2 = any(channels)
order by id
limit $3

-- name: act_unnoted
-- What follows in this transaction is Cronwell's own doing, and not written down as somebody's.
select set_config('cronwell.actor', '', true)

-- name: put_rule
-- Keep a rule: a new one at revision 1, a changed one at the next. The same content again is no change.
insert into alert_rules (tenant_id, id, revision, content, channels, created_at, updated_at)
values ($1, $2, 1, $3, $4, $5, $5)
on conflict (tenant_id, id) do update
set revision = alert_rules.revision + 1, content = excluded.content, channels = excluded.channels,
    updated_at = excluded.updated_at
where ($6::integer is null or alert_rules.revision = $6)
    and alert_rules.content::text <> excluded.content::text
returning revision

-- name: get_rule
-- One rule of a tenant.
select tenant_id, id, revision, content::text as content, created_at, updated_at
from alert_rules
where tenant_id = $1
    and id = $2

-- name: list_rules
-- A tenant's rules by name, from behind the place where the last page ended.
select tenant_id, id, revision, content::text as content, created_at, updated_at
from alert_rules
where tenant_id = $1
    and ($2::text is null or id > $2)
order by id
limit $3

-- name: drop_rule
-- Forget a rule.
delete from alert_rules
where tenant_id = $1
    and id = $2
returning id

-- name: count_alerting
-- How many rules and channels a tenant has.
select
    (select count(*) from alert_rules where tenant_id = $1) as rules,
    (select count(*) from alert_channels where tenant_id = $1) as channels

-- name: all_rules
-- The rules of all tenants, from behind a place.
select tenant_id, id, revision, content::text as content, created_at, updated_at
from alert_rules
where (tenant_id, id) > ($1, $2::text)
order by tenant_id, id
limit $3

-- name: share_rule
-- Whether a rule is still what it was; it stays that until the transaction ends.
select revision
from alert_rules
where tenant_id = $1
    and id = $2
    and revision = $3
for share

-- name: unsettled_incidents
-- Incidents of all tenants that go on, or whose end was not told yet.
select tenant_id, id, rule, subject, job_name, severity, summary, facts::text as facts, opened_at, told_at, repeated_at, told,
    resolved_at, outcome, settled_at
from alert_incidents
where settled_at is null
    and (tenant_id, id) > ($1, $2::uuid)
order by tenant_id, id
limit $3

-- name: incidents_of_rule
-- The incidents of a rule that are not settled.
select tenant_id, id, rule, subject, job_name, severity, summary, facts::text as facts, opened_at, told_at, repeated_at, told,
    resolved_at, outcome, settled_at
from alert_incidents
where tenant_id = $1
    and settled_at is null
    and rule = $2
order by id

-- name: list_incidents
-- A tenant's incidents, the newest first, from behind the place where the last page ended.
select tenant_id, id, rule, subject, job_name, severity, summary, facts::text as facts, opened_at, told_at, repeated_at, told,
    resolved_at, outcome, settled_at
from alert_incidents
where tenant_id = $1
    and ($2::boolean is null or (resolved_at is null) = $2)
    and ($3::text is null or rule = $3)
    and ($4::uuid is null or id < $4)
order by id desc
limit $5

-- name: open_incident
-- Write down that something is wrong, unless it is written down already, or was over by when it was looked at: whoever looked
-- at it earlier than the one who found it over has old news. Its id comes back where it is new.
insert into alert_incidents (tenant_id, id, rule, subject, job_name, severity, summary, facts, opened_at)
select $1, $2, $3, $4, $5, $6, $7, $8, $9
where not exists (
    select from alert_incidents as over
    where over.tenant_id = $1
        and over.rule = $3
        and over.subject = $4
        and over.resolved_at >= $9
)
on conflict (tenant_id, rule, subject) where resolved_at is null do nothing
returning id

-- name: resolve_incident
-- Write down that something is over, once; not by who looked before it began. Where nobody was told that it began there is
-- nothing more to do.
update alert_incidents
set resolved_at = $3,
    outcome = $4,
    settled_at = case when told_at is null then $3 end
where tenant_id = $1
    and id = $2
    and resolved_at is null
    and opened_at <= $3
returning id

-- name: mark_told
-- Claim the right to tell that an incident began, or goes on: for whoever last saw it told when it was last told.
update alert_incidents
set told_at = coalesce(told_at, $3),
    repeated_at = $3,
    told = case when told_at is null then $4::text[] else told end
where tenant_id = $1
    and id = $2
    and resolved_at is null
    and repeated_at is not distinct from $5
returning id

-- name: mark_settled
-- Claim the right to tell that an incident is over.
update alert_incidents
set settled_at = $3
where tenant_id = $1
    and id = $2
    and resolved_at is not null
    and settled_at is null
returning id

-- name: forget_incidents
-- Forget incidents that were settled long ago.
delete from alert_incidents
where settled_at < $1

-- name: watched_by_name
-- Jobs by their names.
select id, name, state::text as state, tags::text as tags, updated_at
from jobs
where tenant_id = $1
    and name = any($2::text[])
    and state <> 'deleted'

-- name: watched_by_id
-- Jobs by their ids.
select j.id, j.name, j.state::text as state, j.tags::text as tags, j.updated_at
from unnest($2::uuid[]) as wanted (id)
cross join lateral (
    select looked_up.id, looked_up.name, looked_up.state, looked_up.tags, looked_up.updated_at
    from jobs as looked_up
    where looked_up.tenant_id = $1
        and looked_up.id = wanted.id
    limit 1
) as j

-- name: watched_slice
-- The next jobs of a tenant from behind a place, by their ids: those that a schedule fires and that have some tags, and where
-- the slice ended; null where it was the last.
with sliced as (
    select id, name, state, tags, updated_at
    from jobs
    where tenant_id = $1
        and id > $2
    order by id
    limit $4
)
select
    (select max(id::text)::uuid from sliced having count(*) = $4) as ended_at,
    scheduled.id, scheduled.name, scheduled.state, scheduled.tags, scheduled.updated_at
from (select 1) as always
left join (
    select s.id, s.name, s.state::text as state, s.tags::text as tags, s.updated_at
    from sliced as s
    cross join lateral (
        select looked_up.job_id
        from cursors as looked_up
        where looked_up.tenant_id = $1
            and looked_up.job_id = s.id
        limit 1
    ) as c
    where s.state::text = 'active'
        and s.tags @> $3::jsonb
) as scheduled on true

-- name: newest_runs
-- The newest executions of jobs whose slot has come, no more than $4 of each; what a backfill runs is a matter of its own.
select wanted.job_id, e.state, e.slot, e.ready_at, e.started_at
from unnest($2::uuid[]) as wanted (job_id)
cross join lateral (
    select newest.state, newest.slot, newest.ready_at, newest.started_at, newest.kind
    from executions as newest
    where newest.tenant_id = $1
        and newest.job_id = wanted.job_id
        and newest.slot <= $3
    order by newest.slot desc
    limit $4
) as e
where e.kind <> 'backfill'

-- name: last_successes
-- When jobs last succeeded, as far as their newest $5 executions since $3 tell; and whether those are all there are. Looked
-- through from the newest, so that of a job that is well one execution is read.
select
    wanted.job_id,
    success.finished_at,
    case
        when success.finished_at is null then (
            select count(*)
            from (
                select
                from executions as counted
                where counted.tenant_id = $1
                    and counted.job_id = wanted.job_id
                    and counted.slot > $3
                    and counted.slot <= $4
                limit $5
            ) as looked_at
        ) < $5
        else true
    end as is_known
from unnest($2::uuid[]) as wanted (job_id)
left join lateral (
    select newest.finished_at
    from (
        select e.state, e.slot, e.finished_at
        from executions as e
        where e.tenant_id = $1
            and e.job_id = wanted.job_id
            and e.slot > $3
            and e.slot <= $4
        order by e.slot desc
        limit $5
    ) as newest
    where newest.state::text = 'succeeded'
    order by newest.slot desc
    limit 1
) as success on true

-- name: dead_by_job
-- How many of a tenant's newest $2 dead letters each job has.
select job_id, count(*) as dead
from (
    select job_id
    from executions
    where tenant_id = $1
        and state = 'failed'
    order by slot desc
    limit $2
) as newest
group by job_id

-- name: waiting_long
-- What of a tenant has been due since before $2 and waits, the oldest first, no more than $3 in each pool and priority. Pools are
-- found by going from one to the next in the index.
with recursive pools as (
    (
        select head.pool
        from executions as head
        where head.state in ('pending', 'retrying')
        order by head.pool
        limit 1
    )
    union all
    select following.pool
    from pools
    cross join lateral (
        select step.pool
        from executions as step
        where step.state in ('pending', 'retrying')
            and step.pool > pools.pool
        order by step.pool
        limit 1
    ) as following
)
select late.job_id, late.state, late.slot, late.ready_at, late.started_at
from pools
cross join generate_series(0, 5) as tier (priority)
cross join lateral (
    select due.job_id, due.state, due.slot, due.ready_at, null::timestamptz as started_at
    from executions as due
    where due.state in ('pending', 'retrying')
        and due.pool = pools.pool
        and due.priority = tier.priority
        and due.tenant_id = $1
        and due.tenant_id > 0
        and due.ready_at <= $2
    order by due.ready_at
    limit $3
) as late

-- name: running_long
-- Executions of a tenant whose attempt has been running since before $2, the oldest first. As much is read as workers hold at
-- the moment.
select job_id, state, slot, ready_at, started_at
from executions
where state = 'running'
    and tenant_id = $1
    and started_at < $2
order by started_at
limit $3

-- name: waiting_depth
-- How much of a tenant is due and waits, in each pool; counted up to $3 in each pool and priority. Messages of alerts do not
-- count: an alert would keep itself going.
with recursive pools as (
    (
        select head.pool
        from executions as head
        where head.state in ('pending', 'retrying')
        order by head.pool
        limit 1
    )
    union all
    select following.pool
    from pools
    cross join lateral (
        select step.pool
        from executions as step
        where step.state in ('pending', 'retrying')
            and step.pool > pools.pool
        order by step.pool
        limit 1
    ) as following
)
select pools.pool, count(*) as depth
from pools
cross join generate_series(0, 5) as tier (priority)
cross join lateral (
    select
    from executions as due
    where due.state in ('pending', 'retrying')
        and due.pool = pools.pool
        and due.priority = tier.priority
        and due.tenant_id = $1
        and due.tenant_id > 0
        and due.ready_at <= $2
        and due.reason is distinct from 'alert'
    limit $3
) as waiting
group by pools.pool
