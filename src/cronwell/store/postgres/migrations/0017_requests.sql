-- Jobs that came one by one may be added together, and yet each by its own request.

create or replace function note_added_jobs() returns trigger
language plpgsql security definer set search_path from current as $$
declare
    requests json := nullif(current_setting('cronwell.requests', true), '')::json;
begin
    with written as (
        insert into audit (tenant_id, at, actor, source, request_id, action, object, after)
        select
            tenant_id, clock_timestamp(), current_setting('cronwell.actor'),
            coalesce(current_setting('cronwell.source', true), ''),
            coalesce(requests ->> name, current_setting('cronwell.request', true), ''),
            'created', 'job:' || id,
            json_build_object('id', id, 'name', name, 'state', state, 'revision', revision, 'spec', spec)
        from added
        returning tenant_id, id
    )
    insert into audit_unsealed (tenant_id, id)
    select tenant_id, id from written;
    return null;
end
$$;
