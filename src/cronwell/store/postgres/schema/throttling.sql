-- What a target bears, how hosts fare, and which executions wait for their target. With the other files here, the schema that
-- all migrations together make.

-- How many executions of a target may start at a rate, and be under way at once: of the whole installation, for one tenant.
create table target_limits (
    tenant_id integer not null references tenants (id),
    target text collate "C" not null,
    rate text,
    concurrency integer check (concurrency > 0),
    breaker boolean not null default true,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (tenant_id, target)
);

-- What workers have found out of hosts that failed. Each decides by itself and tells the others here: what is lost costs a
-- few calls.
create table hosts (
    tenant_id integer not null references tenants (id),
    host text collate "C" not null,
    state text not null check (state in ('closed', 'open', 'recovering')),
    since timestamptz not null,
    failures integer not null,
    waits integer not null,
    next_probe_at timestamptz not null,
    error text,
    changed_at timestamptz not null,
    primary key (tenant_id, host)
) with (fillfactor = 50);

do $$
declare
    held text;
begin
    foreach held in array array['target_limits', 'hosts'] loop
        execute format('alter table %I enable row level security', held);
        execute format('alter table %I force row level security', held);
        execute format('create policy service on %I to cronwell_service using (true)', held);
        execute format('create policy tenant on %I to cronwell_tenant using (tenant_id = acting_tenant())', held);
        execute format('grant select, insert, update, delete on %I to cronwell_service, cronwell_tenant', held);
    end loop;
end
$$;

-- An execution that its target could not take was written back to be ready later. It waits for `held_by` as long as
-- `held_until` is when it is ready: whatever sets another time to be ready ends that, without knowing of it. A claim forgets
-- `held_by`, so that the index has hardly more than what waits.
alter table executions
    add column held_until timestamptz,
    add column held_by text collate "C";

create index executions_held on executions (held_by) where held_by is not null;
