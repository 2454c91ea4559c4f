-- What a claim asks of the days that lie behind, of which it needs none as long as nothing that it finds is limited.

create function unfinished_before(until timestamptz, ready_by timestamptz) returns table (job_id uuid, slot timestamptz)
language plpgsql stable set search_path from current as $$
begin
    return query
        select old.job_id, old.slot
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
