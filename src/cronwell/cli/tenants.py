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
_WEIGHT = typer.Option("--weight", metavar="N", help="Its share, beside those of others with work waiting.")
Weight = Annotated[float, _WEIGHT]
MostJobs = Annotated[int | None, typer.Option("--jobs", metavar="N", help="So many jobs at the most.")]
MostPayload = Annotated[
    int | None, typer.Option("--payload", metavar="BYTES", help="So many bytes of payload at the most.")
]
MostRequests = Annotated[
    float | None, typer.Option("--requests", metavar="N", help="So many requests a second at the most.")
]
MostRunning = Annotated[
    int | None, typer.Option("--running", metavar="N", help="So many executions running at once at the most.")
]
MostPerMinute = Annotated[
    int | None, typer.Option("--per-minute", metavar="N", help="So many executions a minute at the most.")
]

_QUOTAS = ("jobs", "payload_bytes", "requests_per_second", "running", "executions_per_minute")
_COLUMNS = (
    Column("NAME"),
    Column("WEIGHT"),
    Column("JOBS", rank=1),
    Column("PAYLOAD", rank=2),
    Column("REQUESTS/S", rank=2),
    Column("RUNNING", rank=2),
    Column("PER MINUTE", rank=2),
    Column("CREATED", rank=3),
)


@app.command()
def create(
    context: typer.Context,
    name: Name,
    weight: Weight = 1.0,
    jobs: MostJobs = None,
    payload: MostPayload = None,
    requests: MostRequests = None,
    running: MostRunning = None,
    per_minute: MostPerMinute = None,
    as_json: Json = False,
) -> None:
    """Make a tenant; `cronwell bootstrap --tenant NAME` makes its first key."""
    here = session(context)
    quotas = _quotas(
        jobs=jobs,
        payload_bytes=payload,
        requests_per_second=requests,
        running=running,
        executions_per_minute=per_minute,
    )
    body = {"name": name, "weight": weight, **({"quotas": quotas} if quotas else {})}
    _told(here.screen(as_json), here.client.post("/v1/tenants", body))


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
def change(
    context: typer.Context,
    name: Name,
    weight: Annotated[float | None, _WEIGHT] = None,
    jobs: MostJobs = None,
    payload: MostPayload = None,
    requests: MostRequests = None,
    running: MostRunning = None,
    per_minute: MostPerMinute = None,
    as_json: Json = False,
) -> None:
    """Change a tenant's share or its quotas; a quota of -1 is none."""
    here = session(context)
    body: dict[str, object] = {} if weight is None else {"weight": weight}
    if quotas := _quotas(
        jobs=jobs,
        payload_bytes=payload,
        requests_per_second=requests,
        running=running,
        executions_per_minute=per_minute,
    ):
        body["quotas"] = quotas
    _told(here.screen(as_json), here.client.patch(tenant_path(name), body))


def _told(screen: Screen, tenant: dict[str, Any]) -> None:
    if screen.as_json:
        screen.json(tenant)
    else:
        quotas = {name: quota for name, quota in tenant["quotas"].items() if quota is not None}
        told = "".join(f", {name.replace('_', ' ')}: {quota:g}" for name, quota in quotas.items())
        screen.line(f"tenant {tenant['name']} has the weight {tenant['weight']:g}{told}")


def _row(screen: Screen, tenant: dict[str, Any]) -> Sequence[object]:
    shown = ["any" if quota is None else f"{quota:g}" for quota in map(tenant["quotas"].get, _QUOTAS)]
    return tenant["name"], f"{tenant['weight']:g}", *shown, screen.moment(tenant["created_at"])


def _quotas(**given: float | None) -> dict[str, float | None]:
    """What is given; -1 stands for no quota."""
    return {name: None if quota < 0 else quota for name, quota in given.items() if quota is not None}
