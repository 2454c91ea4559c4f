-- name: recall
-- What was answered to a request with this Idempotency-Key.
select fingerprint, status, body
from idempotency_keys
where tenant_id = $1
    and key = $2

-- name: remember
-- Keep the answer in the transaction of the change it tells of; a second request with the key waits here for the first.
insert into idempotency_keys (tenant_id, key, fingerprint, status, body, created_at)
values ($1, $2, $3, $4, $5, $6)
on conflict do nothing
returning key

-- name: forget
-- Forget keys that are past their time.
delete from idempotency_keys
where created_at < $1
