-- name: pulse
-- Write down a process's sign of life and tell which one was there before, and which incarnation of the database has it.
with before as (
    select number, beat_at
    from pulses
    where process = $1
),
kept as (
    insert into pulses (process, number, beat_at)
    values ($1, $2, $3)
    on conflict (process) do update
    set number = excluded.number, beat_at = excluded.beat_at
)
select incarnation() as incarnation, before.number, before.beat_at
from (values (true)) as always (holds)
left join before on always.holds

-- name: forget_pulses
-- Remove the last signs of processes that are long gone.
delete from pulses
where beat_at < $1
