-- Claims of many tenants at once find what each of them has waiting. Every tenant's id is above 0; only statements that say
-- so can go by this index, which keeps the planner from taking it for executions_claimable.

create index executions_waiting on executions (pool, priority, tenant_id, ready_at)
    where tenant_id > 0 and state in ('pending', 'retrying');
