-- Alerts: rules, the channels that they speak by, and the incidents that they found.

-- `id` is the name that its tenant gave it. What in a channel's definition is secret is kept in the definition of its job alone.
create table alert_channels (
    tenant_id integer not null references tenants (id),
    id text collate "C" not null,
    revision integer not null,
    content json not null,
    job_id uuid not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (tenant_id, id)
);

create table alert_rules (
    tenant_id integer not null references tenants (id),
    id text collate "C" not null,
    revision integer not null,
    content json not null,
    channels text[] not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (tenant_id, id)
);

-- `subject` is what the incident is about: a job's id, nothing where the rule is about all that it watches together, or * for
-- the jobs beyond those that are told one by one. `told` are the channels that were told that it began; it is settled once it
-- is resolved and they have been told that as well.
create table alert_incidents (
    tenant_id integer not null references tenants (id),
    id uuid not null,
    rule text collate "C" not null,
    subject text collate "C" not null,
    job_name text,
    severity text not null,
    summary text not null,
    facts json not null,
    opened_at timestamptz not null,
    told_at timestamptz,
    repeated_at timestamptz,
    told text[] not null default '{}',
    resolved_at timestamptz,
    outcome text,
    settled_at timestamptz,
    primary key (tenant_id, id)
);

-- One thing is one incident, whoever finds it how often.
create unique index alert_incidents_open on alert_incidents (tenant_id, rule, subject) where resolved_at is null;
create index alert_incidents_subject on alert_incidents (tenant_id, rule, subject, resolved_at);
create index alert_incidents_unsettled on alert_incidents (tenant_id, id) where settled_at is null;
create index alert_incidents_settled on alert_incidents (settled_at) where settled_at is not null;

do $$
declare
    held text;
begin
    foreach held in array array['alert_channels', 'alert_rules', 'alert_incidents'] loop
        execute format('alter table %I enable row level security', held);
        execute format('alter table %I force row level security', held);
        execute format('create policy service on %I to cronwell_service using (true)', held);
        execute format('create policy tenant on %I to cronwell_tenant using (tenant_id = acting_tenant())', held);
        execute format('grant select, insert, update, delete on %I to cronwell_service, cronwell_tenant', held);
    end loop;
end
$$;

do $$
declare
    watched text[];
begin
    foreach watched slice 1 in array array[['alert_channels', 'alert-channel'], ['alert_rules', 'alert-rule']] loop
        execute format(
            'create trigger note_added after insert on %I referencing new table as added for each statement'
            ' when (acting_somebody()) execute function note_added(%L)', watched[1], watched[2]
        );
        execute format(
            'create trigger note_changed after update or delete on %I for each row'
            ' when (acting_somebody()) execute function note_changed(%L)', watched[1], watched[2]
        );
    end loop;
end
$$;
