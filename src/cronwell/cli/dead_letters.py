"""`cronwell dead-letters`: executions that have no attempts left, and what to do with them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cronwell.cli import lists
from cronwell.cli.executions import Execution, OfJob
from cronwell.cli.failures import ExitCode
from cronwell.cli.lists import After, All, From, Limit, Text, To, moment_option
from cronwell.cli.paths import dead_letter_path, job_reference
from cronwell.cli.screen import Screen
from cronwell.cli.session import Json, Yes, session

if TYPE_CHECKING:
    from cronwell.cli.client import Client

# The most that one request may ask for.
REDRIVE_REQUEST = 100_000
COUNTED = 10_000

app = typer.Typer(no_args_is_help=True, help="Executions that failed for good: look, redrive, dismiss.")


@app.command("list")
def list_dead_letters(
    context: typer.Context,
    job: OfJob = None,
    since: From = None,
    to: To = None,
    text: Text = None,
    limit: Limit = 50,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List dead letters, newest slot first."""
    here = session(context)
    screen = here.screen(as_json)
    part = lists.Part(limit, is_all, cursor)
    query = _filter(screen, job, since, to, text)
    lists.show_list(
        here.client, screen, "/v1/dead-letters", query, part, lists.EXECUTION_COLUMNS, lists.execution_row
    )


@app.command()
def redrive(
    context: typer.Context,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="EXECUTION", help="Only these; else all that match.")
    ] = None,
    job: OfJob = None,
    since: From = None,
    to: To = None,
    text: Text = None,
    rate: Annotated[float, typer.Option(min=0.01, metavar="N", help="Start so many a second.")] = 100.0,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="So many at most, oldest first.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Give dead letters new attempts: those named, or all that match, oldest first, at a steady rate."""
    here = session(context)
    screen = here.screen(as_json)
    asked = _filter(screen, job, since, to, text)
    total = None
    if ids:
        asked["ids"] = ids
    elif screen.is_interactive and not yes:
        total, said = _counted(here.client, asked, limit)
        if total == 0:
            screen.remark("no dead letter matches")
            return
        if not screen.confirm(f"Redrive {said} dead letters, {rate:g} a second?"):
            screen.remark("nothing was redriven")
            raise typer.Exit(ExitCode.FAILED)
    count = _redrive(here.client, screen, asked, rate, limit, total)
    if as_json:
        screen.json({"count": count})
    else:
        took = f", over {count / rate:.0f} s" if count > rate else ""
        screen.line(f"redriven: {count}{took}" if count else "no dead letter matches")


@app.command()
def dismiss(context: typer.Context, execution: Execution, as_json: Json = False) -> None:
    """Let a dead letter rest: it stays in history as failed, and is listed here no more."""
    here = session(context)
    screen = here.screen(as_json)
    answer = here.client.post(f"{dead_letter_path(execution)}/dismiss")
    screen.answer(answer, f"dismissed {execution}")


def _filter(
    screen: Screen, job: str | None, since: str | None, to: str | None, text: str | None
) -> dict[str, Any]:
    given = {
        "job": None if job is None else job_reference(job),
        "from": moment_option(since, "--from", screen),
        "to": moment_option(to, "--to", screen),
        "q": text,
    }
    return {name: value for name, value in given.items() if value is not None}


def _counted(client: Client, query: dict[str, Any], limit: int | None) -> tuple[int | None, str]:
    """How many match, for the question and the bar; None where there are too many to count."""
    most = COUNTED if limit is None else min(limit, COUNTED)
    count = 0
    following = None
    for page in client.find("/v1/dead-letters", query, limit=most):
        count += len(page.items)
        following = page.next_cursor
    if following is None or count == limit:
        return count, str(count)
    return None, f"more than {count}"


def _redrive(
    client: Client, screen: Screen, asked: dict[str, Any], rate: float, limit: int | None, total: int | None
) -> int:
    """Redrive in requests as large as the server takes; between two of them the rate is kept by waiting."""
    count = 0
    with screen.progress(is_measured=total is not None) as progress:
        task = progress.add_task("redriving", total=total)
        while limit is None or count < limit:
            size = REDRIVE_REQUEST if limit is None else min(REDRIVE_REQUEST, limit - count)
            answer = client.post("/v1/dead-letters/redrive", {**asked, "rate": rate, "limit": size})
            count += answer["count"]
            progress.update(task, completed=count, description=f"{count} redriven")
            if answer["count"] < size:
                break
            if count != limit:
                time.sleep(size / rate)
    return count
