-- Jobs wait for a calendar that leaves them no slot, and each plan that a calendar has given a job is kept with its time.

alter table cursors add column held_until timestamptz;
create index cursors_waiting on cursors (held_until) where held_until is not null;

-- A definition has as many rows as it has had plans: a changed calendar gives it another one.
alter table job_revisions
    drop constraint job_revisions_pkey,
    add primary key (tenant_id, job_id, revision, valid_from);

-- A finished job follows no calendar.
delete from calendar_uses
using jobs
where jobs.tenant_id = calendar_uses.tenant_id
    and jobs.id = calendar_uses.job_id
    and jobs.state in ('finished', 'deleted');
