"""`cronwell audit`: who changed what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from cronwell.cli import lists
from cronwell.cli.failures import ExitCode
from cronwell.cli.lists import After, All, Limit
from cronwell.cli.screen import Column, Screen
from cronwell.cli.session import Json, session

app = typer.Typer(no_args_is_help=True, help="Who changed what, when and from where.")

Object = Annotated[
    str | None, typer.Option("--object", metavar="OBJECT", help="What was changed, such as job:ID.")
]
Actor = Annotated[str | None, typer.Option("--actor", metavar="WHO", help="Who asked for it.")]
Action = Annotated[str | None, typer.Option("--action", metavar="WHAT", help="created, changed, deleted, …")]
Since = Annotated[str | None, typer.Option("--from", metavar="TIME", help="From this time on (RFC 3339).")]
Until = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Before this time (RFC 3339).")]

_COLUMNS = (
    Column("AT"),
    Column("WHO"),
    Column("WHAT"),
    Column("OF"),
    Column("FROM", rank=2),
    Column("REQUEST", rank=3),
)


@app.command("list")
def list_audit(
    context: typer.Context,
    object_: Object = None,
    actor: Actor = None,
    action: Action = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List changes, newest first; --all --json exports them, with what each was before and after."""
    here = session(context)
    query = {"object": object_, "actor": actor, "action": action, "from": since, "to": until}
    part = lists.Part(limit, is_all, cursor)
    lists.show_list(here.client, here.screen(as_json), "/v1/audit", query, part, _COLUMNS, _row)


@app.command()
def check(context: typer.Context, as_json: Json = False) -> None:
    """Tell whether the chain of changes is whole; if not, exit with 1."""
    here = session(context)
    screen = here.screen(as_json)
    found = here.client.get("/v1/audit/check")
    if as_json:
        screen.json(found)
    elif found["is_whole"]:
        screen.line(f"whole: {found['checked']} changes, head {found['head'] or 'none'}")
        if found["waiting"]:
            screen.remark(f"{found['waiting']} more are not chained yet")
    else:
        screen.line(f"broken at {found['broken_link']}: what follows cannot be relied on", style="red")
    if not found["is_whole"]:
        raise typer.Exit(ExitCode.FAILED)


def _row(screen: Screen, entry: dict[str, Any]) -> Sequence[object]:
    return (
        screen.moment(entry["at"]),
        entry["actor"],
        entry["action"],
        entry["object"],
        entry["source"],
        entry["request_id"],
    )
