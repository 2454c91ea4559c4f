-- The database as a witness: every committed change of what promises are about, in the order in which rows changed.
create schema witness;

create table witness.log (
    seq bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    xid xid8 not null default pg_current_xact_id(),
    pid integer not null default pg_backend_pid(),
    source text not null,
    op text not null,
    old jsonb,
    new jsonb
);

create function witness.note() returns trigger
language plpgsql security definer as $$
declare
    old_row jsonb := case when tg_op <> 'INSERT' then to_jsonb(old) - 'output' - 'error' - 'payload' - 'progress' - 'plan' end;
    new_row jsonb := case when tg_op <> 'DELETE' then to_jsonb(new) - 'output' - 'error' - 'payload' - 'progress' - 'plan' end;
begin
    insert into witness.log (source, op, old, new) values (tg_argv[0], lower(tg_op), old_row, new_row);
    return null;
end
$$;

create trigger witness after insert or update on jobs
    for each row execute function witness.note('jobs');
create trigger witness after insert or update or delete on cursors
    for each row execute function witness.note('cursors');
create trigger witness after insert or update or delete on executions
    for each row execute function witness.note('executions');
create trigger witness after insert or update on skips
    for each row execute function witness.note('skips');
create trigger witness after update of epoch on shards
    for each row execute function witness.note('shards');
create trigger witness after insert or update on workers
    for each row execute function witness.note('workers');
