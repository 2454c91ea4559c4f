-- How much a tenant may have. Null: as much as it likes. Its jobs are counted only where they are limited.

alter table tenants
    add column max_jobs integer check (max_jobs >= 0),
    add column max_payload integer check (max_payload >= 0),
    add column max_requests double precision check (max_requests > 0),
    add column jobs integer not null default 0;

grant select (max_jobs, max_payload, max_requests, jobs), update (jobs) on tenants to cronwell_tenant;
