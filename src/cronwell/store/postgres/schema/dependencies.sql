-- Jobs that follow others: with tables.sql, the schema that all migrations together make. What a user wrote names upstreams
-- as it likes; here they are known by their ids.

create table dependencies (
    tenant_id integer not null,
    dependent_id uuid not null,
    upstream_id uuid not null,
    place smallint not null,
    condition text not null check (condition in ('succeeded', 'failed', 'finished')),
    primary key (tenant_id, dependent_id, upstream_id)
);

create index dependencies_upstream on dependencies (tenant_id, upstream_id);

-- Slots of dependents that wait: some of their upstreams have ended there and others have not. A hint of what to look at, and
-- what is shown of it: each is judged anew from the executions at `look_at`, whatever else happens.
create table waiting_slots (
    tenant_id integer not null,
    job_id uuid not null,
    slot timestamptz not null,
    since timestamptz not null,
    look_at timestamptz not null,
    is_told boolean not null default false,
    primary key (tenant_id, job_id, slot)
) with (fillfactor = 70);

create index waiting_slots_due on waiting_slots (look_at);

-- What ended and has dependents that have not been judged by it yet.
create index executions_followed on executions (slot)
    where is_followed and state in ('succeeded', 'failed', 'cancelled', 'skipped');
