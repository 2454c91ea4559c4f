-- What executions have to wait for beside their instant. With tables.sql, the schema that all migrations together make.

-- Executions that are in a group, or whose tenant may only run so many: the group's name is their gate, or nothing. They stand
-- in tiers of their own, 3 above the usual ones, and are claimed with their gates locked. Those are the states pending and
-- retrying, said in such a way that no plan made on an empty day takes the index of all that is claimable for this one.
create index executions_gated on executions (pool, priority, tenant_id, gate, ready_at)
    where gate is not null and state < 'succeeded' and state <> 'running';

-- What is locked to let executions through: one for each group, and one without a name for each tenant that has a quota, with
-- how many it has been let through in a minute.
create table gates (
    tenant_id integer not null,
    gate text collate "C" not null,
    minute timestamptz not null default '-infinity',
    used integer not null default 0,
    primary key (tenant_id, gate)
) with (fillfactor = 50);

-- Who went through a gate. It counts as long as that execution is running and has the fence that it got there; nothing
-- has to be given back, so nothing can fail to be.
create table holds (
    tenant_id integer not null,
    gate text collate "C" not null,
    job_id uuid not null,
    slot timestamptz not null,
    kind execution_kind not null,
    fence bigint not null,
    primary key (tenant_id, gate, job_id, slot, kind)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The tenants whose executions wait for a quota.
create function limited_tenants() returns setof integer
language sql stable as $$
    select id from tenants where max_running is not null or max_per_minute is not null
$$;

-- Where an execution stands in its pool: apart from the others if it has a gate.
create function tier_of(priority smallint, gate text) returns smallint
language sql immutable parallel safe as $$
    select (priority + case when gate is null then 0 else 3 end)::smallint
$$;

-- The unfinished executions of jobs that limit them, with slots before a moment: what a claim asks of all the days that are
-- kept. A function, so that it costs nothing where nothing is asked: in the claim itself each day took it 0.01 ms.
create function unfinished_before(until timestamptz, ready_by timestamptz)
    returns table (job_id uuid, slot timestamptz, has_begun boolean, is_nearly_ready boolean)
language plpgsql stable set search_path from current as $$
begin
    return query
        select old.job_id, old.slot, old.attempt > 0, old.ready_at <= ready_by + interval '2 seconds'
        from executions as old
        where old.slot < until
            and old.running_limit is not null
            and old.state in ('pending', 'running', 'retrying')
            and (
                coalesce(old.reason not in ('moved', 'catch_up', 'redriven', 'rerun', 'upstream_ended'), true)
                or old.attempt > 0
                or old.ready_at <= ready_by + interval '2 seconds'
            );
end
$$;

-- Those that were moved to before their slot, and have begun before it: they are found by their overrides, which are few. Another
-- worker may have claimed one earlier than this one would.
create function begun_early(moment timestamptz) returns table (job_id uuid, slot timestamptz, is_running boolean)
language plpgsql stable set search_path from current as $$
begin
    return query
        select early.job_id, early.slot, early.state::text = 'running'
        from overrides as o
        cross join lateral (
            select moved.job_id, moved.slot, moved.state
            from executions as moved
            where moved.tenant_id = o.tenant_id
                and moved.job_id = o.job_id
                and moved.kind = 'scheduled'
                and moved.slot = o.slot
                and moved.running_limit is not null
                and moved.state::text in ('running', 'retrying')
            offset 0
        ) as early
        where o.action = 'move'
            and o.slot > moment - interval '1 day'
            and o.ready_at <= moment + interval '5 seconds';
end
$$;
