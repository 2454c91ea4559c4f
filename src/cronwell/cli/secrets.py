"""`cronwell secret`: values that jobs name and that nobody is shown."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from cronwell.cli import lists
from cronwell.cli.failures import ExitCode, Failure
from cronwell.cli.lists import After, All, Limit
from cronwell.cli.paths import secret_path
from cronwell.cli.screen import Column, Screen
from cronwell.cli.session import Json, Yes, session
from cronwell.cli.sources import read_text, usage

app = typer.Typer(no_args_is_help=True, help="Values that jobs name and that nobody is shown.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The secret's name.")]

_COLUMNS = (
    Column("NAME"),
    Column("REVISION", is_number=True),
    Column("UPDATED", rank=1),
    Column("KEY", rank=2),
)
_KEYS = (Column("KEY"), Column("STATE"), Column("SECRETS", is_number=True))


@app.command("set")
def set_secret(
    context: typer.Context,
    name: Name,
    from_file: Annotated[
        str | None,
        typer.Option("--from-file", "-f", metavar="FILE", help="Take the value from a file, to the letter."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Set a secret. Its value is asked for, or read from stdin, or from a file: a command line can be seen by others.

    printf %s "$TOKEN" | cronwell secret set billing-token
    """
    here = session(context)
    screen = here.screen(as_json)
    value = _value(screen, name) if from_file is None else read_text(from_file, "--from-file")
    if not value:
        raise usage("the value is empty")
    kept = here.client.put(secret_path(name), {"value": value})
    screen.answer(kept, f"secret {kept['name']} is at revision {kept['revision']}")


@app.command("list")
def list_secrets(
    context: typer.Context,
    limit: Limit = 50,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List secrets by name, without their values."""
    here = session(context)
    part = lists.Part(limit, is_all, cursor)
    lists.show_list(here.client, here.screen(as_json), "/v1/secrets", {}, part, _COLUMNS, _row)


@app.command()
def show(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show a secret and which jobs name it, without its value."""
    here = session(context)
    screen = here.screen(as_json)
    found = here.client.get(secret_path(name))
    if as_json:
        screen.json(found)
        return
    named = ", ".join(found["named_by"])
    more = found["jobs"] - len(found["named_by"])
    screen.fields(
        [
            ("name", found["name"]),
            ("revision", found["revision"]),
            ("created", screen.moment(found["created_at"])),
            ("updated", screen.moment(found["updated_at"])),
            ("key", found["key_id"]),
            ("named by", f"{named} and {more} more" if more else named or "no job"),
        ]
    )


@app.command()
def delete(
    context: typer.Context,
    name: Name,
    is_forced: Annotated[
        bool, typer.Option("--force", help="Also where jobs name it; their attempts fail then.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a secret that no job names. Its value is gone for good."""
    here = session(context)
    screen = here.screen(as_json)
    if not yes and not screen.confirm(f"Delete the secret {name}? Its value cannot be had back."):
        screen.remark("nothing was deleted")
        raise typer.Exit(ExitCode.FAILED)
    answer = here.client.delete(f"{secret_path(name)}?force=true" if is_forced else secret_path(name))
    screen.answer(answer, f"deleted {name}")


@app.command()
def keys(context: typer.Context, as_json: Json = False) -> None:
    """List the installation's keys by their ids, and how many secrets are encrypted with each."""
    here = session(context)
    screen = here.screen(as_json)
    found = here.client.get("/v1/secret-keys")
    if as_json:
        screen.json(found)
        return
    states = {(True, True): "first", (False, True): "known", (False, False): "missing"}
    rows = [
        (each["id"], states[each["is_first"], each["is_known"]], each["secrets"]) for each in found["items"]
    ]
    screen.table(_KEYS, rows)


@app.command("rotate-key")
def rotate_key(context: typer.Context, as_json: Json = False) -> None:
    """Encrypt all secrets, of all tenants, by way of the first key that the API has."""
    here = session(context)
    screen = here.screen(as_json)
    cursor: str | None = None
    count, unreadable = 0, []
    with screen.progress(is_measured=True) as progress:
        task = progress.add_task("rewrapping secrets", total=None)
        while True:
            done = here.client.post("/v1/secret-keys/rotate", {"cursor": cursor} if cursor else None)
            count += done["rewrapped"]
            unreadable += done["unreadable"]
            progress.update(task, completed=count, total=count + done["left"])
            cursor = done["next_cursor"]
            if cursor is None:
                break
    if as_json:
        screen.json(
            {"key_id": done["key_id"], "rewrapped": count, "left": done["left"], "unreadable": unreadable}
        )
    else:
        left = f", {done['left']} left" if done["left"] else ", none left"
        counted = f"{count} {'secret' if count == 1 else 'secrets'}"
        screen.line(f"{counted} rewrapped with the key {done['key_id']}{left}")
    if unreadable:
        shown = ", ".join(f"{each['name']} (key {each['key_id']})" for each in unreadable[:5])
        raise Failure(
            f"not all could be read ({len(unreadable)}): {shown}; add the keys that they are encrypted with, behind "
            "the first, and run this again, or set these secrets anew"
        )


def _value(screen: Screen, name: str) -> str:
    """What somebody types, unseen, or what comes on stdin; in both, without the end of its last line."""
    if screen.is_interactive:
        return getpass.getpass(f"Value of {name}: ")
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")


def _row(screen: Screen, secret: dict[str, Any]) -> Sequence[object]:
    return (secret["name"], secret["revision"], screen.moment(secret["updated_at"]), secret["key_id"])
