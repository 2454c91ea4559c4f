-- The processes, and who has which work. With tables.sql, the schema that all migrations together make.

create table workers (
    id uuid primary key,
    name text not null,
    state worker_state not null,
    version text not null,
    pools text[] not null,
    handlers text[] not null,
    concurrency integer not null,
    running integer not null default 0,
    started_at timestamptz not null,
    heartbeat_at timestamptz not null,
    lease_until timestamptz not null,
    incarnation text,
    node uuid
) with (fillfactor = 50);

create index workers_lease on workers (lease_until) where state in ('active', 'draining');

create table leases (
    name text collate "C" primary key,
    owner uuid not null,
    epoch bigint not null,
    expires_at timestamptz not null
);

-- The processes, of every role, as they tell of themselves.
create table nodes (
    id uuid primary key,
    role text not null check (role in ('api', 'scheduler', 'worker')),
    name text not null,
    version text not null,
    started_at timestamptz not null,
    seen_at timestamptz not null,
    stopped_at timestamptz,
    drain_requested_at timestamptz
) with (fillfactor = 50);

-- Schedulers that share duties by way of PostgreSQL. `weight` is the share that one can carry; `reaches` tells whether
-- it also reaches the coordinator that is preferred to this one, where there is one.
create table members (
    id uuid primary key,
    weight double precision not null,
    reaches boolean not null,
    lease_until timestamptz not null
) with (fillfactor = 50);

-- Who has which duty. It counts only as long as its owner is a living member.
create table duties (
    name text collate "C" primary key,
    owner uuid not null
) with (fillfactor = 50);

-- The fence of each shard: what is staged is written in the shard's epoch, by the owner that began it. All slots up to
-- `watermark` of the jobs that were there at `marked_at` have their verdict or are staged.
create table shards (
    shard smallint primary key,
    epoch bigint not null default 0,
    owner uuid,
    incarnation text,
    entered_at timestamptz,
    watermark timestamptz,
    marked_at timestamptz
) with (fillfactor = 20);

-- The last sign of life of each process, by which it finds out what a server that was promoted lacks: commits survive in
-- their order, so a pulse that is there proves all that was committed before it.
create table pulses (
    process uuid primary key,
    number bigint not null,
    beat_at timestamptz not null
) with (fillfactor = 50);

-- What the scanner found in its last whole walk over the jobs, one row for each kind of thing that should not be.
create table findings (
    kind text collate "C" primary key,
    found integer not null,
    mended integer not null,
    examples text[] not null,
    walked_at timestamptz not null
);
