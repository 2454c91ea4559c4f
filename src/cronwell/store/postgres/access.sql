-- name: find_key
-- The key with a prefix, whoever's it is, and what its tenant may have.
select k.tenant_id, k.id, k.name, k.prefix, k.digest, k.scopes, k.created_at, k.created_by, k.expires_at, k.revoked_at,
    k.last_used_at, k.replaces, t.max_jobs, t.max_payload, t.max_requests
from api_keys as k
join tenants as t on t.id = k.tenant_id
where k.prefix = $1

-- name: insert_key
-- Keep a key, of whose secret only the digest is known.
insert into api_keys (
    tenant_id, id, name, prefix, digest, scopes, created_at, created_by, expires_at, replaces
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: get_key
-- One key of a tenant.
select tenant_id, id, name, prefix, digest, scopes, created_at, created_by, expires_at, revoked_at, last_used_at, replaces
from api_keys
where tenant_id = $1
    and id = $2

-- name: list_keys
-- A tenant's keys, the newest first, from behind the place where the last page ended.
select tenant_id, id, name, prefix, digest, scopes, created_at, created_by, expires_at, revoked_at, last_used_at, replaces
from api_keys
where tenant_id = $1
    and ($2::uuid is null or id < $2)
order by id desc
limit $3

-- name: lock_api_key
-- One key that is still good, until the transaction ends.
select tenant_id, id, name, prefix, digest, scopes, created_at, created_by, expires_at, revoked_at, last_used_at, replaces
from api_keys
where tenant_id = $1
    and id = $2
for update

-- name: end_key
-- Let a key be good no longer than to a time. What is over stays over.
update api_keys
set expires_at = least(expires_at, $3)
where tenant_id = $1
    and id = $2

-- name: revoke_key
-- Let a key open nothing any more; when that was first done stays.
update api_keys
set revoked_at = coalesce(revoked_at, $3)
where tenant_id = $1
    and id = $2
returning tenant_id, id, name, prefix, digest, scopes, created_at, created_by, expires_at, revoked_at, last_used_at, replaces

-- name: note_key_use
-- When a key was last used, to the minute.
update api_keys
set last_used_at = $3
where tenant_id = $1
    and id = $2
    and (last_used_at is null or last_used_at < $3::timestamptz - interval '1 minute')

-- name: has_keys
-- Whether anybody could show a key at a time.
select exists (
    select from api_keys
    where revoked_at is null
        and (expires_at is null or expires_at > $1)
)

-- name: insert_tenant
-- A new tenant, with the next number; null where the name is taken. Whoever makes another one meanwhile waits.
insert into tenants (id, name, weight, signing_secret, created_at, max_jobs, max_payload, max_requests, max_running, max_per_minute)
select max(id) + 1, $1, $2, $3, $4, $5, $6, $7, $8, $9
from tenants
on conflict (name) do nothing
returning id, name, weight, created_at, max_jobs, max_payload, max_requests, max_running, max_per_minute

-- name: get_tenant
-- A tenant by its name.
select id, name, weight, created_at, max_jobs, max_payload, max_requests, max_running, max_per_minute
from tenants
where name = $1

-- name: list_tenants
-- Tenants by name, from behind the place where the last page ended.
select id, name, weight, created_at, max_jobs, max_payload, max_requests, max_running, max_per_minute
from tenants
where $1::text is null or name > $1
order by name
limit $2

-- name: lock_tenant
-- One tenant, until the transaction ends: whoever adds jobs to it meanwhile waits, or is waited for.
select id, name, weight, created_at, max_jobs, max_payload, max_requests, max_running, max_per_minute
from tenants
where name = $1
for update

-- name: change_tenant
-- Give a tenant another share and other quotas. Its jobs are counted anew, which were not counted while they had no limit.
update tenants
set weight = $2,
    max_jobs = $3::integer,
    max_payload = $4,
    max_requests = $5,
    max_running = $6,
    max_per_minute = $7,
    jobs = case
        when $3::integer is null then 0
        else (select count(*) from jobs where jobs.tenant_id = tenants.id and jobs.state <> 'deleted' and jobs.name > '/')
    end
where name = $1
returning id, name, weight, created_at, max_jobs, max_payload, max_requests, max_running, max_per_minute

-- name: hold_tenant
-- Keep a tenant's quotas as they are until the transaction ends, as adding a job does by its foreign key.
select id
from tenants
where id = $1
for key share

-- name: count_jobs
-- Count jobs that are added to a tenant, or taken away, where they are limited: how many there are, and may be.
update tenants
set jobs = jobs + $2
where id = $1
    and max_jobs is not null
returning jobs, max_jobs
