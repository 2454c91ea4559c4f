"""One run of the benchmark: every figure, the machine it was seen on, and each throughput as a share of the limit."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cronwell import __version__
from cronwell.bench.fleet import scratch, server
from cronwell.bench.limit import measure_limit
from cronwell.bench.measure import Progress, measure_closed, measure_steady
from cronwell.config import Settings
from cronwell.runtime.postgres import Database

Stage = Callable[[str], Progress]
"""Begin a part of the run: told its title, answers what to tell its progress to."""

SHOWN_SETTINGS = (
    "server_version", "shared_buffers", "max_wal_size", "fsync", "synchronous_commit", "full_page_writes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how much of it."""

    limit: int = 100_000
    closed: int = 100_000
    open_rate: int = 3000
    open_seconds: int = 20
    lateness_rate: int = 500
    lateness_seconds: int = 30
    workers: int = os.cpu_count() or 1


async def run(settings: Settings, plan: Plan, stage: Stage) -> dict[str, Any]:
    """Measure everything, each part on a database of its own, and return the report."""
    with server(settings) as url:
        progress = stage("the limit: three statements alone")
        async with scratch(url) as (database, own):
            facts = await _facts(database)
            limit = await measure_limit(database, own, plan.limit)
        progress(1, 1)
        async with scratch(url) as (database, own):
            closed = await measure_closed(
                database,
                own,
                settings,
                count=plan.closed,
                workers=plan.workers,
                progress=stage(f"closed loop: {plan.closed:,} executions"),
            )
        steady = {
            "open": await _measure_steady(
                url, settings, plan, "open loop", plan.open_rate, plan.open_seconds, stage
            ),
            "lateness": await _measure_steady(
                url, settings, plan, "lateness", plan.lateness_rate, plan.lateness_seconds, stage
            ),
        }
    for part in steady.values():
        part["ratio_to_limit"] = part["per_second"] / limit
    return {
        "facts": facts,
        "limit": {"per_second": limit, "executions": plan.limit},
        "closed": {
            "per_second": closed.per_second,
            "ratio_to_limit": closed.per_second / limit,
            "executions": closed.executions,
            "workers": plan.workers,
        },
        **steady,
    }


async def _measure_steady(
    url: str, settings: Settings, plan: Plan, title: str, rate: int, seconds: int, stage: Stage
) -> dict[str, Any]:
    async with scratch(url) as (database, own):
        result = await measure_steady(
            database,
            own,
            settings,
            rate=rate,
            seconds=seconds,
            workers=plan.workers,
            progress=stage(f"{title}: {rate:,}/s for {seconds} s"),
        )
    return {
        "rate": rate,
        "due": result.due,
        "succeeded": result.succeeded,
        "per_second": result.per_second,
        "lateness_ms": {
            name: round(1000 * value, 3)
            for name, value in (
                ("p50", result.p50),
                ("p99", result.p99),
                ("p99.9", result.p999),
                ("max", result.highest),
            )
        },
    }


async def _facts(database: Database) -> dict[str, Any]:
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
