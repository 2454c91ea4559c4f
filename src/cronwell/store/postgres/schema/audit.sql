-- Who changed what. With tables.sql and tenants.sql, the schema that all migrations together make.

create table audit (
    tenant_id integer not null,
    id bigint not null generated always as identity,
    at timestamptz not null,
    actor text collate "C" not null,
    source text not null,
    request_id text not null,
    action text not null,
    object text collate "C" not null,
    before json,
    after json,
    primary key (tenant_id, id)
);

create index audit_object on audit (tenant_id, object, id);

-- The chain: the digest of an entry is of its content and of the digest before it. Entries are chained within a second or so, in
-- the order in which they are found; those that wait for it are in audit_unsealed.
create table audit_seals (
    tenant_id integer not null,
    number bigint not null,
    entry bigint not null,
    digest bytea not null,
    primary key (tenant_id, number),
    unique (tenant_id, entry)
);

create table audit_unsealed (
    tenant_id integer not null,
    id bigint not null,
    primary key (tenant_id, id)
);

create function refuse_change() returns trigger
language plpgsql as $$
begin
    raise exception '% is only ever added to', tg_table_name;
end
$$;

create trigger only_added_to before update or delete or truncate on audit execute function refuse_change();
create trigger only_added_to before update or delete or truncate on audit_seals execute function refuse_change();

create function acting_somebody() returns boolean
language sql stable parallel safe as $$
    select coalesce(current_setting('cronwell.actor', true), '') <> ''
$$;

-- Write changes down in the name of whoever this transaction acts for. In PL/pgSQL, which keeps its plans.
create function note_changes(tenants integer[], actions text[], objects text[], befores json[], afters json[]) returns void
language plpgsql security definer set search_path from current as $$
begin
    if not acting_somebody() then
        return;
    end if;
    with added as (
        insert into audit (tenant_id, at, actor, source, request_id, action, object, before, after)
        select
            changed.tenant_id, clock_timestamp(), current_setting('cronwell.actor'),
            coalesce(current_setting('cronwell.source', true), ''), coalesce(current_setting('cronwell.request', true), ''),
            changed.action, changed.object, changed.was, changed.is_now
        from unnest(tenants, actions, objects, befores, afters) as changed (tenant_id, action, object, was, is_now)
        where changed.tenant_id = coalesce(acting_tenant(), changed.tenant_id)
        returning tenant_id, id
    )
    insert into audit_unsealed (tenant_id, id)
    select tenant_id, id from added;
end
$$;

-- A row as the audit shows it: without digests of keys, without secrets, without what changes by itself. As json, which keeps
-- what users wrote to the letter: as jsonb a short number may become long.
create function shown_row(kept json) returns json
language sql immutable parallel safe as $$
    select json_object_agg(key, value)
    from json_each(kept)
    where key <> all(array['digest', 'signing_secret', 'last_used_at', 'updated_at', 'defined_at', 'applied_at', 'jobs'])
$$;

-- Which thing a row speaks of.
create function named_row(kind text, kept json) returns text
language sql immutable parallel safe as $$
    select kind || ':' || case
        when kind in ('calendar', 'tenant') then kept ->> 'name'
        when kind = 'override' then (kept ->> 'job_id') || '/' || (kept ->> 'slot')
        else kept ->> 'id'
    end
$$;

-- Of many rows at once, in one statement whose plan is kept.
create function note_added() returns trigger
language plpgsql security definer set search_path from current as $$
begin
    with kept as (
        select row_to_json(added) as content from added
    ),
    written as (
        insert into audit (tenant_id, at, actor, source, request_id, action, object, after)
        select
            coalesce((content ->> 'tenant_id')::integer, (content ->> 'id')::integer), clock_timestamp(),
            current_setting('cronwell.actor'), coalesce(current_setting('cronwell.source', true), ''),
            coalesce(current_setting('cronwell.request', true), ''), 'created',
            tg_argv[0] || ':' || case tg_argv[0]
                when 'calendar' then content ->> 'name'
                when 'tenant' then content ->> 'name'
                when 'override' then (content ->> 'job_id') || '/' || (content ->> 'slot')
                else content ->> 'id'
            end,
            (
                select json_object_agg(key, value)
                from json_each(content)
                where key not in ('digest', 'signing_secret', 'last_used_at', 'updated_at', 'defined_at', 'applied_at', 'jobs')
            )
        from kept
        returning tenant_id, id
    )
    insert into audit_unsealed (tenant_id, id)
    select tenant_id, id from written;
    return null;
end
$$;

-- Jobs come by the thousand: their columns are named, which takes a third of the time that taking rows apart does. Those that came
-- one by one and were added together have a request each.
create function note_added_jobs() returns trigger
language plpgsql security definer set search_path from current as $$
declare
    requests json := nullif(current_setting('cronwell.requests', true), '')::json;
begin
    with written as (
        insert into audit (tenant_id, at, actor, source, request_id, action, object, after)
        select
            tenant_id, clock_timestamp(), current_setting('cronwell.actor'),
            coalesce(current_setting('cronwell.source', true), ''),
            coalesce(requests ->> name, current_setting('cronwell.request', true), ''),
            'created', 'job:' || id,
            json_build_object('id', id, 'name', name, 'state', state, 'revision', revision, 'spec', spec)
        from added
        returning tenant_id, id
    )
    insert into audit_unsealed (tenant_id, id)
    select tenant_id, id from written;
    return null;
end
$$;

create function note_changed() returns trigger
language plpgsql security definer set search_path from current as $$
declare
    was json := shown_row(row_to_json(old));
    is_now json := case when tg_op = 'UPDATE' then shown_row(row_to_json(new)) end;
    what text := case when tg_op = 'UPDATE' then 'changed' else 'deleted' end;
begin
    if was::text = is_now::text then
        return null;
    end if;
    if was ->> 'state' <> is_now ->> 'state' then
        what := case when is_now ->> 'state' = 'active' then 'resumed' else is_now ->> 'state' end;
    elsif was ->> 'revoked_at' is distinct from is_now ->> 'revoked_at' then
        what := 'revoked';
    end if;
    perform note_changes(
        array[coalesce((was ->> 'tenant_id')::integer, (was ->> 'id')::integer)], array[what],
        array[named_row(tg_argv[0], was)], array[was], array[is_now]
    );
    return null;
end
$$;

do $$
declare
    watched text[];
begin
    foreach watched slice 1 in array array[
        ['jobs', 'job'], ['api_keys', 'key'], ['tenants', 'tenant'], ['calendars', 'calendar'], ['overrides', 'override'],
        ['backfills', 'backfill']
    ] loop
        execute format(
            'create trigger note_added after insert on %I referencing new table as added for each statement'
            ' when (acting_somebody()) execute function %I(%L)',
            watched[1], case watched[1] when 'jobs' then 'note_added_jobs' else 'note_added' end, watched[2]
        );
        execute format(
            'create trigger note_changed after update or delete on %I for each row'
            ' when (acting_somebody()) execute function note_changed(%L)', watched[1], watched[2]
        );
    end loop;
end
$$;

-- What an entry's digest is made of.
create function audit_content(entry audit) returns bytea
language sql immutable parallel safe as $$
    select convert_to(
        json_build_array(
            entry.tenant_id, entry.id, extract(epoch from entry.at), entry.actor, entry.source, entry.request_id, entry.action,
            entry.object, entry.before, entry.after
        )::text,
        'UTF8'
    )
$$;

-- Chain entries that are not chained yet; how many they were.
create function seal_audit(most integer) returns integer
language plpgsql as $$
declare
    waiting record;
    last audit_seals;
    sealed integer := 0;
begin
    perform pg_advisory_xact_lock(hashtext('cronwell.seal_audit'));
    for waiting in
        select u.tenant_id, u.id, audit_content(a) as content
        from audit_unsealed as u
        join audit as a
            on a.tenant_id = u.tenant_id
            and a.id = u.id
        order by u.tenant_id, u.id
        limit most
    loop
        if last.tenant_id is distinct from waiting.tenant_id then
            select * into last from audit_seals where tenant_id = waiting.tenant_id order by number desc limit 1;
        end if;
        last := row(
            waiting.tenant_id, coalesce(last.number, 0) + 1, waiting.id,
            sha256(coalesce(last.digest, '') || waiting.content)
        );
        insert into audit_seals values (last.*);
        delete from audit_unsealed where tenant_id = waiting.tenant_id and id = waiting.id;
        sealed := sealed + 1;
    end loop;
    return sealed;
end
$$;

do $$
declare
    held text;
begin
    foreach held in array array['audit', 'audit_seals', 'audit_unsealed'] loop
        execute format('alter table %I enable row level security', held);
        execute format('alter table %I force row level security', held);
        execute format('create policy service on %I to cronwell_service using (true)', held);
        execute format('create policy tenant on %I to cronwell_tenant using (tenant_id = acting_tenant())', held);
        execute format('grant select on %I to cronwell_tenant', held);
        execute format('grant select, insert, update, delete on %I to cronwell_service', held);
    end loop;
end
$$;
