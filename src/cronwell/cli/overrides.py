"""`cronwell job skip`, `move` and `override`: decide about one coming slot of a job."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from cronwell import durations
from cronwell.cli import lists, times
from cronwell.cli.lists import After, All, Limit
from cronwell.cli.paths import job_path, override_path
from cronwell.cli.screen import Column, Screen, compact, one_line
from cronwell.cli.session import Json, session
from cronwell.cli.sources import read_json, usage

app = typer.Typer(no_args_is_help=True, help="See, make and remove what was decided about single slots.")

Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's name or id.")]
Slot = Annotated[
    str,
    typer.Argument(
        metavar="SLOT",
        help='A coming slot: a time in the schedule\'s zone, e.g. "2027-05-05T03:00", or with an offset.',
    ),
]
Note = Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for whoever asks what became of it.")]
Author = Annotated[str | None, typer.Option(metavar="NAME", help="Who decided; by default, your user name.")]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help='It does nothing unless it is applied by then, e.g. "2h"; that is a day ahead.'
    ),
]
Payload = Annotated[
    str | None,
    typer.Option("--payload", "-p", metavar="JSON|@FILE|-", help="Use this payload instead of the job's."),
]

COLUMNS = (
    Column("SLOT"),
    Column("ACTION"),
    Column("TO", rank=2),
    Column("STATE", rank=1),
    Column("BY", rank=3),
    Column("NOTE", rank=4, is_prose=True),
)


def skip(
    context: typer.Context,
    job: Job,
    slot: Slot,
    note: Note = None,
    author: Author = None,
    until: Until = None,
    as_json: Json = False,
) -> None:
    """Skip one coming slot of a job."""
    _put(context, job, slot, {"action": "skip"} | _signed(note, author), until=until, as_json=as_json)


def move(
    context: typer.Context,
    job: Job,
    slot: Slot,
    to: Annotated[
        str,
        typer.Argument(
            metavar="TO",
            help='When it starts instead: a time as for SLOT, or a duration from now, e.g. "2h".',
        ),
    ],
    payload: Payload = None,
    note: Note = None,
    author: Author = None,
    until: Until = None,
    as_json: Json = False,
) -> None:
    """Start one coming slot of a job at another time, earlier or later."""
    body: dict[str, Any] = {"action": "move", "to": to}
    if _is_duration(to):
        body["to"] = _moment(to, "TO", Screen())
    if payload is not None:
        body["payload"] = read_json(payload, "--payload")
    _put(context, job, slot, body | _signed(note, author), until=until, as_json=as_json)


@app.command("list")
def list_overrides(
    context: typer.Context,
    job: Job,
    limit: Limit = 100,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List what was decided about slots of a job, the latest slot first."""
    here = session(context)
    part = lists.Part(limit, is_all, cursor)
    path = f"{job_path(job)}/overrides"
    lists.show_list(here.client, here.screen(as_json), path, {}, part, COLUMNS, _row)


@app.command("set")
def set_override(
    context: typer.Context,
    job: Job,
    slot: Slot,
    payload: Annotated[
        str,
        typer.Option(
            "--payload", "-p", metavar="JSON|@FILE|-", help="The payload of this slot, in place of the job's."
        ),
    ],
    note: Note = None,
    author: Author = None,
    until: Until = None,
    as_json: Json = False,
) -> None:
    """Give one coming slot of a job another payload. See also `job skip` and `job move`."""
    body = {"action": "payload", "payload": read_json(payload, "--payload")}
    _put(context, job, slot, body | _signed(note, author), until=until, as_json=as_json)


@app.command()
def remove(context: typer.Context, job: Job, slot: Slot, as_json: Json = False) -> None:
    """Let a coming slot of a job be what it would have been."""
    here = session(context)
    screen = here.screen(as_json)
    answer = here.client.delete(override_path(job, slot))
    screen.answer(answer, f"{job} has its slot {slot} as its schedule says")


def _put(
    context: typer.Context, job: str, slot: str, body: dict[str, Any], *, until: str | None, as_json: bool
) -> None:
    here = session(context)
    screen = here.screen(as_json)
    if until is not None:
        body["expires_at"] = _moment(until, "--until", screen)
    answer = here.client.put(override_path(job, slot), body)
    if as_json:
        screen.json(answer)
        return
    what = {
        "skip": "is skipped",
        "move": f"starts at {screen.moment(answer.get('to'))}",
        "payload": f"runs with the payload {one_line(compact(answer.get('payload')), 60)}",
    }[answer["action"]]
    screen.line(f"{job}: the slot {screen.moment(answer['slot'])} {what}")


def _signed(note: str | None, author: str | None) -> dict[str, str]:
    named = {"note": note, "author": _user() if author is None else author}
    return {name: text for name, text in named.items() if text is not None}


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A user without a name, as in a container that runs under a bare number.
        return None


def _is_duration(text: str) -> bool:
    try:
        durations.parse(text.strip())
    except ValueError:
        return text.strip().lower() == "now"
    return True


def _moment(text: str, name: str, screen: Screen) -> str:
    try:
        return times.write_moment(times.parse_moment(text, now=screen.now, toward="future"))
    except ValueError as error:
        raise usage(f"{name}: {error}") from None


def _row(screen: Screen, override: dict[str, Any]) -> Sequence[object]:
    return (
        screen.moment(override["slot"]),
        override["action"],
        screen.moment(override["to"]) if override.get("to") else "",
        override["state"],
        override.get("author") or "",
        one_line(override.get("note"), 100),
    )
