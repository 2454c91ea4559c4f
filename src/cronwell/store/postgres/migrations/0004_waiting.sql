-- Jobs that wait for a calendar which leaves them no slot.

alter table cursors add column held_until timestamptz;
create index cursors_waiting on cursors (held_until) where held_until is not null;
