"""`cronwell job backfill` and `cronwell backfill`: run past slots of a job, and watch, hold or end that."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from cronwell.cli import lists
from cronwell.cli.failures import ExitCode
from cronwell.cli.lists import After, All, Limit, moment_option
from cronwell.cli.paths import backfill_path, job_path, job_reference
from cronwell.cli.screen import Column, Screen, compact
from cronwell.cli.session import Json, Yes, session
from cronwell.cli.sources import check_key, read_json

if TYPE_CHECKING:
    from cronwell.cli.client import Client

WAIT_SECONDS = 0.5
OVER = frozenset({"finished", "cancelled"})

app = typer.Typer(no_args_is_help=True, help="Past slots that are being run: look, pause, resume, cancel.")

COLUMNS = (
    Column("ID"),
    Column("STATE"),
    Column("JOB", rank=1),
    Column("DONE", rank=2, is_number=True),
    Column("FAILED", rank=3, is_number=True),
    Column("FROM", rank=5),
    Column("TO", rank=5),
    Column("ENDS", rank=4),
)

Backfill = Annotated[str, typer.Argument(metavar="BACKFILL", help="The backfill's id.")]


class Order(StrEnum):
    OLDEST = "oldest"
    NEWEST = "newest"


class Definition(StrEnum):
    THEN = "then"
    CURRENT = "current"


class State(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"


def backfill(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name or id.")],
    since: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help='Slots from this time on, e.g. "7d" (ago) or "2027-05-05 10:00".'
        ),
    ],
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Slots before this time (default: now).")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what it would do, and do nothing.")
    ] = False,
    order: Annotated[Order, typer.Option(help="Which slots come first.")] = Order.OLDEST,
    rate: Annotated[
        str, typer.Option(metavar="RATE", help='Start so many at the most, e.g. "10/s", "100/m", "30/h".')
    ] = "10/s",
    concurrency: Annotated[
        int,
        typer.Option("--concurrency", "-c", min=1, max=1000, metavar="N", help="So many at once, at most."),
    ] = 1,
    definition: Annotated[
        Definition, typer.Option(help="Run each slot by the definition of its time, or by the current one.")
    ] = Definition.CURRENT,
    payload: Annotated[
        str | None,
        typer.Option(
            "--payload", "-p", metavar="JSON|@FILE|-", help="Use this payload instead of the job's."
        ),
    ] = None,
    note: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why, for whoever comes across it.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for the end; exit 1 unless all succeed.")
    ] = False,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The same key starts one, however often it is sent.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Run a range of past slots, each once however often it is asked for; on a terminal it shows them and asks first."""
    here = session(context)
    screen = here.screen(as_json)
    body: dict[str, Any] = {
        "from": moment_option(since, "--from", screen),
        "to": moment_option(to, "--to", screen),
        "order": order.value,
        "rate": rate,
        "concurrency": concurrency,
        "definition": definition.value,
        "note": note,
    }
    body = {name: value for name, value in body.items() if value is not None}
    if payload is not None:
        body["payload"] = read_json(payload, "--payload")
    path = f"{job_path(job)}/backfills"
    if dry_run or (screen.is_interactive and not yes):
        plan = here.client.post(path, {**body, "dry_run": True})
        _show_plan(screen, plan)
        if dry_run:
            return
        if plan["count"] == 0 or not screen.confirm(f"Run these {plan['count']} slots?"):
            screen.remark("nothing was started")
            raise typer.Exit(ExitCode.FAILED)
        # What was shown is what is run: `now` has moved on since.
        body["to"] = plan["to"]
    made = here.client.post(path, body, key=check_key(idempotency_key or str(uuid4())))
    if not wait:
        screen.answer(made, f"backfill {made['id']} of {made['job']}: {made['slots']} slots")
        return
    if not as_json:
        screen.remark(f"backfill {made['id']} of {made['job']}: {made['slots']} slots")
    _finish(screen, _waited(here.client, screen, made))


@app.command("list")
def list_backfills(
    context: typer.Context,
    job: Annotated[
        str | None, typer.Option("--job", "-j", metavar="JOB", help="Only of this job: name or id.")
    ] = None,
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    limit: Limit = 50,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List backfills, newest first."""
    here = session(context)
    query = {"job": None if job is None else job_reference(job), "state": state and state.value}
    part = lists.Part(limit, is_all, cursor)
    lists.show_list(here.client, here.screen(as_json), "/v1/backfills", query, part, COLUMNS, _row)


@app.command()
def show(
    context: typer.Context,
    backfill: Backfill,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for the end; exit 1 unless all succeed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a backfill: what was asked for, and how far it has come."""
    here = session(context)
    screen = here.screen(as_json)
    found = here.client.get(backfill_path(backfill))
    if wait:
        _finish(screen, _waited(here.client, screen, found))
        return
    if as_json:
        screen.json(found)
    else:
        screen.fields(_described(screen, found))


@app.command()
def pause(context: typer.Context, backfill: Backfill, as_json: Json = False) -> None:
    """Stage no further slots; what is staged goes on."""
    _change(context, backfill, "pause", "paused", as_json=as_json)


@app.command()
def resume(context: typer.Context, backfill: Backfill, as_json: Json = False) -> None:
    """Let a paused backfill go on."""
    _change(context, backfill, "resume", "resumed", as_json=as_json)


@app.command()
def cancel(context: typer.Context, backfill: Backfill, as_json: Json = False) -> None:
    """End a backfill: what has not begun is taken back, what runs may finish."""
    _change(context, backfill, "cancel", "cancelled", as_json=as_json)


def _change(context: typer.Context, backfill: str, verb: str, done: str, *, as_json: bool) -> None:
    here = session(context)
    screen = here.screen(as_json)
    answer = here.client.post(f"{backfill_path(backfill)}/{verb}")
    screen.answer(answer, f"{done} backfill {answer['id']} of {answer['job']}: {_standing(answer)}")


def _show_plan(screen: Screen, plan: dict[str, Any]) -> None:
    if screen.as_json:
        screen.json(plan)
        return
    screen.fields(
        [
            ("job", plan["job"]),
            ("slots", plan["count"]),
            ("first", plan["first"] and screen.moment(plan["first"])),
            ("last", plan["last"] and screen.moment(plan["last"])),
            (
                "already",
                plan["already"] and f"{plan['already']} were backfilled before and are not run again",
            ),
            ("load", f"up to {plan['load_per_minute']:g} executions a minute"),
            ("takes", f"at least {plan['takes']}"),
        ]
    )
    for warning in plan["warnings"]:
        screen.remark(f"warning: {warning}", style="yellow")


def _waited(client: Client, screen: Screen, found: dict[str, Any]) -> dict[str, Any]:
    """Look again until it is over and its last execution has ended; how it stands is on the bar meanwhile."""
    with screen.progress(is_measured=True) as progress:
        task = progress.add_task("", total=found["slots"])
        while True:
            progress.update(task, completed=_done(found), description=_standing(found))
            if found["state"] in OVER and not found["unfinished"]:
                return found
            time.sleep(WAIT_SECONDS)
            found = client.get(backfill_path(found["id"]))


def _finish(screen: Screen, over: dict[str, Any]) -> None:
    screen.answer(over, f"{over['state']}: {_standing(over)}")
    if over["state"] != "finished" or over["failed"] or over["cancelled"]:
        raise typer.Exit(ExitCode.FAILED)


def _done(backfill: dict[str, Any]) -> int:
    """Slots that need nothing more."""
    return int(backfill["staged"] - backfill["unfinished"] + backfill["passed_over"])


def _standing(backfill: dict[str, Any]) -> str:
    parts = [f"{_done(backfill)} of {backfill['slots']} done"]
    for count, what in (("failed", "failed"), ("cancelled", "cancelled"), ("passed_over", "passed over")):
        if backfill[count]:
            parts.append(f"{backfill[count]} {what}")
    if backfill["unfinished"]:
        parts.append(f"{backfill['unfinished']} under way")
    return ", ".join(parts)


def _row(screen: Screen, backfill: dict[str, Any]) -> Sequence[object]:
    return (
        backfill["id"],
        backfill["state"],
        backfill["job"],
        f"{_done(backfill)}/{backfill['slots']}",
        backfill["failed"],
        screen.moment(backfill["from"]),
        screen.moment(backfill["to"]),
        screen.moment(backfill["finished_at"] or backfill["eta"]),
    )


def _described(screen: Screen, backfill: dict[str, Any]) -> list[tuple[str, object]]:
    return [
        ("id", backfill["id"]),
        ("job", backfill["job"]),
        ("state", backfill["state"]),
        ("note", backfill["note"]),
        ("from", screen.moment(backfill["from"])),
        ("to", screen.moment(backfill["to"])),
        ("definition", backfill["definition"]),
        ("order", f"{backfill['order']} first"),
        ("limits", f"{backfill['rate']}, {backfill['concurrency']} at once"),
        ("payload", None if backfill["payload"] is None else compact(backfill["payload"])),
        ("progress", _standing(backfill)),
        ("reached", backfill["reached"] and screen.moment(backfill["reached"])),
        ("ends", backfill["eta"] and screen.moment(backfill["eta"])),
        ("created", screen.moment(backfill["created_at"])),
        ("finished", backfill["finished_at"] and screen.moment(backfill["finished_at"])),
    ]
