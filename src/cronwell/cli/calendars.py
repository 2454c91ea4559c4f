"""`cronwell calendar`: named sets of times that schedules stay away from, or keep to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from cronwell.cli import lists
from cronwell.cli.lists import After, All, Limit
from cronwell.cli.paths import calendar_path
from cronwell.cli.screen import Column, Screen
from cronwell.cli.session import Json, session
from cronwell.cli.sources import read_json, usage

app = typer.Typer(no_args_is_help=True, help="Named sets of times that schedules stay away from, or keep to.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The calendar's name.")]

_PARTS = ("dates", "rrules", "holidays", "hours", "windows")
_COLUMNS = (Column("NAME"), Column("PARTS", rank=1), Column("DESCRIPTION", rank=2, is_prose=True))
_PERIODS = (Column("FROM"), Column("TO"), Column("WHY", is_prose=True))


@app.command("list")
def list_calendars(
    context: typer.Context,
    limit: Limit = 50,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List calendars by name."""
    here = session(context)
    part = lists.Part(limit, is_all, cursor)
    lists.show_list(here.client, here.screen(as_json), "/v1/calendars", {}, part, _COLUMNS, _row)


@app.command()
def show(
    context: typer.Context,
    name: Name,
    zone: Annotated[str, typer.Option("--zone", "-z", metavar="ZONE", help="Whose days are shown.")] = "UTC",
    as_json: Json = False,
) -> None:
    """Show a calendar and what it contains next."""
    here = session(context)
    screen = here.screen(as_json)
    found = here.client.get(calendar_path(name), {"timezone": zone})
    if as_json:
        screen.json(found)
        return
    followers = f"{found['jobs']} {'job follows' if found['jobs'] == 1 else 'jobs follow'} it"
    screen.line(f"{found['name']}, revision {found['revision']}; {followers}", style="bold")
    if found["content"].get("description"):
        screen.remark(found["content"]["description"])
    rows = [(each["begins"], each["ends"] or "", each["why"]) for each in found["coming"]]
    screen.table(_PERIODS, rows)


@app.command("set")
def set_calendar(
    context: typer.Context,
    name: Name,
    content: Annotated[str, typer.Argument(metavar="CONTENT", help="JSON as it is, @file, or - for stdin.")],
    as_json: Json = False,
) -> None:
    """Make a calendar, or change it; jobs that follow it are planned anew within seconds."""
    here = session(context)
    screen = here.screen(as_json)
    given = read_json(content, "CONTENT")
    if not isinstance(given, dict):
        raise usage('CONTENT is not an object such as {"holidays": [{"country": "DE"}]}')
    kept = here.client.put(calendar_path(name), given)
    screen.answer(kept, f"calendar {kept['name']} is at revision {kept['revision']}")


@app.command()
def delete(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Delete a calendar that no job follows."""
    here = session(context)
    screen = here.screen(as_json)
    answer = here.client.delete(calendar_path(name))
    screen.answer(answer, f"calendar {name} is deleted")


def _row(_: Screen, calendar: dict[str, Any]) -> Sequence[object]:
    content = calendar["content"]
    parts = [f"{len(content[part])} {part}" for part in _PARTS if content.get(part)]
    return calendar["name"], ", ".join(parts), content.get("description", "")
