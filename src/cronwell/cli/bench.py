"""`cronwell bench`: measure throughput and lateness on this machine."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cronwell.cli.failures import ExitCode, Failure

if TYPE_CHECKING:
    from rich.table import Table

    from cronwell.bench.row import Row
    from cronwell.config import Settings

ALL = "all"
# Written here as well as with the rows, whose import takes longer than `--help` may.
NAMES = ("drain", "steady", "lateness", "scale", "create", "herd", "soak", "webhooks", "running")
WIDTH = 140
# Three minutes that say what a machine can do.
OVERVIEW = {
    "drain": {"executions": "100000"},
    "steady": {"rate": "3000", "share": "0", "seconds": "30"},
    "lateness": {"rate": "500", "seconds": "30"},
}


def bench(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help=f"Which rows: {', '.join(NAMES)}, or {ALL}."),
    ] = None,
    quick: Annotated[bool, typer.Option(help="Small plans that take seconds: to see that it works.")] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME.FIELD=N", help="Another figure in a row's plan (repeatable)."),
    ] = None,
    limit_executions: Annotated[
        int | None,
        typer.Option(help="Executions that the limit is measured by: 100,000, or 5,000 if quick.", min=1),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; as many as cores by default.", min=1)
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the report as JSON to this file.")] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw the report's series as PNG files in this folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure throughput and start lateness, each row beside the limit of the database right before it.

    On an embedded PostgreSQL of its own, or on scratch databases of the one in CRONWELL_DATABASE_URL. Without names, an
    overview in three minutes. Keep the machine quiet meanwhile.
    """
    plans = _plans(names or [], changes or [], is_quick=quick)
    # Before anything is measured for plots that cannot be drawn, or a report that cannot be kept.
    draw = None if plots is None else _drawing_into(plots)
    if output is not None:
        from cronwell.bench.keeping import check_file

        check_file(output)
    report, table = _measure(
        context.obj.settings(),
        plans,
        workers=workers or os.cpu_count() or 1,
        limit=limit_executions or (5_000 if quick else 100_000),
        output=output,
    )
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        from rich.console import Console

        # Where nobody's window bounds it, as wide as it needs to be.
        console = Console(width=None if sys.stdout.isatty() else WIDTH)
        console.print(table)
        if quick:
            console.print("small plans only show that it works: whether they meet a target says nothing")
    # After the figures are told, which would be lost with a plot that fails.
    if draw is not None:
        sys.stdout.flush()
        draw(report)


def _drawing_into(folder: Path) -> Callable[[dict[str, Any]], object]:
    """What draws a report's series into a folder."""
    from cronwell.bench.keeping import check_folder

    try:
        from cronwell.bench.plots import write
    except ModuleNotFoundError:
        raise Failure(
            "plots are drawn by matplotlib, which is not installed here: pip install 'matplotlib>=3.10', or `make setup` in a"
            " working copy",
            ExitCode.USAGE,
        ) from None
    check_folder(folder)

    def draw(report: dict[str, Any]) -> None:
        try:
            write(report, folder)
        except OSError as error:
            raise Failure(f"plots could not be written into {folder}: {error.strerror}") from None

    return draw


def _plans(names: list[str], changes: list[str], *, is_quick: bool) -> dict[str, Any]:
    """The rows to measure, each with its plan."""
    from cronwell.bench.rows import ROWS, plan_of

    if unknown := [name for name in names if name not in ROWS and name != ALL]:
        raise Failure(f"no row {unknown[0]!r}; there are {', '.join(ROWS)} and `{ALL}`", ExitCode.USAGE)
    plans: dict[str, dict[str, str]]
    if not names:
        plans = {name: {} if is_quick else dict(plan) for name, plan in OVERVIEW.items()}
    else:
        plans = {name: {} for name in (ROWS if ALL in names else names)}
    for change in changes:
        place, is_given, value = change.partition("=")
        name, _, field = place.partition(".")
        if not is_given or not field or name not in plans:
            raise Failure(
                f"--set {change}: write NAME.FIELD=N with a row that is measured ({', '.join(plans)})",
                ExitCode.USAGE,
            )
        plans[name][field] = value
    return {name: plan_of(name, is_quick=is_quick, changes=given) for name, given in plans.items()}


def _measure(
    settings: Settings,
    plans: dict[str, Any],
    *,
    workers: int,
    limit: int,
    output: Path | None,
) -> tuple[dict[str, Any], Table]:
    """Measure the rows, and keep the report after each, so that nothing is lost where a later one never ends."""
    import asyncio
    import signal

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from cronwell.bench import rows
    from cronwell.bench.ground import break_ground
    from cronwell.bench.table import table_of

    found: list[Row] = []
    columns = (TextColumn("{task.description:<48}"), BarColumn(), TimeElapsedColumn())

    async def run() -> tuple[dict[str, Any], Table]:
        with Progress(*columns, console=Console(stderr=True)) as bars:

            def stage(title: str) -> Any:
                task = bars.add_task(title, total=None)
                return lambda done, total: bars.update(task, completed=done, total=total)

            async with break_ground(settings, stage, workers=workers, limit_executions=limit) as ground:
                report: dict[str, Any] = {"facts": ground.facts, "limit_executions": limit, "rows": {}}
                for name, plan in plans.items():
                    row = await rows.measure(name, await ground.surveyed(), plan)
                    found.append(row)
                    report["rows"][row.name] = {**row.as_dict(), "plan": dataclasses.asdict(plan)}
                    if output is not None:
                        _write(output, report)
        return report, table_of(found, ground.facts)

    async def run_until_told() -> tuple[dict[str, Any], Table]:
        task = asyncio.current_task()
        assert task is not None
        # As Ctrl-C does it: else what was started would go on without us.
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGTERM, lambda: task.cancelling() or task.cancel()
        )
        return await run()

    try:
        return asyncio.run(run_until_told())
    except (asyncio.CancelledError, KeyboardInterrupt) as stop:
        print(_farewell([row.name for row in found], output), file=sys.stderr)
        is_interrupted = isinstance(stop, KeyboardInterrupt)
        raise SystemExit(ExitCode.INTERRUPTED if is_interrupted else 128 + signal.SIGTERM) from None


def _write(output: Path, report: dict[str, Any]) -> None:
    output.write_text(json.dumps(report, indent=2) + "\n")


def _farewell(done: list[str], output: Path | None) -> str:
    """What one who stops a benchmark wants to know: what is left of it."""
    if not done:
        return "stopped before a row was done; nothing is kept"
    if output is None:
        return f"stopped; {', '.join(done)} had been done, and nothing is kept (--output FILE keeps each row)"
    return f"stopped; the rows that were done ({', '.join(done)}) are in {output}"
