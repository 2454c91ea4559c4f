"""The table of a run: each row with the limit and its share of it, its targets beside what was measured, and its cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import box
from rich.table import Table

from cronwell.bench.row import Check, Row


def table_of(rows: Iterable[Row], facts: dict[str, Any]) -> Table:
    """Everything that a run has to say."""
    table = Table(
        title=f"Cronwell {facts['version']} ({facts['commit'] or 'no commit'}) on {facts['machine']}",
        caption="limit: executions a second by the bare statements alone, right before the row; ratio: its share of that",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("what", no_wrap=True)
    for heading in ("target", "measured", "limit", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for row in rows:
        table.add_row(f"[bold]{row.title}[/]", "", *_beside_the_limit(row), "")
        for check in row.checks:
            sign = "≥" if check.is_floor else "≤"
            told = "[green]met[/]" if check.is_met else "[red]falls short[/]"
            table.add_row(
                f"  {check.what}",
                f"{sign} {_figure(check, check.target)}",
                _figure(check, check.measured),
                "",
                "",
                told,
            )
        for what, figure in _beside(row):
            table.add_row(f"  {what}", "", figure, "", "", "")
    return table


def _beside_the_limit(row: Row) -> tuple[str, str, str]:
    """The row's own rate, the limit, and the share; nothing where there is none."""
    return (
        "" if row.per_second is None else f"{row.per_second:,.0f}/s",
        "" if row.limit is None else f"{row.limit:,.0f}/s",
        "" if row.ratio is None else f"{row.ratio:.2f}",
    )


def _beside(row: Row) -> list[tuple[str, str]]:
    """Figures without a target."""
    told: list[tuple[str, str]] = []
    if late := row.detail.get("lateness_ms"):
        told.append(
            (f"late by ({', '.join(late)})", ", ".join(f"{each:,.1f}" for each in late.values()) + " ms")
        )
    if row.cost is not None:
        cpu = row.cost.cpu_seconds
        told += [
            ("CPU s per 1,000", f"{sum(cpu.values()):.3f}"),
            # Each on a line of its own: four beside each other leave no room for the checks.
            *((f"  {who}", f"{seconds:.3f}") for who, seconds in cpu.items()),
            ("WAL, commits per 1,000", f"{row.cost.wal_bytes / 1024:,.0f} KiB, {row.cost.commits:,.1f}"),
        ]
    return told


def _figure(check: Check, value: float) -> str:
    digits = 0 if abs(value) >= 1000 else 2 if abs(value) < 10 else 1
    return f"{value:,.{digits}f}{' ' if check.unit and check.unit != '/s' else ''}{check.unit}"
