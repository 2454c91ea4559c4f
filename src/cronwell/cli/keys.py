"""`cronwell key`: what callers of the API show to be let in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from cronwell.cli import lists
from cronwell.cli.lists import After, All, Limit
from cronwell.cli.paths import key_path
from cronwell.cli.screen import Column, Screen
from cronwell.cli.session import Json, Session, session

app = typer.Typer(no_args_is_help=True, help="Keys, by which the API tells who asks and what they may do.")

KeyId = Annotated[str, typer.Argument(metavar="KEY", help="The key's id, as `key list` shows it.")]

_COLUMNS = (
    Column("PREFIX"),
    Column("NAME", is_prose=True),
    Column("STATE"),
    Column("SCOPES", rank=1),
    Column("LAST USED", rank=2),
    Column("EXPIRES", rank=3),
    Column("ID", rank=1),
)


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, or what it is for.")],
    scopes: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            "-s",
            metavar="SCOPE",
            help="read, write, run, commands, admin or operator. Repeatable; by default the first three.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="From when on it opens nothing (RFC 3339)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it: it is shown this once."""
    here = session(context)
    asked = {"name": name, "scopes": scopes, "expires_at": expires}
    made = here.client.post("/v1/keys", {field: value for field, value in asked.items() if value})
    _show_once(here, made, as_json=as_json)


@app.command("list")
def list_keys(
    context: typer.Context,
    limit: Limit = 50,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List keys, newest first, with those that are over."""
    here = session(context)
    part = lists.Part(limit, is_all, cursor)
    lists.show_list(here.client, here.screen(as_json), "/v1/keys", {}, part, _COLUMNS, _row)


@app.command()
def revoke(context: typer.Context, key: KeyId, as_json: Json = False) -> None:
    """Revoke a key: it opens nothing from now on."""
    here = session(context)
    screen = here.screen(as_json)
    revoked = here.client.post(f"{key_path(key)}/revoke")
    screen.answer(revoked, f"key {revoked['prefix']} is revoked")


@app.command()
def rotate(
    context: typer.Context,
    key: KeyId,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="TIME", help="How long the old key goes on to be good.")
    ] = "24h",
    as_json: Json = False,
) -> None:
    """Make a key like another and print it; the old one goes on to be good for a while."""
    here = session(context)
    made = here.client.post(f"{key_path(key)}/rotate", {"overlap": overlap})
    _show_once(here, made, as_json=as_json)


def _show_once(here: Session, made: dict[str, Any], *, as_json: bool) -> None:
    screen = here.screen(as_json)
    if as_json:
        screen.json(made)
        return
    # The key alone, so that a script can keep it.
    screen.line(made["key"])
    screen.remark(f"key {made['prefix']} for {', '.join(made['scopes'])}; it is not shown again")


def _row(screen: Screen, key: dict[str, Any]) -> Sequence[object]:
    return (
        key["prefix"],
        key["name"],
        key["state"],
        " ".join(key["scopes"]),
        screen.moment(key["last_used_at"]),
        screen.moment(key["expires_at"]),
        key["id"],
    )
