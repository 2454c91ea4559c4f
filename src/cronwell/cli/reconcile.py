"""`cronwell reconcile`: whether every slot of a past time has its verdict."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cronwell.cli import times
from cronwell.cli.failures import ExitCode
from cronwell.cli.lists import moment_option
from cronwell.cli.screen import Column, Screen
from cronwell.cli.session import Json, session
from cronwell.cli.sources import usage

if TYPE_CHECKING:
    from cronwell.cli.client import Client

SHARDS = 64
PART = timedelta(days=1)
"""The longest range of one request."""
SHOWN = 50
KEPT = 10_000
COLUMNS = (Column("WHAT"), Column("JOB"), Column("SLOT"), Column("JOB ID", rank=1))
_SUMS = ("expected", "accounted", "missing", "extra", "unreadable")


def reconcile(
    context: typer.Context,
    since: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help='From when, e.g. "2h" ago; default: an hour before --to.'
        ),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Until when; default: now.")] = None,
    shard: Annotated[
        int | None, typer.Option(min=0, max=SHARDS - 1, metavar="N", help="Only one shard of the jobs.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the slots that jobs should have had with what became of them; exit code 1 where one is missing."""
    here = session(context)
    screen = here.screen(as_json)
    ends = moment_option(to, "--to", screen) or here.client.get("/v1/cluster")["now"]
    begins = moment_option(since, "--from", screen)
    until = times.read_moment(ends)
    start = until - timedelta(hours=1) if begins is None else times.read_moment(begins)
    if start >= until:
        raise usage("--from is not before --to")
    found = _ask(here.client, screen, start, until, range(SHARDS) if shard is None else [shard])
    found = {"from": times.write_moment(start), "to": times.write_moment(until), "shard": shard, **found}
    if as_json:
        screen.json(found)
    else:
        _show(screen, found)
    if found["missing"]:
        raise typer.Exit(ExitCode.FAILED)


def _ask(
    client: Client, screen: Screen, start: datetime, until: datetime, shards: range | list[int]
) -> dict[str, Any]:
    """Ask shard by shard, and no longer a range at once than the server takes."""
    parts = [
        (start + n * PART, min(until, start + (n + 1) * PART)) for n in range(-((start - until) // PART))
    ]
    total: dict[str, Any] = {"jobs": 0, **dict.fromkeys(_SUMS, 0)}
    differences: list[dict[str, Any]] = []
    with screen.progress(is_measured=True) as progress:
        task = progress.add_task("reconciling", total=len(parts) * len(shards))
        for place, (since, before) in enumerate(parts):
            for shard in shards:
                cursor = None
                while True:
                    query = {
                        "from": times.write_moment(since),
                        "to": times.write_moment(before),
                        "shard": shard,
                        "cursor": cursor,
                    }
                    page = client.get("/v1/reconcile", query)
                    # The same jobs are looked at in each part of the range.
                    total["jobs"] += page["jobs"] if place == len(parts) - 1 else 0
                    for name in _SUMS:
                        total[name] += page[name]
                    differences += page["differences"][: KEPT - len(differences)]
                    cursor = page.get("next_cursor")
                    if cursor is None:
                        break
                said = f"{total['missing']} missing of {total['expected']}"
                progress.update(task, advance=1, description=said)
    return {**total, "differences": differences}


def _show(screen: Screen, found: dict[str, Any]) -> None:
    shown = found["differences"][:SHOWN]
    if shown:
        screen.table(
            COLUMNS,
            [(each["kind"], each["job"], screen.moment(each["slot"]), each["job_id"]) for each in shown],
        )
        left = found["missing"] + found["extra"] - len(shown)
        if left:
            screen.remark(f"and {left} more; --json lists up to {KEPT}")
    screen.line(
        f"expected {found['expected']:,}, accounted for {found['accounted']:,}, missing {found['missing']:,}, "
        f"extra {found['extra']:,}; {found['jobs']:,} jobs",
        style="bold red" if found["missing"] else "bold green",
    )
    if found["unreadable"]:
        screen.remark(f"the slots of {found['unreadable']} jobs cannot be computed: see why they are paused")
