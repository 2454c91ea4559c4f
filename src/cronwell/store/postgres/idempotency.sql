-- name: lock_key
-- Let one request with an Idempotency-Key through at a time.
select pg_advisory_xact_lock(hashtextextended($2, $1::integer))

-- name: recall
-- What was answered to a request with this Idempotency-Key.
select fingerprint, status, body
from idempotency_keys
where tenant_id = $1
    and key = $2

-- name: remember
-- Keep the answer, in the transaction of the change that it tells of.
insert into idempotency_keys (tenant_id, key, fingerprint, status, body, created_at)
values ($1, $2, $3, $4, $5, $6)

-- name: forget
-- Forget keys that are past their time.
delete from idempotency_keys
where created_at < $1
