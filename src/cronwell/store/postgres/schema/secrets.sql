-- Secrets and who names them. With tables.sql, the schema that all migrations together make.

create table secrets (
    tenant_id integer not null references tenants (id),
    name text collate "C" not null,
    revision integer not null,
    key_id text not null,
    wrapped_key bytea not null,
    ciphertext bytea not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (tenant_id, name)
) with (fillfactor = 80);

create table secret_uses (
    tenant_id integer not null references tenants (id),
    secret text collate "C" not null,
    job_id uuid not null,
    primary key (tenant_id, secret, job_id)
);

create index secret_uses_job on secret_uses (tenant_id, job_id);

-- Who set which secret, and by way of which key; nothing of what it is.
create function note_secret() returns trigger
language plpgsql security definer set search_path from current as $$
declare
    was json := case when tg_op <> 'INSERT' then
        json_build_object('name', old.name, 'revision', old.revision, 'key_id', old.key_id)
    end;
    is_now json := case when tg_op <> 'DELETE' then
        json_build_object('name', new.name, 'revision', new.revision, 'key_id', new.key_id)
    end;
begin
    perform note_changes(
        array[coalesce(new.tenant_id, old.tenant_id)],
        array[case
            when tg_op = 'INSERT' then 'created'
            when tg_op = 'DELETE' then 'deleted'
            when new.revision = old.revision then 'rewrapped'
            else 'changed'
        end],
        array['secret:' || coalesce(new.name, old.name)], array[was], array[is_now]
    );
    return null;
end
$$;

create trigger note_secret after insert or update or delete on secrets for each row
    when (acting_somebody()) execute function note_secret();

do $$
declare
    held text;
begin
    foreach held in array array['secrets', 'secret_uses'] loop
        execute format('alter table %I enable row level security', held);
        execute format('alter table %I force row level security', held);
        execute format('create policy service on %I to cronwell_service using (true)', held);
        execute format('create policy tenant on %I to cronwell_tenant using (tenant_id = acting_tenant())', held);
        execute format('grant select, insert, update, delete on %I to cronwell_service', held);
        execute format('grant insert, update, delete on %I to cronwell_tenant', held);
    end loop;
end
$$;

-- What is written for a tenant is opened by workers only, which act for nobody.
grant select (tenant_id, name, revision, key_id, created_at, updated_at) on secrets to cronwell_tenant;
grant select on secret_uses to cronwell_tenant;
