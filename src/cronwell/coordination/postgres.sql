-- name: acquire
-- Take or keep leases: free ones, expired ones and one's own. A lease that changes hands starts a new epoch.
insert into leases (name, owner, epoch, expires_at)
select name, $2, 1, $4
from unnest($1::text[]) as wanted (name)
on conflict (name) do update
set owner = excluded.owner,
    epoch = leases.epoch + case when leases.owner = excluded.owner and leases.expires_at > $3 then 0 else 1 end,
    expires_at = excluded.expires_at
where leases.owner = excluded.owner
    or leases.expires_at <= $3
returning name, epoch

-- name: release
-- Give leases back, so that the next owner need not wait for their end.
update leases
set expires_at = $3
where name = any($1::text[])
    and owner = $2
