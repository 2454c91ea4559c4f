-- Long work: what an attempt leaves for the next one, and attempts that end by a callback.
--
-- An execution that waits for its callback is `running` and no worker's: what looks for the work of lost workers, in this
-- release and in the one before, does not find it. Columns that are null take no room.

alter table executions
    add column checkpoint json,
    add column callback_until timestamptz,
    add column callback_deadline timestamptz,
    add column callback_heartbeat interval,
    add column callback_worker uuid;

create index executions_called on executions (callback_until) where callback_until is not null;

-- What the addresses of callbacks are signed with. Receivers know the secret that deliveries are signed with, and not this one.
create table callback_keys (
    id integer primary key check (id = 1),
    key bytea not null
);

insert into callback_keys (id, key)
values (1, sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));
