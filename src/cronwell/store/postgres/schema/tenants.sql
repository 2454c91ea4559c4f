-- Who may see which rows. With tables.sql, the schema that all migrations together make.

-- For which tenant a transaction acts, as it has said itself.
create function acting_tenant() returns integer
language sql stable parallel safe as $$
    select nullif(current_setting('cronwell.tenant', true), '')::integer
$$;

-- Two roles that nobody logs in as. A process that acts for a tenant takes on cronwell_tenant for a transaction and names the
-- tenant in cronwell.tenant; without a name it sees nothing. cronwell_service is everybody who runs Cronwell: whoever migrates
-- is made a member. Permissive policies are alternatives, so a member of both is not held back.
do $$
declare
    held text;
begin
    foreach held in array array[
        'jobs', 'job_revisions', 'cursors', 'executions', 'attempts', 'skips', 'calendars', 'calendar_uses', 'overrides',
        'backfills', 'idempotency_keys', 'api_keys', 'gates', 'holds', 'dependencies', 'waiting_slots'
    ] loop
        execute format('alter table %I enable row level security', held);
        execute format('alter table %I force row level security', held);
        execute format('create policy service on %I to cronwell_service using (true)', held);
        execute format('create policy tenant on %I to cronwell_tenant using (tenant_id = acting_tenant())', held);
        execute format('grant select, insert, update, delete on %I to cronwell_service, cronwell_tenant', held);
    end loop;
end
$$;

-- Who went through a gate, and how often, is for workers to write: whoever acts for a tenant only says why something waits.
revoke insert, update, delete on gates, holds from cronwell_tenant;

alter table tenants enable row level security;
alter table tenants force row level security;
create policy service on tenants to cronwell_service using (true);
create policy tenant on tenants to cronwell_tenant using (id = acting_tenant());
-- Not the secret that deliveries are signed with.
grant select (
    id, name, weight, created_at, max_jobs, max_payload, max_requests, jobs, max_running, max_per_minute
), update (jobs) on tenants to cronwell_tenant;
grant select on workers to cronwell_tenant;
