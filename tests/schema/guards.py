"""How each statement must find its rows: by which index, and on which of its columns.

A guard names, for each table of a statement by its alias, the only ways in which its rows may be read. Tables without a
way here (`workers`, `leases`, functions) are small; the large ones must be named.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import cronwell.sentinel
import cronwell.store.postgres
from cronwell.runtime.statements import load_statements
from cronwell.store.port import EVER
from cronwell.store.postgres.rows import micros
from tests.schema.million import FIRST_DAY, NOON, ROWS, job_id, slot_of, worker_id
from tests.schema.plans import BY_PLACE, Explained, Scan

LARGE = ("executions", "attempts", "cursors", "jobs")

_STORE = Path(cronwell.store.postgres.__file__).parent
STATEMENTS = {
    name: sql for file in sorted(_STORE.glob("*.sql")) for name, sql in load_statements(file).items()
}
STATEMENTS |= load_statements(Path(cronwell.sentinel.__file__).parent / "readings.sql")
_COLUMN = re.compile(r"\(+(?:ROW\()?(\w+)(?:\)::\w+)? (?:=|<|>|<=|>=|@>|IS)")
_PAIR = re.compile(r"ROW\((\w+), (\w+)\) (?:<|>)")


@dataclass(frozen=True)
class Way:
    """An index, and the columns that its condition must name, all of them and no other."""

    index: str
    columns: frozenset[str]

    def __str__(self) -> str:
        return f"{self.index} on {sorted(self.columns)}"


def way(index: str, *columns: str) -> Way:
    return Way(index, frozenset(columns))


KEY = way("executions_pkey", "job_id", "slot", "kind", "tenant_id")
PLACE = way(BY_PLACE, "ctid")
JOB = way("jobs_pkey", "tenant_id", "id")
CURSOR = way("cursors_pkey", "tenant_id", "job_id")
CLAIMABLE = way("executions_claimable", "pool", "priority", "ready_at")
EARLIER = way("executions_unfinished", "job_id", "slot")
# How a claim finds what holds up an execution of a job that limits them. What is unfinished since more than a day is little,
# and in an index of its own.
_IN_THE_WAY = {"other": (EARLIER,)}
_BLOCKING = {**_IN_THE_WAY, "executions": (PLACE, KEY)}
OF_JOB = way("executions_pkey", "job_id", "tenant_id")
HELD_BY = way("executions_held", "held_by")
AT_SLOT = way("executions_pkey", "job_id", "slot", "tenant_id")
FOLLOWED = way("executions_followed")


@dataclass(frozen=True)
class Guard:
    """A statement with arguments, and the ways in which it may read each of its large tables."""

    statement: str
    args: Sequence[object]
    ways: Mapping[str, tuple[Way, ...]]
    is_sorted_by_index: bool = False

    @property
    def sql(self) -> str:
        return STATEMENTS[self.statement]

    def check(self, plan: Explained, *, besides: Collection[str] = (), without: Collection[str] = ()) -> None:
        """Fail with the plan where it reads a large table in any other way, `besides` these partitions.

        Columns `without` which it may do are those that narrow a search by little.
        """
        for alias, given in self.ways.items():
            ways = (*given, *(Way(each.index, each.columns - frozenset(without)) for each in given))
            for scan in plan.of(alias):
                if scan.partition in besides:
                    continue
                assert taken(scan) in ways, (
                    f"{self.statement} reads {alias} by {scan}\nwanted: {' or '.join(map(str, ways))}\n{plan}"
                )
        unguarded = {scan.alias for scan in plan.scans if scan.table in LARGE} - set(self.ways)
        assert not unguarded, f"{self.statement} reads {unguarded} unguarded\n{plan}"
        if self.is_sorted_by_index:
            assert not plan.kinds & {"Sort", "Incremental Sort"}, f"{self.statement} sorts\n{plan}"


def taken(scan: Scan) -> Way | None:
    """The way that a scan takes; None for one that goes through the whole table."""
    if scan.index is None:
        return None
    if scan.index == BY_PLACE:
        return PLACE
    pairs = [column for pair in _PAIR.findall(scan.condition) for column in pair]
    return Way(scan.index, frozenset([*_COLUMN.findall(scan.condition), *pairs]))


# Executions of days long gone, of today, and of days that are still empty.
_NUMBERS = (1, 250_000, ROWS // 2, ROWS - 1, ROWS)
_SLOTS = [*map(slot_of, _NUMBERS), NOON + timedelta(days=1), NOON + timedelta(days=2)]
_COUNT = len(_SLOTS)
_MICROS = list(map(micros, _SLOTS))
_KEYS: list[list[object]] = [
    [1] * _COUNT,
    [job_id(1 + number) for number in range(_COUNT)],
    ["scheduled"] * _COUNT,
    list(_SLOTS),
]
_FENCES = [1] * _COUNT
_WORKERS = [worker_id(1)] * _COUNT
_NONE = [None] * _COUNT
_ONE = (1, job_id(7), "scheduled", NOON)
_SLOT = (1, job_id(7), NOON)
_NO_PLACE = (None, None, None)
_FIRST = NOON.replace(hour=0, day=FIRST_DAY.day)

_NAMED = way("jobs_name", "tenant_id", "name")
_PAGED = way("executions_pkey", "job_id", "slot", "tenant_id")

HOT = [
    Guard(
        "lock_due",
        [list(range(64)), NOON + timedelta(minutes=1), 32, [EVER] * 64],
        {"cursors": (way("cursors_due", "shard", "next_slot"),)},
        is_sorted_by_index=True,
    ),
    Guard(
        "mark_shards",
        [list(range(64)), [1] * 64, worker_id(1), NOON + timedelta(minutes=1), NOON],
        {"c": (way("cursors_due", "shard"),)},
        is_sorted_by_index=True,
    ),
    Guard(
        "insert_executions",
        [
            *(_KEYS[0], _KEYS[1], _SLOTS, _SLOTS, ["pending"] * _COUNT, [1] * _COUNT, [1] * _COUNT, _NONE),
            *(["default"] * _COUNT, _NONE, _NONE, _NONE, _NONE, _NONE, [False] * _COUNT),
        ],
        {},
    ),
    *(
        Guard(
            name,
            [
                *(_KEYS[0], _KEYS[1], _FENCES, [1] * _COUNT, [0] * _COUNT, ["default"], [1] * _COUNT),
                *(list(range(1, _COUNT + 1)), _MICROS, _NONE),
                *([0] * _COUNT, ["group"], [3], [0] * _COUNT, [False] * _COUNT),
            ],
            {},
        )
        for name in ("insert_fresh", "insert_staged")
    ),
    Guard(
        "move_cursors",
        [_KEYS[0], _KEYS[1], _FENCES, _SLOTS, _SLOTS, _NONE, [False] * _COUNT, _NONE, "2026b"],
        {"cursors": (CURSOR,)},
    ),
    Guard("lock_awaiting", [NOON, 1000], {"c": (way("cursors_awaiting"),), "awaited": (KEY,)}),
    Guard(
        "claim",
        ["default", 1, NOON, worker_id(1), 1000, NOON, EVER, EVER],
        {
            "candidate": (CLAIMABLE,),
            **_BLOCKING,
        },
        is_sorted_by_index=True,
    ),
    Guard(
        "startable",
        [["default"], [1], NOON, worker_id(1), 1000, NOON, [NOON]],
        {
            "candidate": (CLAIMABLE,),
            **_IN_THE_WAY,
        },
        is_sorted_by_index=True,
    ),
    Guard("count_before", [["default"], [1], [NOON], 1000], {"due": (CLAIMABLE,)}),
    Guard(
        "claim_found",
        [_KEYS[0], _KEYS[1], NOON, worker_id(1), ["scheduled"] * _COUNT, NOON, _SLOTS, EVER, "default"],
        {
            "candidate": (KEY,),
            **_BLOCKING,
        },
    ),
    Guard(
        "claim_shares",
        ["default", 1, NOON, worker_id(1), [1, 2], NOON, [500, 500], EVER, [EVER, NOON]],
        {
            "candidate": (way("executions_waiting", "pool", "priority", "tenant_id", "ready_at"),),
            **_BLOCKING,
        },
        is_sorted_by_index=True,
    ),
    Guard(
        "waiting_tenants",
        ["default", 1, NOON],
        {
            "executions": (way("executions_waiting", "pool", "priority"),),
            "following": (way("executions_waiting", "pool", "priority", "tenant_id"),),
        },
        is_sorted_by_index=True,
    ),
    Guard(
        "waiting_tenants_since",
        ["default", 1, NOON, NOON - timedelta(seconds=1)],
        {"due": (way("executions_waiting", "pool", "priority", "tenant_id", "ready_at"),)},
    ),
    Guard(
        "skip_blocked",
        [["default"], NOON, EVER],
        {
            "due": (CLAIMABLE,),
            "moved": (KEY,),
            "e": (KEY,),
            **dict.fromkeys(("earlier", "newer"), (EARLIER,)),
        },
    ),
    Guard("cancel_overlapped", [_KEYS[1], _SLOTS, NOON], {"executions": (EARLIER,), "e": (KEY,)}),
    Guard("due_tiers", [["default"], [1], NOON, [EVER], EVER], {"due": (CLAIMABLE,)}),
    Guard(
        "waiting_gates",
        [["default"], NOON, 1000, 0, ""],
        {
            "executions": (way("executions_gated", "pool", "priority", "tenant_id", "gate"),),
            "following": (way("executions_gated", "pool", "priority", "tenant_id", "gate"),),
            "held": (KEY,),
        },
    ),
    Guard("count_holds", [[1, 1], ["", "warehouse"]], {"held": (KEY,)}),
    Guard(
        "claim_gated",
        [
            *(["default"] * 2, [4, 4], NOON, worker_id(1), 1000, NOON),
            *([1, 1], EVER, [500, 3], [0, 0], ["", "warehouse"]),
        ],
        {
            "candidate": (way("executions_gated", "pool", "priority", "tenant_id", "gate", "ready_at"),),
            **_BLOCKING,
        },
    ),
    Guard(
        "complete",
        [
            *_KEYS,
            *(
                _FENCES,
                _WORKERS,
                ["succeeded"] * _COUNT,
                ["failed"] * _COUNT,
                _SLOTS,
                _SLOTS,
                _NONE,
                _NONE,
                _NONE,
                _NONE,
            ),
            *([False] * _COUNT, min(_SLOTS)),
        ],
        {"e": (KEY,)},
    ),
    Guard("any_to_judge", [NOON], {"executions": (FOLLOWED,)}),
    Guard("lock_followed", [500], {"executions": (FOLLOWED,)}),
    Guard("share_dependents", [_KEYS[0], _KEYS[1]], {"j": (JOB,)}),
    Guard("executions_at", [_KEYS[0], _KEYS[1], _SLOTS], {"there": (AT_SLOT,)}),
    Guard("prospects_at", [_KEYS[0], _KEYS[1], _SLOTS], {"cursors": (CURSOR,)}),
    Guard("skip_unmet", [_KEYS[0], _KEYS[1], _SLOTS, ["x"] * _COUNT, NOON, _KEYS[2]], {"e": (KEY,)}),
    Guard(
        "revise_unmet",
        [
            *(_KEYS[0], _KEYS[1], _SLOTS, _SLOTS, ["x"] * _COUNT, [1] * _COUNT, ["default"] * _COUNT),
            *([False] * _COUNT, NOON, _KEYS[2], ["warehouse"] * _COUNT, [3] * _COUNT),
        ],
        {"e": (KEY,)},
    ),
    Guard("outrun", [_KEYS[0], _KEYS[1], _SLOTS], {"newer": (EARLIER,)}),
    Guard("clear_followed", _KEYS, {"e": (KEY,)}),
    Guard("upstream_results", [_KEYS[0], _KEYS[1], _SLOTS, 65_536], {"j": (JOB,), "there": (AT_SLOT,)}),
    Guard("unfollowed", [500], {"cursors": (CURSOR,)}),
    Guard("tell_stuck", [NOON], {"j": (JOB,)}),
    Guard(
        "succeed",
        [_KEYS[0], _KEYS[1], "scheduled", _MICROS, _FENCES, _MICROS, _MICROS, worker_id(1), min(_SLOTS)],
        {"e": (KEY,)},
    ),
    Guard(
        "park",
        [*_KEYS, _FENCES, _WORKERS, _SLOTS, _SLOTS, _SLOTS, _NONE],
        {"e": (KEY,)},
    ),
    Guard("hear", [*_KEYS, _FENCES, _WORKERS, _NONE, _NONE, NOON], {"e": (KEY,)}),
    Guard(
        "lock_overdue",
        [NOON, 500],
        {"e": (way("executions_called", "callback_until"),), "j": (JOB,)},
        is_sorted_by_index=True,
    ),
    Guard(
        "lock_called_off",
        [NOON, 500],
        {"e": (way("executions_running", "worker", "cancel_requested_at"),), "j": (JOB,)},
        is_sorted_by_index=True,
    ),
    Guard("confirm", [*_KEYS, _FENCES, worker_id(1), NOON, NOON], {"e": (KEY,), "jobs": (JOB,)}),
    Guard("hand_back", [*_KEYS, _FENCES, worker_id(1)], {"e": (KEY,)}),
    Guard("disown", [worker_id(1), worker_id(2), NOON, *_KEYS, _FENCES], {"e": (KEY,)}),
    Guard("hold_back", [*_KEYS, _FENCES, _SLOTS, ["host:example.com"] * _COUNT, worker_id(1)], {"e": (KEY,)}),
    Guard("release_held", [1, "host:example.com", NOON, 1000], {"executions": (HELD_BY,), "e": (KEY,)}),
    Guard("report", [*_KEYS, _FENCES, _WORKERS, _SLOTS, _NONE], {"e": (KEY,)}),
    Guard(
        "cancels",
        [worker_id(1)],
        {"executions": (way("executions_running", "worker", "cancel_requested_at"),)},
    ),
    Guard("held_by", [worker_id(1)], {"executions": (way("executions_running", "worker"),)}),
    Guard("orphans", [1000], {"e": (way("executions_running", "worker"),), "j": (JOB,)}),
    Guard("definitions", [[1, 1], [job_id(1), job_id(2)]], {"jobs": (JOB,)}),
    Guard("definitions_at", [[1, 1], [job_id(1), job_id(2)], [1, 2]], {"jobs": (JOB,)}),
    Guard("open_backfills", [1000], {"jobs": (JOB,)}),
    Guard("share_job", [1, job_id(7)], {"jobs": (JOB,)}),
    Guard("backfilled", _KEYS, {"e": (KEY,)}),
    Guard("unstage", _KEYS, {"e": (KEY,)}),
    Guard("end_retries", [*_KEYS, NOON], {"e": (KEY,)}),
    Guard("heartbeat", [worker_id(1), NOON, NOON, 1, False], {}),
    Guard("lose_workers", [NOON], {}),
    # A few workers, now and then: going through what runs for each is no harm.
    Guard(
        "forget_workers",
        [NOON],
        {"executions": (way("executions_running"), way("executions_running", "worker"))},
    ),
    Guard(
        "finish_ended",
        [1000, NOON],
        {"cursors": (way("cursors_ended"), CURSOR), "executions": (OF_JOB,), "jobs": (JOB,), "j": (JOB,)},
        is_sorted_by_index=True,
    ),
    Guard(
        "window_end",
        [1, job_id(7), 1, job_id(900_000), 5000],
        {"cursors": (CURSOR,)},
        is_sorted_by_index=True,
    ),
    Guard(
        "stale_cursors",
        [1, job_id(7), 1, job_id(5007), ["2026b", "2026b held"]],
        {"cursors": (CURSOR,)},
        is_sorted_by_index=True,
    ),
    Guard("lock_cursors", [_KEYS[0], _KEYS[1]], {"c": (CURSOR,)}),
    Guard(
        "standings",
        [_KEYS[0], _KEYS[1], NOON, timedelta(hours=26)],
        {"c": (CURSOR,), "j": (JOB,), "e": (KEY,)},
    ),
    Guard("mark_tzdata", [_KEYS[0], _KEYS[1], _FENCES, _SLOTS, "2026b"], {"cursors": (CURSOR,)}),
    Guard(
        "slice_end",
        [1, job_id(7), 5000],
        {"jobs": (JOB,)},
        is_sorted_by_index=True,
    ),
    Guard(
        "suspects",
        [1, job_id(7), 1, job_id(5007), NOON, NOON],
        {"sliced": (JOB,), "looked_up": (CURSOR,), "awaited": (KEY,)},
    ),
    # Between the workers that live, and between the pools that are served: once in a walk.
    Guard("abandoned", [NOON, 10], {"e": (way("executions_running", "worker"),)}),
    Guard(
        "unserved", [NOON, ["default", "other"]], {"due": (way("executions_claimable", "pool", "ready_at"),)}
    ),
    Guard(
        "overdue",
        [timedelta(seconds=30), 1000],
        {
            "head": (way("executions_claimable"),),
            "step": (way("executions_claimable", "pool"),),
            "due": (CLAIMABLE,),
            "earlier": (EARLIER,),
        },
    ),
    Guard(
        "open_gates",
        [timedelta(seconds=30), 100],
        {
            "head": (way("executions_claimable"),),
            "step": (way("executions_claimable", "pool"),),
            "front": (way("executions_gated", "pool", "priority"),),
            "behind": (way("executions_gated", "pool", "priority", "tenant_id", "gate"),),
            "waiting": (way("executions_gated", "pool", "priority", "tenant_id", "gate", "ready_at"),),
            "earlier": (EARLIER,),
            "held": (KEY,),
        },
    ),
    Guard("backlog", [NOON], {"executions": (way("executions_claimable", "ready_at"),)}),
    # What rules of alerts look at.
    Guard("watched_by_name", [1, ["job-0000007", "job-0000008"]], {"looked_up": (_NAMED,)}),
    Guard("watched_by_id", [1, _KEYS[1]], {"looked_up": (JOB,)}),
    Guard(
        "watched_slice",
        [1, job_id(7), '{"team": "billing"}', 5000],
        {"jobs": (JOB,), "looked_up": (CURSOR,)},
    ),
    Guard("newest_runs", [1, _KEYS[1], NOON, 100], {"newest": (_PAGED,)}),
    Guard(
        "last_successes",
        [1, _KEYS[1], NOON - timedelta(days=2), NOON, 1000],
        {"e": (_PAGED,), "counted": (_PAGED,)},
    ),
    Guard("dead_by_job", [1, 10_000], {"executions": (way("executions_dead", "tenant_id"),)}),
    *(
        Guard(
            statement,
            [1, NOON, 500],
            {
                "head": (way("executions_claimable"),),
                "step": (way("executions_claimable", "pool"),),
                "due": (way("executions_waiting", "pool", "priority", "tenant_id", "ready_at"),),
            },
        )
        for statement in ("waiting_long", "waiting_depth")
    ),
    # As much as workers hold at the moment, where somebody has a rule about it.
    Guard("running_long", [1, NOON, 500], {"executions": (way("executions_running"),)}),
    Guard("get_channels", [1, ["ops"]], {"looked_up": (JOB,)}),
    Guard("pauses_over", [NOON, 1000], {"jobs": (way("jobs_pause_ends", "paused_until"),)}),
    Guard(
        "is_day_busy",
        [_FIRST, _FIRST + timedelta(days=1)],
        {"executions": (way("executions_claimable"), way("executions_running"))},
    ),
]


def _listing(**where: object) -> list[object]:
    """Arguments of list_executions, of which each is optional."""
    names = ("job", "states", "from_slot", "to_slot", "worker", "text", "kind", "slot", "job_id", "last_kind")
    return [1, *(where.get(name) for name in names), 100, where.get("begun_by")]


_HISTORY = way("executions_pkey", "job_id", "tenant_id")
_STAGED = {"c": (CURSOR,), "e": (way("executions_pkey", "job_id", "slot", "kind", "tenant_id"),)}

COLD = [
    Guard("get_job", [1, job_id(7), NOON], {"j": (JOB,), **_STAGED}),
    Guard("find_job", [1, "job-0000007"], {"jobs": (way("jobs_name", "tenant_id", "name"),)}),
    Guard("lock_job", [1, job_id(7)], {"j": (JOB,), "cursors": (CURSOR,)}),
    Guard("keep_revision", [1, job_id(7), NOON], {"j": (JOB,), "c": (CURSOR,)}),
    Guard("begin_plan", [1, job_id(7), NOON], {"jobs": (JOB,)}),
    Guard(
        "list_jobs",
        [1, NOON, None, None, None, None, None, None, "/", 100],
        {"listed": (_NAMED,), **_STAGED},
        is_sorted_by_index=True,
    ),
    Guard(
        "list_jobs",
        [1, NOON, "active", None, None, None, "default", "http", "job-0500000", 100],
        {"listed": (way("jobs_name", "tenant_id", "name"),), **_STAGED},
        is_sorted_by_index=True,
    ),
    Guard(
        "list_jobs",
        [1, NOON, None, "job-05", "job-05\U0010ffff", None, None, None, "/", 100],
        {"listed": (way("jobs_name", "tenant_id", "name"),), **_STAGED},
        is_sorted_by_index=True,
    ),
    Guard(
        "list_jobs",
        [1, NOON, None, None, None, '{"team": "billing"}', None, None, "/", 100],
        {"listed": (way("jobs_tags", "tags"),), **_STAGED},
    ),
    Guard(
        "list_deleted_jobs",
        [1, None, None, None, None, None, "job-05", job_id(7), 100],
        {"j": (way("jobs_deleted", "tenant_id", "name", "id"), way("jobs_deleted", "tenant_id"))},
        is_sorted_by_index=True,
    ),
    Guard("list_executions", _listing(job=job_id(7)), {"e": (_HISTORY,), "j": (JOB,)}),
    Guard("list_executions", _listing(job=job_id(7), begun_by=NOON), {"e": (_HISTORY,), "j": (JOB,)}),
    Guard(
        "list_executions",
        _listing(job=job_id(7), to_slot=NOON, slot=NOON, job_id=job_id(7), last_kind="scheduled"),
        {"e": (_PAGED,), "j": (JOB,)},
    ),
    Guard(
        "list_executions",
        _listing(states=["failed"]),
        {"e": (way("executions_dead", "tenant_id"),), "j": (JOB,)},
    ),
    *(
        Guard(
            "list_executions",
            _listing(from_slot=NOON - timedelta(hours=9, seconds=seconds), to_slot=NOON - timedelta(hours=9)),
            {"e": (way("executions_recent", "slot"),), "j": (JOB,)},
        )
        for seconds in (1, 8, 64, 512)
    ),
    Guard("get_execution", _ONE, {"e": (KEY,), "j": (JOB,)}),
    Guard("get_called", _ONE, {"e": (KEY,), "j": (JOB,)}),
    Guard(
        "list_attempts", _ONE, {"attempts": (way("attempts_pkey", "job_id", "slot", "kind", "tenant_id"),)}
    ),
    Guard("cancel_execution", [*_ONE, NOON], {"executions": (KEY,)}),
    Guard("dismiss", _ONE, {"executions": (KEY,)}),
    Guard("count_held", [1, ["host:example.com", "shell"], 1000], {"executions": (HELD_BY,)}),
    Guard("jobs_named", [1, ["job-0500000", "job-0500001"]], {"looked_up": (_NAMED,)}),
    Guard("jobs_of_ids", [1, _KEYS[1]], {"jobs": (JOB,)}),
    Guard("names_between", [1, "job-05", "job-06", 1000], {"jobs": (way("jobs_name", "tenant_id", "name"),)}),
    Guard("dependents_named", [1, job_id(7), 20], {"j": (JOB,)}),
    Guard("set_plan", [1, job_id(7), "{}"], {"cursors": (CURSOR,)}),
    Guard("mark_followed", [1, job_id(7)], {"executions": (OF_JOB,)}),
    Guard("latest_of", [1, _KEYS[1], NOON, None], {"there": (AT_SLOT,)}),
    Guard("lock_rerun", [1, _KEYS[1], NOON], {"e": (AT_SLOT,)}),
    Guard(
        "rerun", [*_ONE, NOON, True], {"executions": (KEY,), "e": (KEY,), "newer": (EARLIER,), "jobs": (JOB,)}
    ),
    Guard("undo_dependents", [1, _KEYS[1], NOON, NOON], {"executions": (KEY,)}),
    Guard("revive_execution", [*_ONE, NOON], {"executions": (KEY,), "newer": (EARLIER,), "jobs": (JOB,)}),
    Guard(
        "make_way",
        [1, job_id(7), NOON, NOON + timedelta(seconds=5)],
        {"executions": (EARLIER,), "moved": (KEY,)},
    ),
    Guard(
        "begun_ahead",
        [1, job_id(7), NOON, NOON + timedelta(seconds=5)],
        {"executions": (EARLIER,)},
    ),
    Guard("unfinished", [1, job_id(7), NOON, 1], {"executions": (OF_JOB,)}),
    Guard("overrides_waiting", [NOON, NOON, timedelta(days=31), *_NO_PLACE, 1000], {"c": (CURSOR,)}),
    Guard("clear_slot", _SLOT, {"executions": (KEY,)}),
    Guard("slot_state", _SLOT, {"executions": (KEY,)}),
    Guard("count_ahead", [*_SLOT, NOON + timedelta(days=1)], {"executions": (KEY,)}),
    Guard(
        "drop_staged",
        [1, job_id(7), NOON],
        {"executions": (way("executions_pkey", "job_id", "slot", "kind", "tenant_id"),)},
    ),
    Guard("withhold_due", [1, job_id(7), NOON, "paused"], {"executions": (OF_JOB,)}),
    Guard("rebase_open", [1, job_id(7), 2, "default", 1, "warehouse", 3], {"executions": (OF_JOB,)}),
    Guard(
        "redrive",
        [1, None, None, None, None, 500, 10.0, NOON, NOON, None, None, None],
        {"e": (way("executions_dead", "tenant_id"), KEY), "newer": (EARLIER,), "j": (JOB,)},
    ),
    Guard("secret_users", [1, "token", 1000], {"j": (JOB,)}),
    Guard("get_backfill", [1, job_id(7)], {"j": (JOB,)}),
    Guard("list_backfills", [1, job_id(7), None, None, 100], {"j": (JOB,)}),
    Guard(
        "count_backfilled",
        [1, job_id(7), NOON - timedelta(days=3), NOON, 1000],
        {"executions": (KEY,)},
    ),
    Guard("update_job", [1, job_id(7), "x", "active", "p", "http", "{}", "{}", NOON], {"jobs": (JOB,)}),
    Guard("set_job_state", [1, job_id(7), "paused", None, None, None, NOON], {"jobs": (JOB,)}),
    Guard("drop_cursor", [1, job_id(7)], {"cursors": (CURSOR,)}),
    Guard("revisions_over", [1, job_id(7), NOON, NOON, 10], {"j": (JOB,), "c": (CURSOR,)}),
    Guard("revision_at", [1, job_id(7), NOON], {"j": (JOB,), "c": (CURSOR,)}),
    Guard(
        "accountable_jobs",
        [1, job_id(7), None, NOON - timedelta(hours=1), NOON + timedelta(hours=1), 500],
        {"listed": (JOB,), "c": (CURSOR,)},
        is_sorted_by_index=True,
    ),
    Guard(
        "slots_between",
        [1, _KEYS[1], NOON - timedelta(hours=1), NOON],
        {"executions": (KEY,)},
    ),
    Guard(
        "last_slots",
        [1, _KEYS[1]],
        {"e": (way("executions_pkey", "job_id", "kind", "tenant_id"),)},
    ),
    Guard("list_early", [1, NOON, None, None, None, None, None, None, 51], {"early": (KEY,), "j": (JOB,)}),
    Guard("why_waiting", [*_ONE, NOON], {"e": (KEY,), "held": (KEY,)}),
    Guard("waits_over", [NOON, 1000], {"cursors": (way("cursors_waiting", "held_until"),)}),
    Guard("all_plans", [1, 20_001], {"cursors": (way("cursors_pkey", "tenant_id"),)}),
]

# These add rows, or read tables that stay small.
UNGUARDED = {
    *("insert_jobs", "put_cursor", "insert_skips", "register", "hurry"),
    # One key, and a tenant by its own.
    "callback_terms",
    *("insert_backfill", "lock_backfill", "put_backfill", "insert_asked"),
    *("signing_secret", "list_workers", "leave", "ensure_day", "days", "span", "await_changes", "skips_over"),
    *("forget", "lock_key", "recall", "remember", "hold_shards", "enter_shards", "list_shards"),
    # Found by their own keys, the newest first.
    *("list_audit", "check_audit", "note_change", "count_unsealed", "seal_audit"),
    # There are as many gates as groups, and as many holds as running executions that went through one.
    *("make_gates", "lock_gates", "hold_gates", "count_minute", "limited"),
    # Read all that waits, and all that runs, on purpose, and seldom.
    *("gate_waiting", "hold_running"),
    # A tenant has a few keys.
    *(
        "find_key",
        "insert_key",
        "get_key",
        "list_keys",
        "lock_api_key",
        "end_key",
        "revoke_key",
        "note_key_use",
    ),
    *(
        "has_keys",
        "insert_tenant",
        "get_tenant",
        "list_tenants",
        "lock_tenant",
        "change_tenant",
        "count_jobs",
        "hold_tenant",
    ),
    # Limits are few, and so are hosts that fail.
    *("throttling", "every_limit", "lock_limit", "put_limit", "drop_limit", "get_limit", "list_limits"),
    *("note_limit", "note_hosts", "changed_hosts", "list_hosts", "get_host", "close_host", "forget_hosts"),
    # A tenant has some secrets, found by their names.
    *(
        "insert_secret",
        "change_secret",
        "get_secret",
        "list_secrets",
        "secret_names",
        "lock_secret",
        "drop_secret",
    ),
    *("hold_secrets", "forget_secret_uses", "note_secret_uses", "sealed_secrets", "rewrap_secrets"),
    # Now and then, for an operator, through all of them.
    *("wrapped_otherwise", "count_secrets"),
    # There are as many as processes, shards, or kinds of things to find.
    *("see", "stop", "ask_to_drain", "list_nodes", "forget_nodes", "incarnation", "put_findings"),
    *("list_findings", "enter_lost", "marks", "processes"),
    # Calendars are few, and what follows them is found by their names.
    *("put_calendar", "get_calendars", "list_calendars", "calendar_users", "drop_calendar"),
    "shifting_users",
    *("forget_uses", "note_uses", "outdated_uses"),
    *("revisions_between", "last_plan", "skips_between", "cursors_estimate"),
    # Reads a share of a table's pages on purpose.
    "sampled_plans",
    *(
        "put_override",
        "drop_override",
        "get_override",
        "list_overrides",
        "overrides_after",
        "overrides_applied",
    ),
    *("slots_left_out", "insert_decided", "forget_overrides"),
    # A tenant has a few rules and channels, and incidents are found by them, or are few.
    *("put_channel", "lock_channels", "list_channels", "drop_channel", "channel_users", "act_unnoted"),
    *("put_rule", "get_rule", "list_rules", "drop_rule", "count_alerting", "all_rules", "share_rule"),
    *("unsettled_incidents", "incidents_of_rule", "list_incidents", "open_incident", "resolve_incident"),
    *("mark_told", "mark_settled", "forget_incidents"),
    # What follows what is as much as users wrote of it, and is found by the jobs; so is what waits.
    *("lock_graph", "drop_edges", "insert_edges", "edges_above", "edges_below", "jobs_around", "edges_among"),
    *("followed_jobs", "dependents_of", "upstreams_of", "try_chaining", "await_chaining"),
    *("drop_waiting", "waiting_due", "keep_waiting", "waiting_since", "end_waiting", "count_waiting"),
    "waiting_of",
    # One row for each process.
    *("pulse", "forget_pulses"),
}

# A worker pauses a job that answers 410, and a scheduler resumes one whose pause is over: these run hot as well.
_CHANGES = (
    "get_job",
    "find_job",
    "lock_job",
    "keep_revision",
    "set_job_state",
    "drop_staged",
    "withhold_due",
)
# Whoever calls back ends an attempt, or tells of it, as workers do theirs.
COLD += [guard for guard in HOT if guard.statement in ("complete", "succeed", "hear")]
HOT += [guard for guard in COLD if guard.statement in (*_CHANGES, "get_execution")]
