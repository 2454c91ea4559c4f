"""`cronwell cluster`: who runs, what waits."""

from __future__ import annotations

from typing import Any

import typer

from cronwell.cli import times
from cronwell.cli.screen import Column, Screen, compact
from cronwell.cli.session import Json, session

WORKER_COLUMNS = (
    Column("WORKER"),
    Column("STATE"),
    Column("POOLS"),
    Column("RUNNING", is_number=True),
    Column("HEARTBEAT", rank=1),
    Column("UP SINCE", rank=2),
    Column("VERSION", rank=3),
    Column("HANDLERS", rank=4, is_prose=True),
    Column("ID", rank=5),
)
POOL_COLUMNS = (
    Column("POOL"),
    Column("WORKERS", is_number=True),
    Column("WAITING", is_number=True),
    Column("OLDEST DUE", rank=1),
)


def cluster(context: typer.Context, as_json: Json = False) -> None:
    """Show the workers, and what waits for them."""
    here = session(context)
    screen = here.screen(as_json)
    found = here.client.get("/v1/cluster")
    if as_json:
        screen.json(found)
        return
    pools, workers = found.pop("pools", []), found.pop("workers", [])
    screen.fields((name, _shown(screen, name, value)) for name, value in found.items())
    if pools:
        screen.line()
        screen.table(POOL_COLUMNS, [_pool_row(screen, each) for each in pools])
    screen.line()
    if workers:
        screen.table(WORKER_COLUMNS, [_worker_row(screen, each) for each in workers])
    else:
        screen.remark("no worker runs: start one with `cronwell worker`")


def _shown(screen: Screen, name: str, value: object) -> str:
    if isinstance(value, str):
        return screen.moment(value) if name == "now" or name.endswith("_at") else value
    return compact(value)


def _pool_row(screen: Screen, pool: dict[str, Any]) -> tuple[object, ...]:
    oldest = pool.get("oldest_due_at")
    return (pool["name"], pool["workers"], pool["depth"], screen.moment(oldest))


def _worker_row(screen: Screen, worker: dict[str, Any]) -> tuple[object, ...]:
    return (
        worker["name"],
        worker["state"],
        ",".join(worker["pools"]),
        f"{worker['running']}/{worker['concurrency']}",
        times.distance(times.read_moment(worker["heartbeat_at"]), screen.now),
        screen.moment(worker["started_at"]),
        worker["version"],
        ", ".join(worker["handlers"]),
        worker["id"],
    )
