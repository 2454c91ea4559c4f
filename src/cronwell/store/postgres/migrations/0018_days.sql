-- What a claim asks of the days that lie behind, of which it needs none as long as nothing that it finds is limited.

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
