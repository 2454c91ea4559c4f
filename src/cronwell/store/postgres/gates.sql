-- part: is_held
-- Whether the execution that went through a gate is still running by that claim.
exists (
    select from executions as held
    where held.tenant_id = holds.tenant_id
        and held.job_id = holds.job_id
        and held.slot = holds.slot
        and held.kind = holds.kind
        and held.fence = holds.fence
        and held.state::text = 'running'
    offset 0
)

-- name: waiting_gates
-- The gates before which executions of some pools wait that are ready by $2, with the pool and tier, the limit of the first in
-- line, the tenant's weight and quotas, and whether there is room behind the gate, as far as that is soon counted. Each is found
-- by a step to the next one in the index, however many wait at it. At most $3 of each pool and tier, behind the gate $5 of the
-- tenant $4: the next look begins where this one ended.
select
    served.pool, tier.priority, waiting.tenant_id, waiting.gate, waiting.gate_limit, waiting.ready_at, t.weight, t.max_running,
    t.max_per_minute,
    case
        when waiting.gate_limit <= 100 then waiting.gate_limit > (
            select count(*)
            from holds
            where holds.tenant_id = waiting.tenant_id
                and holds.gate = waiting.gate
                and /* part: is_held */
        )
        else true
    end and case
        when t.max_running <= 100 then t.max_running > (
            select count(*)
            from holds
            where holds.tenant_id = waiting.tenant_id
                and holds.gate = ''
                and /* part: is_held */
        )
        else true
    end as has_room
from unnest($1::text[]) as served (pool)
cross join unnest(array[3, 4, 5]::smallint[]) as tier (priority)
cross join lateral (
    with recursive line as (
        (
            select tenant_id, gate, gate_limit, ready_at
            from executions
            where pool = served.pool
                and priority = tier.priority
                and gate is not null
                and (tenant_id, gate) > ($4::integer, $5::text)
                and state < 'succeeded'
                and state <> 'running'
            order by tenant_id, gate, ready_at
            limit 1
        )
        union all
        select next.tenant_id, next.gate, next.gate_limit, next.ready_at
        from line
        cross join lateral (
            select tenant_id, gate, gate_limit, ready_at
            from executions as following
            where pool = served.pool
                and priority = tier.priority
                and gate is not null
                and (tenant_id, gate) > (line.tenant_id, line.gate)
                and state < 'succeeded'
                and state <> 'running'
            order by tenant_id, gate, ready_at
            limit 1
        ) as next
    )
    select tenant_id, gate, gate_limit, ready_at
    from line
    where ready_at <= $2
    limit $3
) as waiting
join tenants as t on t.id = waiting.tenant_id
order by tier.priority, waiting.ready_at

-- name: make_gates
-- Have a row to lock for each gate.
insert into gates (tenant_id, gate)
select tenant_id, gate
from unnest($1::integer[], $2::text[]) as wanted (tenant_id, gate)
on conflict do nothing

-- name: lock_gates
-- Lock gates, and tell how many executions each has let through in the minute $3, or in the next one, where another worker is
-- in that already: the minute of a gate does not go back. One that another worker has locked is passed over. A statement of its own: what is counted next has to see all that was let through before the lock.
select
    g.tenant_id, g.gate,
    case when g.minute between $3::timestamptz and $3::timestamptz + interval '1 minute' then g.used else 0 end as used
from unnest($1::integer[], $2::text[]) as wanted (tenant_id, gate)
join gates as g
    on g.tenant_id = wanted.tenant_id
    and g.gate = wanted.gate
order by g.tenant_id, g.gate
for update of g skip locked

-- name: count_holds
-- How many executions that went through a gate are running. Those that are not any more, or not by that claim, are forgotten.
with judged as (
    select holds.*, /* part: is_held */ as is_running
    from unnest($1::integer[], $2::text[]) as asked (tenant_id, gate)
    join holds
        on holds.tenant_id = asked.tenant_id
        and holds.gate = asked.gate
),
forgotten as (
    delete from holds
    using judged
    where not judged.is_running
        and holds.tenant_id = judged.tenant_id
        and holds.gate = judged.gate
        and holds.job_id = judged.job_id
        and holds.slot = judged.slot
        and holds.kind = judged.kind
)
select tenant_id, gate, count(*)::integer as running
from judged
where is_running
group by tenant_id, gate

-- name: hold_gates
-- Remember who went through which gate.
insert into holds (tenant_id, gate, job_id, slot, kind, fence)
select *
from unnest($1::integer[], $2::text[], $3::uuid[], $4::timestamptz[], $5::execution_kind[], $6::bigint[])
on conflict (tenant_id, gate, job_id, slot, kind) do update
set fence = excluded.fence

-- name: count_minute
-- Note how many executions tenants were let begin in the minute $3.
update gates
set minute = case when minute = $3::timestamptz + interval '1 minute' then minute else $3 end,
    used = case when minute between $3::timestamptz and $3::timestamptz + interval '1 minute' then used else 0 end
        + began.executions
from unnest($1::integer[], $2::integer[]) as began (tenant_id, executions)
where gates.tenant_id = began.tenant_id
    and gates.gate = ''

-- name: limited
-- The tenants that have a quota to wait for.
select array(select limited_tenants())

-- name: gate_waiting
-- Have what waits of tenants that have got a quota wait at their gate; messages of alerts do not. Read through all that waits,
-- so not often.
update executions
set gate = '', priority = tier_of(priority, '')
where gate is null
    and tenant_id = any($1::integer[])
    and reason is distinct from 'alert'
    and state in ('pending', 'retrying')

-- name: hold_running
-- Count what runs of tenants that have got a quota as having gone through their gate, at which it did not wait.
insert into holds (tenant_id, gate, job_id, slot, kind, fence)
select tenant_id, '', job_id, slot, kind, fence
from executions
where state = 'running'
    and tenant_id = any($1::integer[])
    and reason is distinct from 'alert'
on conflict (tenant_id, gate, job_id, slot, kind) do update
set fence = excluded.fence
where holds.fence < excluded.fence

-- name: why_waiting
-- What an execution that is due waits for at its gates: how many of its group run and may, how many of its tenant run, and how
-- many that has begun in the minute $5. Nothing where it has no gate.
select
    e.gate, e.gate_limit, t.max_running, t.max_per_minute,
    (select count(*) from holds where holds.tenant_id = e.tenant_id and holds.gate = e.gate and /* part: is_held */) as of_group,
    (select count(*) from holds where holds.tenant_id = e.tenant_id and holds.gate = '' and /* part: is_held */) as of_tenant,
    coalesce((select used from gates where gates.tenant_id = e.tenant_id and gates.gate = '' and gates.minute = $5), 0) as used
from executions as e
join tenants as t on t.id = e.tenant_id
where e.tenant_id = $1
    and e.job_id = $2
    and e.kind = $3
    and e.slot = $4
    and e.gate is not null
