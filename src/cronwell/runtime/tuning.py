"""How the embedded PostgreSQL is set up for this work: many small writes, one machine, our own clients."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

MIB = 1024 * 1024
GIB = 1024 * MIB

_CGROUP = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60


def server_settings(*, socket_dir: Path, memory: int, has_statement_statistics: bool) -> dict[str, str]:
    """The settings that `cronwell.conf` carries, for a machine or container with `memory` bytes."""
    shared_buffers = min(max(memory // 8, 128 * MIB), 4 * GIB)
    # The next checkpoint begins after half of it, so this is also what has to be read again after a crash.
    max_wal_size = min(max(memory // 2, 4 * GIB), 8 * GIB)
    settings = {
        # Reachable through its socket alone, and that by its owner alone.
        "listen_addresses": "",
        "unix_socket_directories": str(socket_dir),
        "unix_socket_permissions": "0700",
        "port": "5432",
        "max_connections": "200",
        # What was acknowledged survives a power cut.
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "shared_buffers": f"{shared_buffers // MIB}MB",
        "effective_cache_size": f"{max(memory // 2, 256 * MIB) // MIB}MB",
        # Checkpoints by the clock, not by volume: a herd writes much WAL in a minute, and behind a checkpoint each page
        # is written whole into it once more. By arithmetic, not measured: with ten million jobs a thousand executions a
        # second write 3 GB in the 15 minutes, 3.4 KB each; with 4 GB here checkpoints came every 7 minutes, 5 KB each.
        "max_wal_size": f"{max_wal_size // MIB}MB",
        "min_wal_size": "512MB",
        "checkpoint_timeout": "15min",
        "checkpoint_completion_target": "0.9",
        "wal_compression": "off",
        "random_page_cost": "1.1",
        # Statements are short and prepared: compiling them or sharing them out costs more than it saves, and the
        # segments that parallel plans share are a few MB short in many a container.
        "jit": "off",
        "max_parallel_workers_per_gather": "0",
        # Hot rows are updated several times a minute; vacuum keeps up in many small steps. Not in smaller ones: while an old
        # transaction is open each of them reads all that has died since, and finds nothing to clear away. After eight minutes
        # of one, at 5,000/s, that was 0.9 s in ten, and starts had a p99 of 17 ms with it and 12 without (November 2026).
        "autovacuum_naptime": "30s",
        "autovacuum_max_workers": "3",
        "autovacuum_vacuum_cost_limit": "2000",
        "track_io_timing": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
        # One file per weekday, each begun anew a week later.
        "logging_collector": "on",
        "log_directory": "log",
        "log_filename": "postgres-%u.log",
        "log_rotation_age": "1d",
        "log_rotation_size": "0",
        "log_truncate_on_rotation": "on",
        "log_line_prefix": "%m [%p] %a ",
        "log_min_duration_statement": "5s",
    }
    if has_statement_statistics:
        settings["shared_preload_libraries"] = "pg_stat_statements"
    return settings


def write_settings(settings: Mapping[str, str]) -> str:
    """The settings as the text of a configuration file."""
    lines = [f"{name} = '{value.replace(chr(39), chr(39) * 2)}'" for name, value in settings.items()]
    return "\n".join(["# Written by Cronwell at each start; what is changed here is lost.", *lines, ""])


def memory_limit(cgroup: Path = _CGROUP, membership: Path = Path("/proc/self/cgroup")) -> int:
    """The bytes of memory that this process may use: the machine's, or fewer where a container has a limit."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_cgroup_limits(cgroup, membership)])


def _cgroup_limits(cgroup: Path, membership: Path) -> list[int]:
    """Every limit above this process, in both versions of control groups. A parent's limit binds its children."""
    limits = []
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = cgroup, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = cgroup / "memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container the path is the host's, and only the root of what is mounted can be read.
        group = root / path.strip("/")
        for directory in (group, *group.parents):
            limits.append(_read_limit(directory / name))
            if directory == root:
                break
    return limits


def _read_limit(file: Path) -> int:
    try:
        text = file.read_text().strip()
    except OSError:
        return _NO_LIMIT
    return int(text) if text.isdigit() else _NO_LIMIT
