-- name: hold_shards
-- The shards that are in the given epochs and owned by $3, kept so until the transaction ends: whoever wants to begin
-- the next epoch of one waits. The order of locking is that of the numbers, here and in `enter_shards`.
select s.shard
from shards as s
join unnest($1::smallint[], $2::bigint[]) as held (shard, epoch)
    on held.shard = s.shard
    and held.epoch = s.epoch
where s.owner = $3
    and s.incarnation = (select incarnation())
order by s.shard
for share of s

-- name: enter_shards
-- Begin new epochs.
with entered as (
    select shard
    from shards
    where shard = any($1::smallint[])
    order by shard
    for update
)
update shards
set epoch = epoch + 1, owner = $2, incarnation = (select incarnation()), entered_at = $3
from entered
where shards.shard = entered.shard
returning shards.shard, shards.epoch

-- name: mark_shards
-- Move the watermarks of shards: to just before the first slot that is not staged, and no further than $4. What was
-- accounted for stays so: a watermark goes back only where a job came, or was changed, with a slot before it.
update shards as s
set watermark = least($4, first.next_slot - interval '1 microsecond'), marked_at = $5
from unnest($1::smallint[], $2::bigint[]) as held (shard, epoch)
left join lateral (
    select c.next_slot
    from cursors as c
    where c.shard = held.shard
        and c.next_slot is not null
        and not c.awaits
    order by c.next_slot
    limit 1
) as first on true
where s.shard = held.shard
    and s.epoch = held.epoch
    and s.owner = $3
returning s.shard, s.watermark

-- name: list_shards
-- Every shard.
select shard, epoch, owner, incarnation, entered_at, watermark, marked_at
from shards
order by shard
