-- Claims of many tenants at once find what each of them has waiting.

create index executions_waiting on executions (pool, priority, tenant_id, ready_at)
    where state in ('pending', 'retrying');
