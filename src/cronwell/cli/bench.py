"""`cronwell bench`: measure throughput and lateness on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cronwell.bench.report import Plan
    from cronwell.config import Settings

app = typer.Typer(invoke_without_command=True)


@app.callback(short_help="Measure throughput and lateness on this machine.")
def bench(
    context: typer.Context,
    executions: Annotated[
        int, typer.Option(help="Executions of the limit and of the closed loop.")
    ] = 100_000,
    rate: Annotated[int, typer.Option(help="Slots a second of the open loop.")] = 3000,
    lateness_rate: Annotated[int, typer.Option(help="Slots a second while lateness is measured.")] = 500,
    seconds: Annotated[int, typer.Option(help="How long each steady rate lasts.")] = 30,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; as many as cores by default.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the report as JSON to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure throughput and start lateness, beside the limit of the database in the same run.

    On an embedded PostgreSQL of its own, or on a scratch database of the one in CRONWELL_DATABASE_URL. Takes two to
    three minutes; keep the machine quiet meanwhile.
    """
    from cronwell.bench.report import Plan

    plan = Plan(
        limit=executions,
        closed=executions,
        open_rate=rate,
        open_seconds=seconds,
        lateness_rate=lateness_rate,
        lateness_seconds=seconds,
        workers=workers or os.cpu_count() or 1,
    )
    report = _measure(context.obj.settings(), plan)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(report, indent=2) + "\n")
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        _show(report)


def _measure(settings: Settings, plan: Plan) -> dict[str, Any]:
    import asyncio

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from cronwell.bench.report import run

    columns = (TextColumn("{task.description:<40}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:

        def stage(title: str) -> Any:
            task = bars.add_task(title, total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)

        return asyncio.run(run(settings, plan, stage))


def _show(report: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    facts = report["facts"]
    table = Table(
        title=f"Cronwell {facts['version']} on {facts['machine']}",
        caption="p50 to max: how late attempts started, in milliseconds",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("what", no_wrap=True)
    table.add_column("a second", justify="right", no_wrap=True)
    table.add_column("of limit", justify="right", no_wrap=True)
    for name in ("p50", "p99", "p99.9", "max"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row("limit (SQL alone)", f"{report['limit']['per_second']:,.0f}", "1.00")
    closed = report["closed"]
    table.add_row("closed loop", f"{closed['per_second']:,.0f}", f"{closed['ratio_to_limit']:.2f}")
    for key, title in (("open", "open loop"), ("lateness", "lateness")):
        part = report[key]
        ratio = f"{part['ratio_to_limit']:.2f}"
        late = [f"{part['lateness_ms'][name]:,.1f}" for name in ("p50", "p99", "p99.9", "max")]
        table.add_row(f"{title} {part['rate']:,}/s", f"{part['per_second']:,.0f}", ratio, *late)
    Console().print(table)
