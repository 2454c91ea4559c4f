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
