-- Schedules that wait for an execution's end, that run so many times, that follow calendars; overrides and backfills.

-- Since when the present definition holds. Null for jobs that were made before this migration: since `updated_at`.
alter table jobs add column defined_at timestamptz;

alter table cursors
    add column awaits boolean not null default false,
    add column runs_left integer,
    add column tzdata text collate "C";

-- What waits for an execution's end has its last slot in `next_slot`, and is not due.
drop index cursors_due;
create index cursors_due on cursors (shard, next_slot) where next_slot is not null and not awaits;
create index cursors_awaiting on cursors (shard) where awaits;

create table calendars (
    tenant_id integer not null references tenants (id),
    name text collate "C" not null,
    revision integer not null,
    content json not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (tenant_id, name)
);

-- Which jobs follow which calendars, and the revision of the calendar that their plan was made of.
create table calendar_uses (
    tenant_id integer not null,
    calendar text collate "C" not null,
    job_id uuid not null,
    revision integer not null,
    primary key (tenant_id, calendar, job_id)
);

create index calendar_uses_job on calendar_uses (tenant_id, job_id);

-- What somebody decided about one coming slot.
create table overrides (
    tenant_id integer not null,
    job_id uuid not null,
    slot timestamptz not null,
    action text not null check (action in ('skip', 'move', 'payload')),
    ready_at timestamptz,
    payload json,
    note text,
    author text,
    expires_at timestamptz,
    created_at timestamptz not null,
    applied_at timestamptz,
    primary key (tenant_id, job_id, slot)
);

create index overrides_waiting on overrides (least(slot, ready_at)) where applied_at is null;
create index overrides_slot on overrides (slot, action);

-- Past slots that somebody asked to be run. `spans` says which slots they are and by which definition; `unfinished` holds
-- the slots of the executions that were staged and have not ended yet, no more than `concurrency` of them.
create table backfills (
    tenant_id integer not null,
    id uuid not null,
    job_id uuid not null,
    state text not null check (state in ('running', 'paused', 'finished', 'cancelled')),
    from_slot timestamptz not null,
    to_slot timestamptz not null,
    definition text not null check (definition in ('then', 'current')),
    is_newest_first boolean not null,
    rate double precision not null check (rate > 0),
    concurrency integer not null check (concurrency > 0),
    spans json not null,
    slots integer not null,
    reached timestamptz,
    next_ready_at timestamptz not null,
    staged integer not null default 0,
    passed_over integer not null default 0,
    succeeded integer not null default 0,
    failed integer not null default 0,
    unfinished timestamptz[] not null default '{}',
    payload json,
    note text,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    finished_at timestamptz,
    primary key (tenant_id, id)
);

create index backfills_of_job on backfills (tenant_id, job_id, id);
create index backfills_open on backfills (created_at) where finished_at is null;
