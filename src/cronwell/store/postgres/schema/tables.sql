-- The schema that all migrations together make, for reading: a test replays them and compares. Nothing runs it, so
-- a migration that changes the schema changes it here as well.

create table schema_migrations (
    version integer primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default now()
);

create type job_state as enum ('active', 'paused', 'finished', 'deleted');
create type execution_kind as enum ('scheduled', 'manual', 'backfill', 'dependency');
create type execution_state as enum
    ('pending', 'running', 'retrying', 'succeeded', 'failed', 'cancelled', 'skipped');
create type attempt_result as enum ('succeeded', 'failed', 'timed_out', 'worker_lost', 'cancelled');
create type worker_state as enum ('active', 'draining', 'stopped', 'lost');

create table tenants (
    id integer primary key,
    name text collate "C" not null unique,
    weight double precision not null default 1 check (weight > 0),
    signing_secret text not null,
    created_at timestamptz not null default now(),
    max_jobs integer check (max_jobs >= 0),
    max_payload integer check (max_payload >= 0),
    max_requests double precision check (max_requests > 0),
    jobs integer not null default 0,  -- counted only where they are limited
    max_running integer check (max_running >= 1),
    max_per_minute integer check (max_per_minute >= 1)
);

-- What callers show to be let in: of the secret only its prefix and digest are kept.
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

-- The definition. Cold: nothing here changes when a job fires. Its tenant is held by a trigger, see tenants.sql.
create table jobs (
    tenant_id integer not null,
    id uuid not null,
    name text collate "C" not null,
    state job_state not null,
    revision integer not null,
    pool text collate "C" not null,
    target_kind text collate "C" not null,
    tags jsonb not null,
    spec json not null,
    pause_note text,
    paused_at timestamptz,
    paused_until timestamptz,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    deleted_at timestamptz,
    defined_at timestamptz,
    primary key (tenant_id, id)
);

create unique index jobs_name on jobs (tenant_id, name) where state <> 'deleted';
create index jobs_deleted on jobs (tenant_id, name, id) where state = 'deleted';
create index jobs_tags on jobs using gin (tags jsonb_path_ops);
create index jobs_pause_ends on jobs (paused_until) where state = 'paused' and paused_until is not null;

-- What a job was before its latest change. A definition has as many rows as it has had plans: a changed calendar gives it
-- another one.
create table job_revisions (
    tenant_id integer not null,
    job_id uuid not null,
    revision integer not null,
    spec json not null,
    plan text not null,
    valid_from timestamptz not null,
    valid_to timestamptz not null,
    primary key (tenant_id, job_id, revision, valid_from)
);

-- Where each scheduled job stands. Hot: the row is written anew for each staging, so it is kept narrow and has
-- only the indexes it needs. `plan` is the compiled schedule and policies; a herd shares its text. A cursor that awaits
-- the end of an execution has that execution's slot in `next_slot`; all others, the first slot that is not staged. One that
-- waits for its calendars, which leave it no slot, is looked at again at `held_until`.
create table cursors (
    tenant_id integer not null,
    job_id uuid not null,
    shard smallint not null,
    is_held boolean not null default false,
    revision integer not null,
    next_slot timestamptz,
    plan text collate "C" not null,
    awaits boolean not null default false,
    runs_left integer,
    tzdata text collate "C",
    held_until timestamptz,
    primary key (tenant_id, job_id)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index cursors_due on cursors (shard, next_slot) where next_slot is not null and not awaits;
create index cursors_awaiting on cursors (shard) where awaits;
create index cursors_ended on cursors (tenant_id, job_id) where next_slot is null and not is_held;
create index cursors_waiting on cursors (held_until) where held_until is not null;

-- One row per slot, trigger, backfill or dependency. Partitioned by day of slot; partitions are made ahead by the
-- scheduler and dropped whole by retention. Only claimable rows are in the claim index.
create table executions (
    tenant_id integer not null,
    job_id uuid not null,
    kind execution_kind not null,
    slot timestamptz not null,
    ready_at timestamptz not null,
    fence bigint not null default 0,
    claimed_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    cancel_requested_at timestamptz,
    worker uuid,
    state execution_state not null,
    revision integer not null,
    attempt smallint not null default 0,
    priority smallint not null,
    running_limit smallint,
    is_last_attempt boolean not null default false,
    output_truncated boolean not null default false,
    pool text collate "C" not null,
    reason text,
    error_kind text,
    error text,
    output text,
    payload json,
    progress json,
    queueing smallint,
    gate text collate "C",
    gate_limit smallint,
    is_followed boolean not null default false,
    primary key (job_id, slot, kind, tenant_id)
) partition by range (slot);

create index executions_claimable on executions (pool, priority, ready_at)
    where state in ('pending', 'retrying');
-- The same by tenant, for when there is more than there are places for: then each gets its share. Every tenant's id is
-- above 0; only statements that say so can go by this index, which keeps the planner from taking it for the other one.
create index executions_waiting on executions (pool, priority, tenant_id, ready_at)
    where tenant_id > 0 and state in ('pending', 'retrying');
create index executions_running on executions (worker, cancel_requested_at)
    where state = 'running';
-- The unfinished executions of jobs that limit them: an execution may start while fewer than `running_limit`
-- earlier ones are unfinished.
create index executions_unfinished on executions (job_id, slot)
    where running_limit is not null and state in ('pending', 'running', 'retrying');
create index executions_dead on executions (tenant_id, slot)
    where state = 'failed';
-- For lists over all jobs, which look back in growing windows of time. Rows are staged in the order of their slots, so
-- a few bytes per range of pages find a window. A B-tree on (tenant_id, slot) lured the planner away from the primary
-- key on days that were still empty, where a herd would have made each look-up a scan of the herd.
create index executions_recent on executions using brin (slot) with (pages_per_range = 32);

-- Attempts that did not succeed. A first-try success costs no row here.
create table attempts (
    tenant_id integer not null,
    job_id uuid not null,
    kind execution_kind not null,
    slot timestamptz not null,
    fence bigint not null,
    attempt smallint not null,
    result attempt_result not null,
    worker uuid,
    ready_at timestamptz not null,
    claimed_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz not null,
    output_truncated boolean not null default false,
    error_kind text,
    error text,
    output text,
    primary key (job_id, slot, kind, tenant_id, fence)
) partition by range (slot);

-- Slots that were not run, as ranges: the whole of a pause, or more missed slots than are worth a row each.
create table skips (
    tenant_id integer not null,
    job_id uuid not null,
    reason text not null,
    from_slot timestamptz not null,
    to_slot timestamptz not null,
    slots integer,
    noted_at timestamptz not null,
    primary key (tenant_id, job_id, from_slot, reason)
);

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

create table idempotency_keys (
    tenant_id integer not null,
    key text collate "C" not null,
    fingerprint bytea not null,
    status smallint not null,
    body json not null,
    created_at timestamptz not null,
    primary key (tenant_id, key)
);

create index idempotency_keys_age on idempotency_keys (created_at);

-- Which incarnation of this database answers: another server has another identifier, and one that was promoted has
-- another timeline. Epochs and fences that were given out by one of them say nothing to the next, which may never have
-- seen them.
create function incarnation() returns text
language sql stable parallel safe as $$
    select (select system_identifier from pg_control_system())::text
        || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
$$;

-- Make the partitions of one day, unless they are there. Both tables are cut alike, so that a day goes as a whole.
create function ensure_day(day date) returns boolean
language plpgsql security definer set search_path from current as $$
declare
    from_at timestamptz := day::timestamp at time zone 'UTC';
    to_at timestamptz := (day + 1)::timestamp at time zone 'UTC';
    suffix text := to_char(day, 'YYYYMMDD');
begin
    perform pg_advisory_xact_lock(hashtext('cronwell.ensure_day'));
    -- Asked of the catalog's tables, not by to_regclass, whose cache may not know yet what the lock's last holder made.
    if exists (select from pg_class where relname = 'executions_' || suffix and relispartition) then
        return false;
    end if;
    execute format(
        'create table %I (like executions including defaults including constraints)'
        ' with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1,'
        ' autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_cost_delay = 0)',
        'executions_' || suffix
    );
    execute format(
        'alter table executions attach partition %I for values from (%L) to (%L)',
        'executions_' || suffix, from_at, to_at
    );
    execute format(
        'create table %I (like attempts including defaults including constraints)', 'attempts_' || suffix
    );
    execute format(
        'alter table attempts attach partition %I for values from (%L) to (%L)',
        'attempts_' || suffix, from_at, to_at
    );
    return true;
end
$$;
