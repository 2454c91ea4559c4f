-- Many teams in one database: keys by which they are known, and row-level security that holds each to its own rows.
--
-- Two roles that nobody logs in as. A process that acts for a tenant takes on cronwell_tenant for a transaction and names the
-- tenant in cronwell.tenant; without a name it sees nothing. cronwell_service is everybody who runs Cronwell: whoever migrates
-- is made a member. Permissive policies are alternatives, so a member of both is not held back.
--
-- Roles belong to the whole server: another database, or another process at this moment, may have made them.
do $$
declare
    wanted text;
begin
    foreach wanted in array array['cronwell_service', 'cronwell_tenant'] loop
        if not exists (select from pg_roles where rolname = wanted) then
            begin
                execute format('create role %I nologin', wanted);
            exception
                when duplicate_object or unique_violation then null;
                when insufficient_privilege then
                    raise exception 'the role % is missing and % may not create it', wanted, current_user
                        using hint = format(
                            'as a superuser: create role cronwell_service nologin; create role cronwell_tenant nologin; '
                            'grant cronwell_service, cronwell_tenant to %I;', current_user
                        );
            end;
        end if;
        if not pg_has_role(current_user, wanted, 'usage') then
            begin
                execute format('grant %I to %I', wanted, current_user);
            exception
                when unique_violation then null;
                when insufficient_privilege then
                    raise exception '% may not take on the role %', current_user, wanted
                        using hint = format('as a superuser: grant cronwell_service, cronwell_tenant to %I;', current_user);
            end;
        end if;
    end loop;
end
$$;

-- The roles are the whole server's, so those who run another installation on it have them as well: they may not come in here.
do $$
begin
    execute format('revoke connect on database %I from public', current_database());
end
$$;

create table api_keys (
    tenant_id integer not null references tenants (id),
    id uuid not null,
    name text not null,
    prefix text collate "C" not null unique,
    digest bytea not null,
    scopes text[] not null,
    created_at timestamptz not null,
    created_by text not null,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    replaces uuid,
    primary key (tenant_id, id)
) with (fillfactor = 80);

create function acting_tenant() returns integer
language sql stable parallel safe as $$
    select nullif(current_setting('cronwell.tenant', true), '')::integer
$$;

do $$
declare
    held text;
begin
    foreach held in array array[
        'jobs', 'job_revisions', 'cursors', 'executions', 'attempts', 'skips', 'calendars', 'calendar_uses', 'overrides',
        'backfills', 'idempotency_keys', 'api_keys'
    ] loop
        execute format('alter table %I enable row level security', held);
        execute format('alter table %I force row level security', held);
        execute format('create policy service on %I to cronwell_service using (true)', held);
        execute format('create policy tenant on %I to cronwell_tenant using (tenant_id = acting_tenant())', held);
        execute format('grant select, insert, update, delete on %I to cronwell_service, cronwell_tenant', held);
    end loop;
end
$$;

alter table tenants enable row level security;
alter table tenants force row level security;
create policy service on tenants to cronwell_service using (true);
create policy tenant on tenants to cronwell_tenant using (id = acting_tenant());
-- Not the secret that deliveries are signed with.
grant select (id, name, weight, created_at) on tenants to cronwell_tenant;
grant select on workers to cronwell_tenant;

-- An execution that somebody asks for may be the first of its day, and a tenant's role may not make tables.
alter function ensure_day(date) security definer set search_path from current;
