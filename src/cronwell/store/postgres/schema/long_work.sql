-- What long work needs. With tables.sql, the schema that all migrations together make.

-- `checkpoint` is what an attempt left for the next one. An execution that waits for its callback is `running`, and no
-- worker's; `callback_worker` delivered it. It is timed out at `callback_until`: at its deadline or, where the job asks for
-- heartbeats, when the next one is overdue. Columns that are null take no room.
alter table executions
    add column checkpoint json,
    add column callback_until timestamptz,
    add column callback_deadline timestamptz,
    add column callback_heartbeat interval,
    add column callback_worker uuid;

create index executions_called on executions (callback_until) where callback_until is not null;

-- What the addresses of callbacks are signed with: one key, which no receiver knows.
create table callback_keys (
    id integer primary key check (id = 1),
    key bytea not null
);
