-- name: list_audit
-- A tenant's changes, the newest first, from behind the place where the last page ended.
select a.id, a.at, a.actor, a.source, a.request_id, a.action, a.object, a.before::text as before, a.after::text as after,
    s.number, s.digest
from audit as a
left join audit_seals as s
    on s.tenant_id = a.tenant_id
    and s.entry = a.id
where a.tenant_id = $1
    and ($2::bigint is null or a.id < $2)
    and ($3::text is null or a.object = $3)
    and ($4::text is null or a.actor = $4)
    and ($5::text is null or a.action = $5)
    and ($6::text is null or a.request_id = $6)
    and ($7::timestamptz is null or a.at >= $7)
    and ($8::timestamptz is null or a.at < $8)
order by a.id desc
limit $9

-- name: check_audit
-- The chain of a tenant from behind a number on, so many links of it: where each stands, whether its digest is what its entry
-- and the digest before make it, and the digest.
select
    s.number, s.digest,
    a.id is not null
        and s.digest = sha256(coalesce(before.digest, '') || audit_content(a))
        and (s.number = 1 or before.number is not null) as is_whole
from audit_seals as s
left join audit as a
    on a.tenant_id = s.tenant_id
    and a.id = s.entry
left join audit_seals as before
    on before.tenant_id = s.tenant_id
    and before.number = s.number - 1
where s.tenant_id = $1
    and s.number > $2
order by s.number
limit $3

-- name: note_change
-- Write a change down of which no row of a table tells.
select note_changes(
    array[$1::integer], array[$2::text], array[$3::text], array[null]::json[], array[$4::text::json]
)

-- name: count_unsealed
-- How many changes of a tenant are not chained.
select count(*)
from audit as a
where a.tenant_id = $1
    and not exists (
        select from audit_seals as s
        where s.tenant_id = a.tenant_id
            and s.entry = a.id
    )

-- name: seal_audit
-- Chain entries that are not chained yet.
select seal_audit($1)
