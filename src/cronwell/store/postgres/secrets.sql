-- name: insert_secret
-- Keep a new secret; nothing comes back where there is one of that name. Not one statement with the change: that would have to
-- be able to read what it writes, and whoever acts for a tenant is not.
insert into secrets (tenant_id, name, revision, key_id, wrapped_key, ciphertext, created_at, updated_at)
values ($1, $2, $3, $4, $5, $6, $7, $7)
on conflict (tenant_id, name) do nothing
returning name, revision, key_id, created_at, updated_at

-- name: change_secret
-- Put a secret in place of the revision before its own; nothing comes back where that is another by now.
update secrets
set revision = $3,
    key_id = $4,
    wrapped_key = $5,
    ciphertext = $6,
    updated_at = $7
where tenant_id = $1
    and name = $2
    and revision = $3 - 1
returning name, revision, key_id, created_at, updated_at

-- name: get_secret
-- What anybody may know of a secret.
select name, revision, key_id, created_at, updated_at
from secrets
where tenant_id = $1
    and name = $2

-- name: list_secrets
-- A tenant's secrets by name, from behind the place where the last page ended.
select name, revision, key_id, created_at, updated_at
from secrets
where tenant_id = $1
    and ($2::text is null or name > $2)
order by name
limit $3

-- name: secret_names
-- Names of a tenant's secrets, for the advice about one that is nearly right.
select name
from secrets
where tenant_id = $1
order by name
limit $2

-- name: secret_users
-- The names of jobs that name a secret, at most so many.
select j.name
from (
    select u.job_id
    from secret_uses as u
    where u.tenant_id = $1
        and u.secret = $2
    order by u.job_id
    limit $3
) as users
join jobs as j
    on j.tenant_id = $1
    and j.id = users.job_id
order by j.name

-- name: lock_secret
-- Whether there is a secret. Until the transaction ends no job is made that names it.
select name
from secrets
where tenant_id = $1
    and name = $2
for update

-- name: drop_secret
-- Forget a secret that no job names, or whichever it is. Jobs that name it are known as before.
delete from secrets
where tenant_id = $1
    and name = $2
    and (
        $3
        or not exists (
            select from secret_uses
            where secret_uses.tenant_id = $1
                and secret_uses.secret = $2
        )
    )
returning name

-- name: hold_secrets
-- Those of some secrets that there are, kept from being deleted until the transaction ends.
select name
from secrets
where tenant_id = $1
    and name = any($2::text[])
order by name
for key share

-- name: forget_secret_uses
-- Definitions are written anew: what they named before does not count any more.
delete from secret_uses
where tenant_id = $1
    and job_id = any($2::uuid[])

-- name: note_secret_uses
-- Note which secrets jobs name.
insert into secret_uses (tenant_id, secret, job_id)
select $1, used.secret, used.job_id
from unnest($2::text[], $3::uuid[]) as used (secret, job_id)
on conflict (tenant_id, secret, job_id) do nothing

-- name: sealed_secrets
-- Secrets by tenant and name, as they are kept.
select s.tenant_id, s.name, s.revision, s.key_id, s.wrapped_key, s.ciphertext
from unnest($1::integer[], $2::text[]) as wanted (tenant_id, name)
join secrets as s
    on s.tenant_id = wanted.tenant_id
    and s.name = wanted.name

-- name: wrapped_otherwise
-- Secrets whose own keys are encrypted with another key than the one that is named, from behind a place; without what they say,
-- which may be long and is not looked at.
select tenant_id, name, revision, key_id, wrapped_key, ''::bytea as ciphertext
from secrets
where key_id <> $1
    and ($2::integer is null or (tenant_id, name) > ($2, $3::text))
order by tenant_id, name
limit $4

-- name: rewrap_secrets
-- Put other wrapped keys in place. A secret that was set anew meanwhile is left alone.
update secrets as s
set key_id = given.key_id,
    wrapped_key = given.wrapped_key
from unnest($1::integer[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::bytea[])
    as given (tenant_id, name, revision, old_key_id, key_id, wrapped_key)
where s.tenant_id = given.tenant_id
    and s.name = given.name
    and s.revision = given.revision
    and s.key_id = given.old_key_id

-- name: count_secrets
-- How many secrets there are by the key that they are encrypted with.
select key_id, count(*) as secrets
from secrets
group by key_id
