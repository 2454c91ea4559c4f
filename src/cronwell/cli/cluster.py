"""`cronwell cluster`: who runs, who stages what, what waits. `cronwell drain`: stop one of them in order."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import typer

from cronwell import durations
from cronwell.cli import times
from cronwell.cli.failures import ExitCode, Failure, Refused, Unreachable
from cronwell.cli.paths import node_path
from cronwell.cli.screen import Column, Screen, compact
from cronwell.cli.session import Json, Session, session

NODE_COLUMNS = (
    Column("ROLE"),
    Column("NAME"),
    Column("STATE"),
    Column("SEEN"),
    Column("UP SINCE", rank=2),
    Column("VERSION", rank=1),
    Column("ID", rank=3),
)
WORKER_COLUMNS = (
    Column("WORKER"),
    Column("STATE"),
    Column("POOLS"),
    Column("RUNNING", is_number=True),
    Column("HEARTBEAT", rank=1),
    Column("LEASE LEFT", rank=1, is_number=True),
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
OWNER_COLUMNS = (
    Column("SHARDS OF"),
    Column("STATE"),
    Column("COUNT", is_number=True),
    Column("AHEAD", is_number=True),
    Column("MARKED", rank=1),
    Column("ID", rank=2),
)
SHARD_COLUMNS = (
    Column("SHARD", is_number=True),
    Column("STATE"),
    Column("OWNER"),
    Column("EPOCH", is_number=True),
    Column("SINCE", rank=2),
    Column("WATERMARK", rank=1),
    Column("AHEAD", is_number=True),
)
FINDING_COLUMNS = (
    Column("FOUND", is_number=True),
    Column("MENDED", is_number=True),
    Column("WHAT"),
    Column("EXAMPLES", rank=1, is_prose=True),
)
SUMMARY = {
    "oldest_watermark": "watermark",
    "ahead_s": "ahead",
    "unowned_shards": "unowned shards",
    "overdue": "overdue",
    "oldest_overdue_s": "oldest overdue",
}
LOOK_EVERY = 0.5
EVERY = timedelta(seconds=2)


def read_duration(text: str) -> timedelta:
    """A duration that was given as an option."""
    try:
        return durations.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def cluster(
    context: typer.Context,
    as_json: Json = False,
    shards: Annotated[bool, typer.Option("--shards", help="List every shard.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again every 2 s, until Ctrl-C.")
    ] = False,
) -> None:
    """Show the processes, the shards and their owners, the workers, and what waits for them."""
    here = session(context)
    while True:
        screen = here.screen(as_json)
        found = here.client.get("/v1/cluster")
        if watch and screen.out.is_terminal and not as_json:
            screen.out.clear()
        if as_json:
            (screen.json_line if watch else screen.json)(found)
        else:
            _write(screen, found, every_shard=shards)
        if not watch:
            return
        time.sleep(EVERY.total_seconds())


def drain(
    context: typer.Context,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its id, the beginning of one, or host:pid.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
    timeout: Annotated[
        timedelta,
        typer.Option(
            "--timeout",
            parser=read_duration,
            metavar="TIME",
            help="Wait no longer than this; by default 2m.",
            show_default=False,
        ),
    ] = "2m",  # type: ignore[assignment]  # read by the parser, as what is given is
    as_json: Json = False,
) -> None:
    """Stop a process in order, wherever it runs: it hands back what has not started and lets attempts finish."""
    here = session(context)
    screen = here.screen(as_json)
    asked = here.client.post(f"{node_path(node)}/drain")
    if wait:
        asked = _until_gone(here, asked, timeout)
    if as_json:
        screen.json(asked)
    elif wait:
        screen.line(
            f"{asked['role']} {asked['name']} has {'stopped' if asked['state'] == 'stopped' else 'gone'}"
        )
    else:
        screen.line(f"asked {asked['role']} {asked['name']} to drain")


def _until_gone(here: Session, asked: dict[str, Any], timeout: timedelta) -> dict[str, Any]:
    """Look until the process has ended; one that was lost on the way has ended too."""
    give_up_deadline = time.monotonic() + timeout.total_seconds()
    while time.monotonic() < give_up_deadline:
        try:
            nodes = here.client.get("/v1/cluster")["nodes"]
        except (Unreachable, Refused):
            # It may be the very one that answers us, and then nobody will tell.
            if asked["role"] == "api":
                return {**asked, "state": "gone"}
            raise
        [now] = [each for each in nodes if each["id"] == asked["id"]] or [{**asked, "state": "gone"}]
        if now["state"] not in ("active", "draining"):
            return dict(now)
        time.sleep(LOOK_EVERY)
    raise Failure(
        f"{asked['role']} {asked['name']} has not ended within {durations.write(timeout)}; it goes on draining",
        ExitCode.FAILED,
    )


def _write(screen: Screen, found: dict[str, Any], *, every_shard: bool) -> None:
    parts = ("nodes", "workers", "pools", "shards", "findings")
    nodes, workers, pools, shards, findings = (found.pop(part, []) for part in parts)
    versions, summary = found.pop("versions", {}), found.pop("summary", {})
    if len(versions) > 1:
        found["versions"] = ", ".join(f"{version} ({count})" for version, count in versions.items())
    screen.fields(
        [
            *((name.replace("_", " "), _shown(screen, name, value)) for name, value in found.items()),
            *((SUMMARY.get(name, name), _shown(screen, name, value)) for name, value in summary.items()),
        ]
    )
    tables = [
        (NODE_COLUMNS, [_node_row(screen, each) for each in nodes]),
        (
            (SHARD_COLUMNS, [_shard_row(screen, each) for each in shards])
            if every_shard
            else (OWNER_COLUMNS, _owner_rows(screen, shards))
        ),
        (POOL_COLUMNS, [_pool_row(screen, each) for each in pools]),
        (WORKER_COLUMNS, [_worker_row(screen, each) for each in workers]),
        (FINDING_COLUMNS, [_finding_row(each) for each in findings]),
    ]
    for columns, rows in tables:
        if rows:
            screen.line()
            screen.table(columns, rows)
    if nodes and not any(each["role"] == "scheduler" and _is_living(each) for each in nodes):
        screen.remark("no scheduler runs: start one with `cronwell scheduler`")
    if not any(_is_living(each) for each in workers):
        screen.remark("no worker runs: start one with `cronwell worker`")


def _is_living(one: Mapping[str, Any]) -> bool:
    return one["state"] in ("active", "draining")


def _shown(screen: Screen, name: str, value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        is_moment = name in ("now", "oldest_watermark") or name.endswith("_at")
        return screen.moment(value) if is_moment else value
    if name.endswith("_s") and isinstance(value, int | float):
        return _seconds(value)
    return compact(value)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}s"


def _node_row(screen: Screen, node: dict[str, Any]) -> tuple[object, ...]:
    return (
        node["role"],
        node["name"],
        node["state"],
        times.distance(times.read_moment(node["seen_at"]), screen.now),
        screen.moment(node["started_at"]),
        node["version"],
        node["id"],
    )


def _owner_rows(screen: Screen, shards: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """One row for each owner, with the least that holds for all of its shards."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for each in shards:
        key = (each["owner_name"] or "-", each["state"], each["owner"] or "-")
        groups.setdefault(key, []).append(each)
    rows: list[tuple[object, ...]] = []
    for (name, state, owner), owned in sorted(groups.items()):
        ahead = [each["ahead_s"] for each in owned]
        marked = [each["marked_at"] for each in owned]
        rows.append(
            (
                name,
                state,
                len(owned),
                "-" if None in ahead else _seconds(min(ahead)),
                "-" if None in marked else times.distance(times.read_moment(min(marked)), screen.now),
                owner,
            )
        )
    return rows


def _shard_row(screen: Screen, shard: dict[str, Any]) -> tuple[object, ...]:
    return (
        shard["shard"],
        shard["state"],
        shard["owner_name"] or shard["owner"],
        shard["epoch"],
        screen.moment(shard["since"]),
        screen.moment(shard["watermark"]),
        _seconds(shard["ahead_s"]),
    )


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
        _seconds(worker.get("lease_left_s")),
        worker["version"],
        ", ".join(worker["handlers"]),
        worker["id"],
    )


def _finding_row(finding: dict[str, Any]) -> tuple[object, ...]:
    return (
        finding["found"],
        finding["mended"],
        finding["kind"].replace("_", " "),
        ", ".join(finding["examples"][:3]),
    )
