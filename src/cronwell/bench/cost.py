"""What executions cost: the processor time of every process that took part, and what PostgreSQL wrote for them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cronwell.runtime.postgres import Database

_TICKS = os.sysconf("SC_CLK_TCK")
TICK = 1 / _TICKS
"""Seconds: the meters of processor time go by no less."""
_WRITTEN = """
select
    (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint as wal,
    (select xact_commit from pg_stat_database where datname = current_database()) as commits
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Per thousand executions."""

    cpu_seconds: dict[str, float]
    """By who spent them: `postgresql`, `scheduler`, `worker`, ..."""
    wal_bytes: float
    commits: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Reading:
    """Where the meters stand."""

    cpu_seconds: dict[str, float]
    wal_bytes: int
    commits: int

    def until(self, later: Reading, executions: int) -> Cost:
        """The cost per thousand of what was executed between this reading and a later one."""
        thousands = max(executions, 1) / 1000
        return Cost(
            {
                who: round((seconds - self.cpu_seconds.get(who, 0.0)) / thousands, 4)
                for who, seconds in later.cpu_seconds.items()
            },
            (later.wal_bytes - self.wal_bytes) / thousands,
            (later.commits - self.commits) / thousands,
        )


async def read_meters(database: Database, processes: Iterable[tuple[str, int]]) -> Reading:
    """Read the meters; `processes` are the roots of process trees, each with who it is."""
    row = await database.fetchrow(_WRITTEN)
    assert row is not None
    cpu: dict[str, float] = {}
    for who, pid in processes:
        cpu[who] = cpu.get(who, 0.0) + _tree_seconds(pid)
    return Reading(cpu, row["wal"], row["commits"])


def machine_seconds() -> float:
    """Processor time that the whole machine has spent at work; 0 where it does not tell."""
    try:
        fields = Path("/proc/stat").read_text().split(maxsplit=9)
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, interrupts, soft = (int(field) for field in fields[1:8])
    return (user + nice + system + interrupts + soft) / _TICKS


def memory_of(pid: int) -> int:
    """Bytes that a process has in memory: what it shares with others is counted in part."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _tree_seconds(root: int) -> float:
    """Processor time of a process and everything under it, the dead that it has waited for included."""
    own = _stat(root)
    if own is None:
        return 0.0
    ticks = own.ticks + own.dead
    parents = {root}
    pending = {pid: stat for pid in _pids() if (stat := _stat(pid)) is not None and pid != root}
    while found := {pid for pid, stat in pending.items() if stat.parent in parents}:
        for pid in found:
            stat = pending.pop(pid)
            ticks += stat.ticks + stat.dead
        parents = found
    return ticks / _TICKS


@dataclass(frozen=True, slots=True)
class _Stat:
    parent: int
    ticks: int
    dead: int


def _stat(pid: int) -> _Stat | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return _Stat(int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14]))


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
