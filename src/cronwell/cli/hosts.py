"""`cronwell limit` and `cronwell host`: what targets bear, and which hosts keep failing."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from cronwell.cli import lists
from cronwell.cli.lists import After, All, Limit
from cronwell.cli.paths import host_path, limit_path
from cronwell.cli.screen import Column, Screen
from cronwell.cli.session import Json, session

limits = typer.Typer(no_args_is_help=True, help="What targets bear: starts at a rate, and calls at once.")
app = typer.Typer(no_args_is_help=True, help="Hosts that keep failing, and are left alone for a while.")

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="host:NAME, host:NAME:PORT (not 80 or 443), handler:NAME or shell."
    ),
]
Host = Annotated[str, typer.Argument(metavar="HOST", help="NAME, or NAME:PORT where that is not 80 or 443.")]

_LIMITS = (
    Column("TARGET"),
    Column("RATE"),
    Column("AT ONCE", is_number=True),
    Column("BREAKER", rank=2),
    Column("HELD", rank=1, is_number=True),
)
_HOSTS = (
    Column("HOST"),
    Column("STATE"),
    Column("SINCE", rank=1),
    Column("NEXT PROBE", rank=1),
    Column("HELD", is_number=True),
    Column("ERROR", rank=2, is_prose=True),
)


class HostState(StrEnum):
    OPEN = "open"
    RECOVERING = "recovering"
    CLOSED = "closed"


@limits.command("set")
def set_limit(
    context: typer.Context,
    target: Target,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", help="Starts, such as 100/s, 600/m or 20/h.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", metavar="N", help="So many at once at the most.")
    ] = None,
    has_breaker: Annotated[
        bool, typer.Option("--breaker/--no-breaker", help="Whether to leave a host alone that keeps failing.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Say what a target bears, of the whole installation; what is not given is not limited."""
    here = session(context)
    screen = here.screen(as_json)
    body = {"rate": rate, "concurrency": concurrency, "breaker": has_breaker}
    kept = here.client.put(limit_path(target), body)
    screen.answer(kept, f"{kept['target']} {_told(kept)}")


@limits.command("list")
def list_limits(
    context: typer.Context,
    limit: Limit = 50,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List what targets bear, and how many executions wait for each."""
    here = session(context)
    part = lists.Part(limit, is_all, cursor)
    lists.show_list(here.client, here.screen(as_json), "/v1/limits", {}, part, _LIMITS, _limit_row)


@limits.command()
def delete(context: typer.Context, target: Target, as_json: Json = False) -> None:
    """Let a target have as much as there is."""
    here = session(context)
    screen = here.screen(as_json)
    answer = here.client.delete(limit_path(target))
    screen.answer(answer, f"nothing limits {target} any more")


@app.command("list")
def list_hosts(
    context: typer.Context,
    state: Annotated[HostState | None, typer.Option("--state", "-s", help="Only in this state.")] = None,
    limit: Limit = 50,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List hosts that keep failing, or did so lately, and how many executions wait for each."""
    here = session(context)
    part = lists.Part(limit, is_all, cursor)
    query = {"state": None if state is None else state.value}
    lists.show_list(here.client, here.screen(as_json), "/v1/hosts", query, part, _HOSTS, _host_row)


@app.command()
def close(context: typer.Context, host: Host, as_json: Json = False) -> None:
    """Say that a host is well: it is called again, and what waits for it comes again."""
    here = session(context)
    screen = here.screen(as_json)
    answer = here.client.post(f"{host_path(host)}/close")
    screen.answer(answer, f"{answer['host']} is called again; {answer['held']} executions waited for it")


def _told(limit: dict[str, Any]) -> str:
    parts = [] if limit["rate"] is None else [limit["rate"]]
    if limit["concurrency"] is not None:
        parts.append(f"{limit['concurrency']} at once")
    told = f"is limited to {' and '.join(parts)}" if parts else "is not limited"
    return told if limit["breaker"] else f"{told}, and called although it keeps failing"


def _limit_row(_: Screen, limit: dict[str, Any]) -> Sequence[object]:
    most = "any" if limit["concurrency"] is None else limit["concurrency"]
    breaker = "on" if limit["breaker"] else "off"
    return limit["target"], limit["rate"] or "any", most, breaker, limit["held"]


def _host_row(screen: Screen, host: dict[str, Any]) -> Sequence[object]:
    probe = "" if host["next_probe_at"] is None else screen.moment(host["next_probe_at"])
    return host["host"], host["state"], screen.moment(host["since"]), probe, host["held"], host["error"] or ""
