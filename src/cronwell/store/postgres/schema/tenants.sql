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

-- That a job's tenant is there, and stays as it is until the job is: what a foreign key would do for each job is done once for
-- each statement that adds some.
create function hold_tenants() returns trigger
language plpgsql security definer set search_path from current as $$
declare
    held integer;
begin
    for held in select distinct tenant_id from added loop
        perform from tenants where id = held for key share;
        if not found then
            raise foreign_key_violation using message = format('there is no tenant %s', held);
        end if;
    end loop;
    return null;
end
$$;

create function keep_tenant() returns trigger
language plpgsql security definer set search_path from current as $$
begin
    if tg_table_name = 'jobs' then
        raise foreign_key_violation using message = 'a job stays with its tenant';
    end if;
    if exists (select from jobs where tenant_id = old.id) then
        raise foreign_key_violation using message = format('the tenant %s has jobs', old.id);
    end if;
    return null;
end
$$;

create trigger hold_tenants after insert on jobs referencing new table as added
    for each statement execute function hold_tenants();
create trigger keep_tenant before update of tenant_id on jobs
    for each row when (old.tenant_id <> new.tenant_id) execute function keep_tenant();
create trigger keep_tenant_deleted after delete on tenants
    for each row execute function keep_tenant();
create trigger keep_tenant_renumbered after update of id on tenants
    for each row when (old.id <> new.id) execute function keep_tenant();
