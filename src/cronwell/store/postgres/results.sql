-- name: complete
-- Record how attempts ended, where the fence is still the one that was claimed, by the same worker: a server that was
-- promoted without the last claims gives the same fences again. What waits for its callback is ended in the name of the
-- worker that delivered it. What did not succeed leaves a row in attempts, and is locked first: of two that end the same attempt
-- at once, only the one that does leaves one. A retry is not taken up after a cancel, nor after a pause or delete that made
-- this attempt the last.
-- The state is compared as text, here and below, so that the planner cannot see that the index of running executions
-- would do: a plan made while nothing ran went through all that runs for each result, and with 10,000 running a batch
-- of 1,000 took 6 s against 80 ms (November 2026). No slot lies before $16, which has PostgreSQL leave the days before it out from
-- the beginning; with an end as well, a plan from a time without executions went by that and not by the keys. So bounded it may not find
-- what comes after a row that had just been changed (PostgreSQL 18.4): what it did not find is looked for once more, in all days.
with results as (
    select *
    from unnest(
        $1::integer[], $2::uuid[], $3::execution_kind[], $4::timestamptz[], $5::bigint[], $6::uuid[],
        $7::execution_state[], $8::attempt_result[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::text[],
        $13::text[], $14::text[], $15::boolean[]
    ) with ordinality as r (
        tenant_id, job_id, kind, slot, fence, worker, state, result, started_at, finished_at, ready_at, error_kind, error,
        output, output_truncated, place
    )
),
unsuccessful as materialized (
    select
        r.place, e.tenant_id, e.job_id, e.kind, e.slot, r.fence, e.attempt, r.result, r.worker, e.ready_at, e.claimed_at,
        coalesce(r.started_at, e.started_at) as started_at, r.finished_at, r.error_kind, r.error, r.output, r.output_truncated
    from results as r
    join executions as e
        on e.tenant_id = r.tenant_id
        and e.job_id = r.job_id
        and e.kind = r.kind
        and e.slot = r.slot
    where r.result <> 'succeeded'
        and e.slot >= $16
        and e.fence = r.fence
        and coalesce(e.worker, e.callback_worker) = r.worker
        and e.state::text = 'running'
    for update of e
),
failed as (
    insert into attempts (
        tenant_id, job_id, kind, slot, fence, attempt, result, worker, ready_at, claimed_at, started_at, finished_at,
        error_kind, error, output, output_truncated
    )
    select
        tenant_id, job_id, kind, slot, fence, attempt, result, worker, ready_at, claimed_at, started_at, finished_at,
        error_kind, error, output, output_truncated
    from unsuccessful
    on conflict do nothing
)
update executions as e
set state = case
        when r.state = 'retrying' and e.cancel_requested_at is not null then 'cancelled'
        when r.state = 'retrying' and e.is_last_attempt then 'failed'
        else r.state
    end,
    worker = r.worker,
    callback_until = null,
    started_at = coalesce(r.started_at, e.started_at),
    finished_at = r.finished_at,
    ready_at = case
        when r.state = 'retrying' and e.cancel_requested_at is null and not e.is_last_attempt then r.ready_at
        else e.ready_at
    end,
    error_kind = r.error_kind,
    error = r.error,
    output = r.output,
    output_truncated = r.output_truncated
from results as r
where e.tenant_id = r.tenant_id
    and e.job_id = r.job_id
    and e.kind = r.kind
    and e.slot = r.slot
    and e.slot >= $16
    and e.fence = r.fence
    and coalesce(e.worker, e.callback_worker) = r.worker
    and e.state::text = 'running'
    -- This also has them locked before they are changed.
    and (r.result = 'succeeded' or r.place in (select place from unsuccessful))
returning r.place, e.state

-- name: succeed
-- What `complete` does, for attempts of one worker and one kind that succeeded and have nothing to say: half of its columns
-- are spared, and the places of those that were recorded come back as one array. Times are microseconds since 1970: a client
-- writes them in a third of the time that it takes for a timestamp. Tenants, jobs and fences that are all the same are sent once.
with recorded as (
    update executions as e
    set state = 'succeeded', started_at = timestamptz 'epoch' + r.started_at * interval '1 microsecond',
        finished_at = timestamptz 'epoch' + r.finished_at * interval '1 microsecond', error_kind = null, error = null,
        output = null, output_truncated = false, worker = $8, callback_until = null
    from (
        -- The kind as a column: a plan from a time without executions would read all of that kind.
        select
            coalesce(tenant_id, ($1::integer[])[1]) as tenant_id,
            coalesce(job_id, ($2::uuid[])[1]) as job_id,
            $3::execution_kind as kind,
            timestamptz 'epoch' + at * interval '1 microsecond' as slot,
            coalesce(fence, ($5::bigint[])[1]) as fence,
            started_at,
            finished_at,
            place
        from unnest($1::integer[], $2::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
            with ordinality as given (tenant_id, job_id, at, fence, started_at, finished_at, place)
        offset 0
    ) as r
    where e.tenant_id = r.tenant_id
        and e.job_id = r.job_id
        and e.kind = r.kind
        and e.slot = r.slot
        and e.slot >= $9
        and e.fence = r.fence
        and coalesce(e.worker, e.callback_worker) = $8
        and e.state::text = 'running'
    returning r.place::integer
)
select array_agg(place) as places
from recorded
