"""`cronwell job`: define jobs, look at them, and tell them what to do."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from cronwell.cli import lists, overrides, times
from cronwell.cli.backfills import backfill
from cronwell.cli.create import create
from cronwell.cli.definitions import CatchUp
from cronwell.cli.edit import edit
from cronwell.cli.failures import ExitCode
from cronwell.cli.graph import graph
from cronwell.cli.lists import After, All, Limit
from cronwell.cli.paths import execution_path, job_path
from cronwell.cli.preview import SLOT_COLUMNS, slot_row
from cronwell.cli.screen import Screen, compact
from cronwell.cli.session import Json, Yes, session
from cronwell.cli.sources import check_key, read_json, read_pairs, usage

if TYPE_CHECKING:
    from cronwell.cli.client import Client

WAIT_SECONDS = 0.5
ENDED = frozenset({"succeeded", "failed", "cancelled", "skipped"})

app = typer.Typer(no_args_is_help=True, help="Define jobs, look at them, tell them what to do.")

Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's name or id.")]


class JobState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"
    DELETED = "deleted"


class TargetKind(StrEnum):
    HTTP = "http"
    SHELL = "shell"
    HANDLER = "handler"
    PUBLISH = "publish"


app.command("create")(create)


@app.command("list")
def list_jobs(
    context: typer.Context,
    state: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    name: Annotated[str | None, typer.Option(metavar="PREFIX", help="Only names that start so.")] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", "-t", metavar="NAME=VALUE", help="Only with this tag. Repeatable."),
    ] = None,
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Only jobs of this pool.")] = None,
    target: Annotated[TargetKind | None, typer.Option(help="Only jobs with this kind of target.")] = None,
    limit: Limit = 100,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List jobs by name."""
    here = session(context)
    query = {
        "state": state and state.value,
        "name_prefix": name,
        "tag": [f"{key}={value}" for key, value in read_pairs(tag or (), "--tag").items()],
        "pool": pool,
        "target": target and target.value,
    }
    part = lists.Part(limit, is_all, cursor)
    screen = here.screen(as_json)
    lists.show_list(here.client, screen, "/v1/jobs", query, part, lists.JOB_COLUMNS, lists.job_row)


@app.command()
def show(context: typer.Context, job: Job, as_json: Json = False) -> None:
    """Show a job: its definition, how it stands, its latest executions."""
    here = session(context)
    screen = here.screen(as_json)
    found = here.client.get(job_path(job))
    if as_json:
        screen.json(found)
        return
    screen.fields(_described(screen, found))
    latest = found.get("latest_executions") or []
    if latest:
        screen.line()
        screen.table(lists.EXECUTION_COLUMNS, lists.execution_rows(screen, latest))


app.command("edit")(edit)
app.command("skip")(overrides.skip)
app.command("move")(overrides.move)
app.add_typer(overrides.app, name="override")


@app.command()
def pause(
    context: typer.Context,
    job: Job,
    note: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why, for whoever finds it paused.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help='Resume by itself then, e.g. "2h" or "2027-05-05 10:00".'),
    ] = None,
    as_json: Json = False,
) -> None:
    """Stop a job's schedule until it is resumed."""
    here = session(context)
    screen = here.screen(as_json)
    body: dict[str, Any] = {}
    if note is not None:
        body["note"] = note
    if until is not None:
        try:
            body["until"] = times.write_moment(times.parse_moment(until, now=screen.now, toward="future"))
        except ValueError as error:
            raise usage(f"--until: {error}") from None
    answer = here.client.post(f"{job_path(job)}/pause", body)
    held = (answer.get("pause") or {}).get("until")
    screen.answer(answer, f"paused {answer['name']}" + (f" until {screen.moment(held)}" if held else ""))


@app.command()
def resume(
    context: typer.Context,
    job: Job,
    fire_missed: Annotated[
        CatchUp, typer.Option(help="Which slots of the pause to fire now.")
    ] = CatchUp.NONE,
    as_json: Json = False,
) -> None:
    """Let a paused job go on; it does not fire what it missed unless asked to."""
    here = session(context)
    screen = here.screen(as_json)
    answer = here.client.post(f"{job_path(job)}/resume", {"fire_missed": fire_missed.value})
    following = answer.get("next_fire_at")
    when = f"; it fires next at {screen.moment(following)}" if following else ""
    screen.answer(answer, f"resumed {answer['name']}{when}")


@app.command()
def trigger(
    context: typer.Context,
    job: Job,
    payload: Annotated[
        str | None,
        typer.Option(
            "--payload", "-p", metavar="JSON|@FILE|-", help="Use this payload instead of the job's."
        ),
    ] = None,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Also while an execution of it is unfinished.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for the end; exit 1 unless it succeeds.")
    ] = False,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The same key triggers once, however often it is sent.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a job now, beside its schedule."""
    here = session(context)
    screen = here.screen(as_json)
    body: dict[str, Any] = {}
    if payload is not None:
        body["payload"] = read_json(payload, "--payload")
    if overlap:
        body["overlap"] = "allow"
    key = check_key(idempotency_key or str(uuid4()))
    execution = here.client.post(f"{job_path(job)}/trigger", body, key=key)
    if not wait:
        screen.answer(execution, f"triggered {execution['job']}: execution {execution['id']}")
        return
    if not as_json:
        screen.remark(f"triggered {execution['job']}: execution {execution['id']}")
    ended = wait_for(here.client, screen, execution["id"])
    screen.answer(ended, ending(ended))
    if not as_json and ended.get("output"):
        screen.line(ended["output"].rstrip("\n"))
    if ended["state"] != "succeeded":
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def delete(
    context: typer.Context,
    job: Job,
    force: Annotated[bool, typer.Option("--force", help="Although other jobs follow it.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a job: its future slots are gone, its history stays until retention drops it."""
    here = session(context)
    screen = here.screen(as_json)
    if not yes and not screen.confirm(f"Delete the job {job}?"):
        screen.remark("nothing was deleted")
        raise typer.Exit(ExitCode.FAILED)
    answer = here.client.delete(job_path(job) + ("?force=true" if force else ""))
    screen.answer(answer, f"deleted {job}")


@app.command()
def upcoming(
    context: typer.Context,
    job: Job,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=1000, metavar="N", help="How many slots.")
    ] = 10,
    as_json: Json = False,
) -> None:
    """Show a job's next slots."""
    here = session(context)
    screen = here.screen(as_json)
    found = here.client.get(f"{job_path(job)}/upcoming", {"count": count})
    if as_json:
        screen.json(found)
    elif found["items"]:
        screen.table(SLOT_COLUMNS, [slot_row(screen, each) for each in found["items"]])
    else:
        screen.remark("it has no coming slots")
    if found.get("note") and not as_json:
        screen.remark(found["note"])


@app.command()
def history(
    context: typer.Context,
    job: Job,
    limit: Limit = 20,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List a job's executions, newest first."""
    here = session(context)
    part = lists.Part(limit, is_all, cursor)
    screen = here.screen(as_json)
    path = f"{job_path(job)}/executions"
    lists.show_list(here.client, screen, path, {}, part, lists.EXECUTION_COLUMNS, lists.execution_row)


app.command("backfill")(backfill)
app.command("graph")(graph)


def _described(screen: Screen, job: dict[str, Any]) -> list[tuple[str, object]]:
    retry = job.get("retry") or {}
    pause = job.get("pause") or {}
    held = " ".join(
        filter(None, (pause.get("until") and f"until {screen.moment(pause['until'])}", pause.get("note")))
    )
    tries = retry.get("max_attempts")
    limit = job.get("max_running")
    return [
        ("name", job["name"]),
        ("id", job["id"]),
        ("state", job["state"]),
        ("paused", held),
        ("description", job.get("description")),
        ("schedule", lists.schedule_text(job)),
        ("window", job.get("window")),
        ("next", job.get("next_fire_at") and screen.moment(job["next_fire_at"])),
        ("waits", "; ".join(job.get("warnings") or ())),
        ("target", lists.target_text(job.get("target"))),
        ("payload", None if job.get("payload") is None else compact(job["payload"])),
        (
            "retry",
            tries
            and f"{tries - 1} times, {retry.get('backoff')} from {retry.get('initial_delay')} "
            f"up to {retry.get('max_delay')}",
        ),
        ("timeout", job.get("timeout")),
        ("priority", job.get("priority")),
        ("pool", job.get("pool")),
        ("overlap", f"{job.get('overlap')}" + (f", {limit} at once" if limit else "")),
        ("group", (group := job.get("group")) and f"{group['key']}, {group['limit']} at once"),
        ("catch up", job.get("catch_up")),
        ("tags", " ".join(f"{name}={value}" for name, value in (job.get("tags") or {}).items())),
        ("revision", f"{job['revision']}, since {screen.moment(job.get('updated_at'))}"),
        ("created", screen.moment(job.get("created_at"))),
    ]


def wait_for(client: Client, screen: Screen, execution_id: str, *states: str) -> dict[str, Any]:
    """An execution, once it has ended, or is in one of these states; what it waits for meanwhile is told."""
    told = None
    while True:
        found: dict[str, Any] = client.get(execution_path(execution_id))
        if found["state"] in ENDED or found["state"] in states:
            return found
        reason = found.get("waits_for")
        if reason is not None and reason != told and not screen.as_json:
            screen.remark(told := reason)
        time.sleep(WAIT_SECONDS)


def ending(execution: dict[str, Any]) -> str:
    """How an execution ended, with its error's first line uncut: its last words say what to do."""
    length = lists.took(execution)
    sentence = f"{execution['state']} in {length}" if length else str(execution["state"])
    because = execution.get("error") or (execution.get("reason") if execution["state"] == "skipped" else None)
    return f"{sentence}: {because.strip().splitlines()[0]}" if because else sentence
