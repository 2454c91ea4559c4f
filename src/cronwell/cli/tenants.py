"""`cronwell tenant`: the teams of an installation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from cronwell.cli import lists
from cronwell.cli.lists import After, All, Limit
from cronwell.cli.paths import tenant_path
from cronwell.cli.screen import Column, Screen
from cronwell.cli.session import Json, session

app = typer.Typer(no_args_is_help=True, help="Teams: each has jobs and keys of its own, and its share.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.")]
Weight = Annotated[
    float, typer.Option("--weight", metavar="N", help="Its share, beside those of others with work waiting.")
]

_COLUMNS = (Column("NAME"), Column("WEIGHT"), Column("CREATED", rank=1))


@app.command()
def create(context: typer.Context, name: Name, weight: Weight = 1.0, as_json: Json = False) -> None:
    """Make a tenant; `cronwell bootstrap --tenant NAME` makes its first key."""
    here = session(context)
    _told(here.screen(as_json), here.client.post("/v1/tenants", {"name": name, "weight": weight}))


@app.command("list")
def list_tenants(
    context: typer.Context,
    limit: Limit = 50,
    is_all: All = False,
    cursor: After = None,
    as_json: Json = False,
) -> None:
    """List tenants by name."""
    here = session(context)
    part = lists.Part(limit, is_all, cursor)
    lists.show_list(here.client, here.screen(as_json), "/v1/tenants", {}, part, _COLUMNS, _row)


@app.command()
def change(context: typer.Context, name: Name, weight: Weight, as_json: Json = False) -> None:
    """Change a tenant's share."""
    here = session(context)
    _told(here.screen(as_json), here.client.patch(tenant_path(name), {"weight": weight}))


def _told(screen: Screen, tenant: dict[str, Any]) -> None:
    if screen.as_json:
        screen.json(tenant)
    else:
        screen.line(f"tenant {tenant['name']} has the weight {tenant['weight']:g}")


def _row(screen: Screen, tenant: dict[str, Any]) -> Sequence[object]:
    return tenant["name"], f"{tenant['weight']:g}", screen.moment(tenant["created_at"])
