"""`cronwell execution`: what became of slots and triggers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from cronwell.cli import lists, times
from cronwell.cli.graph import rerun
from cronwell.cli.lists import After, All, From, Limit, Text, To, moment_option
from cronwell.cli.paths import execution_path, job_reference
from cronwell.cli.screen import Column, Screen, compact, one_line
from cronwell.cli.session import Json, session
from cronwell.cli.tail import tail

app = typer.Typer(no_args_is_help=True, help="See what became of slots and triggers; cancel, retry, follow.")

Execution = Annotated[str, typer.Argument(metavar="EXECUTION", help="The execution's id.")]
OfJob = Annotated[
    str | None, typer.Option("--job", "-j", metavar="JOB", help="Only of this job: name or id.")
]

ATTEMPT_COLUMNS = (
    Column("TRY", is_number=True),
    Column("RESULT"),
    Column("STARTED", rank=1),
    Column("TOOK", rank=2, is_number=True),
    Column("FENCE", rank=4, is_number=True),
    Column("ERROR", rank=3, is_prose=True),
)


class ExecutionState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


@app.command("list")
def list_executions(
    context: typer.Context,
    job: OfJob = None,
    state: Annotated[
        list[ExecutionState] | None, typer.Option("--state", "-s", help="Only in this state. Repeatable.")
    ] = None,
    since: From = None,
    to: To = None,
    worker: Annotated[str | None, typer.Option(metavar="ID", help="Only of this worker.")] = None,
    text: Text = None,
    limit: Limit = 50,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List executions, newest slot first."""
    here = session(context)
    screen = here.screen(as_json)
    query = {
        "job": None if job is None else job_reference(job),
        "state": [each.value for each in state or ()],
        "from": moment_option(since, "--from", screen),
        "to": moment_option(to, "--to", screen),
        "worker": worker,
        "q": text,
    }
    part = lists.Part(limit, is_all, cursor)
    lists.show_list(
        here.client, screen, "/v1/executions", query, part, lists.EXECUTION_COLUMNS, lists.execution_row
    )


@app.command()
def show(context: typer.Context, execution: Execution, as_json: Json = False) -> None:
    """Show an execution: how it stands, its attempts, its timeline, its output."""
    here = session(context)
    screen = here.screen(as_json)
    found = here.client.get(execution_path(execution))
    if as_json:
        screen.json(found)
    else:
        _write(screen, found)


@app.command()
def cancel(context: typer.Context, execution: Execution, as_json: Json = False) -> None:
    """Cancel an execution: before it starts, or by asking it to stop."""
    here = session(context)
    screen = here.screen(as_json)
    answer = here.client.post(f"{execution_path(execution)}/cancel")
    if as_json:
        screen.json(answer)
    elif answer["state"] == "cancelled":
        screen.line(f"cancelled {execution}")
    else:
        screen.line(f"asked {execution} to stop; it is {answer['state']}")


@app.command()
def retry(context: typer.Context, execution: Execution, as_json: Json = False) -> None:
    """Give a failed or cancelled execution new attempts."""
    here = session(context)
    screen = here.screen(as_json)
    answer = here.client.post(f"{execution_path(execution)}/retry")
    screen.answer(answer, f"retrying {execution}: {answer['state']}")


app.command("rerun")(rerun)
app.command("tail")(tail)


def _write(screen: Screen, found: dict[str, Any]) -> None:
    late, waits = found.get("lateness_ms"), found.get("callback_until")
    screen.fields(
        [
            ("id", found["id"]),
            ("job", f"{found.get('job')} ({found['job_id']}), revision {found.get('revision')}"),
            ("state", found["state"]),
            ("reason", found.get("reason")),
            ("waits", found.get("waits_for") or (found.get("held_by") and f"for {found['held_by']}")),
            ("kind", found["kind"]),
            ("slot", screen.moment(found["slot"])),
            ("ready", screen.moment(found["ready_at"])),
            ("started", found.get("started_at") and screen.moment(found["started_at"])),
            ("late", None if late is None else times.elapsed(late)),
            ("finished", found.get("finished_at") and screen.moment(found["finished_at"])),
            ("took", lists.took(found)),
            ("attempt", f"{found['attempt']} (fence {found['fence']})"),
            ("pool", f"{found.get('pool')}, priority {found.get('priority')}"),
            ("worker", found.get("worker")),
            ("callback", None if waits is None else f"waited for until {screen.moment(waits)}"),
            ("payload", None if found.get("payload") is None else compact(found["payload"])),
            ("progress", None if found.get("progress") is None else compact(found["progress"])),
            ("checkpoint", None if found.get("checkpoint") is None else compact(found["checkpoint"])),
            ("error", found.get("error")),
        ]
    )
    attempts = found.get("attempts") or []
    if attempts:
        screen.line()
        screen.table(ATTEMPT_COLUMNS, [_attempt_row(screen, each) for each in attempts])
    timeline = found.get("timeline") or []
    if timeline:
        screen.line()
        screen.fields((times.local(times.read_moment(each["at"])), each["event"]) for each in timeline)
    if found.get("output"):
        cut = " (cut: there was more)" if found.get("output_truncated") else ""
        screen.line()
        screen.line(f"output{cut}", style="bold")
        screen.line(found["output"].rstrip("\n"))


def _attempt_row(screen: Screen, attempt: dict[str, Any]) -> tuple[object, ...]:
    started = attempt.get("started_at")
    return (
        attempt["attempt"],
        attempt["result"],
        screen.moment(started),
        lists.took(attempt),
        attempt["fence"],
        one_line(attempt.get("error"), 100),
    )
