"""Where and on what a figure was measured: without that it says nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cronwell import __version__
from cronwell.runtime.postgres import Database

SHOWN_SETTINGS = (
    "server_version", "shared_buffers", "max_wal_size", "fsync", "synchronous_commit", "full_page_writes",
)  # fmt: skip


async def facts_of(database: Database) -> dict[str, Any]:
    """The version, the commit, the machine and the settings of PostgreSQL."""
    rows = await database.fetch(
        "select name, current_setting(name) as setting from unnest($1::text[]) as names (name)",
        SHOWN_SETTINGS,
    )
    return {
        "version": __version__,
        "commit": _commit(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {_memory()} GiB, {platform.machine()}, Python {platform.python_version()}",
        "postgresql": {row["name"]: row["setting"] for row in rows},
    }


def _commit() -> str | None:
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607  # whichever git the user has
            capture_output=True,
            text=True,
            check=True,
            timeout=5,
            cwd=Path(__file__).parent,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _memory() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3)
