-- What an execution has to wait for beside its instant: others of its job, of its group, and its tenant's quotas.
--
-- Those that have a gate stand in tiers of their own, 3 above the usual ones, in which a worker of the release before does
-- not look: it would not know what to wait for.
alter table tenants
    add column max_running integer check (max_running >= 1),
    add column max_per_minute integer check (max_per_minute >= 1);

grant select (max_running, max_per_minute) on tenants to cronwell_tenant;

alter table executions
    add column queueing smallint,
    add column gate text collate "C",
    add column gate_limit smallint,
    add column is_followed boolean not null default false;

create index executions_gated on executions (pool, priority, tenant_id, gate, ready_at)
    where gate is not null and state < 'succeeded' and state <> 'running';

create table gates (
    tenant_id integer not null,
    gate text collate "C" not null,
    minute timestamptz not null default '-infinity',
    used integer not null default 0,
    primary key (tenant_id, gate)
) with (fillfactor = 50);

create table holds (
    tenant_id integer not null,
    gate text collate "C" not null,
    job_id uuid not null,
    slot timestamptz not null,
    kind execution_kind not null,
    fence bigint not null,
    primary key (tenant_id, gate, job_id, slot, kind)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

do $$
declare
    held text;
begin
    foreach held in array array['gates', 'holds'] loop
        execute format('alter table %I enable row level security', held);
        execute format('alter table %I force row level security', held);
        execute format('create policy service on %I to cronwell_service using (true)', held);
        execute format('create policy tenant on %I to cronwell_tenant using (tenant_id = acting_tenant())', held);
        execute format('grant select, insert, update, delete on %I to cronwell_service, cronwell_tenant', held);
    end loop;
end
$$;

-- The tenants whose executions wait for a quota.
create function limited_tenants() returns setof integer
language sql stable as $$
    select id from tenants where max_running is not null or max_per_minute is not null
$$;

-- Where an execution stands in its pool: apart from the others if it has a gate.
create function tier_of(priority smallint, gate text) returns smallint
language sql immutable parallel safe as $$
    select (priority + case when gate is null then 0 else 3 end)::smallint
$$;
