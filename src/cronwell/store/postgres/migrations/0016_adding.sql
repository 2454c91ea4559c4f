-- A batch of jobs holds its tenant once. The foreign key did so for each job, which took as long as writing it.

-- First: it locks jobs and then tenants, whole, as whoever adds a job locks them one after the other.
alter table jobs drop constraint jobs_tenant_id_fkey;

create function hold_tenants() returns trigger
language plpgsql security definer set search_path from current as $$
declare
    held integer;
begin
    for held in select distinct tenant_id from added loop
        perform from tenants where id = held for key share;
        if not found then
            raise foreign_key_violation using message = format('there is no tenant %s', held);
        end if;
    end loop;
    return null;
end
$$;

create function keep_tenant() returns trigger
language plpgsql security definer set search_path from current as $$
begin
    if tg_table_name = 'jobs' then
        raise foreign_key_violation using message = 'a job stays with its tenant';
    end if;
    if exists (select from jobs where tenant_id = old.id) then
        raise foreign_key_violation using message = format('the tenant %s has jobs', old.id);
    end if;
    return null;
end
$$;

create trigger hold_tenants after insert on jobs referencing new table as added
    for each statement execute function hold_tenants();
create trigger keep_tenant before update of tenant_id on jobs
    for each row when (old.tenant_id <> new.tenant_id) execute function keep_tenant();
create trigger keep_tenant_deleted after delete on tenants
    for each row execute function keep_tenant();
create trigger keep_tenant_renumbered after update of id on tenants
    for each row when (old.id <> new.id) execute function keep_tenant();
