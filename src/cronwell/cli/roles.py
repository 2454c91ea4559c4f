"""The roles: commands that run until they are stopped, and those that need the database itself.

What they start is imported when they start: `cronwell --help` should not wait for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cronwell.cli.session import session

Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Listen on this address.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, metavar="PORT", help="Listen on this port.")]
Pools = Annotated[
    list[str] | None, typer.Option("--pool", metavar="POOL", help="Run the jobs of this pool. Repeatable.")
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import", metavar="MODULE", help="Import this Python module for its handlers. Repeatable."
    ),
]
Concurrency = Annotated[int | None, typer.Option(min=1, metavar="N", help="Run so many attempts at once.")]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Where the embedded PostgreSQL keeps its data."),
]
Shell = Annotated[
    bool | None,
    typer.Option("--shell", help="Let jobs run shell commands on this machine.", show_default=False),
]


def up(
    context: typer.Context,
    host: Host = None,
    port: Port = None,
    data_dir: DataDir = None,
    pools: Pools = None,
    imports: Imports = None,
    concurrency: Concurrency = None,
    shell: Shell = None,
) -> None:
    """Run everything: PostgreSQL, API, scheduler and worker. Ctrl-C drains and stops it all."""
    from cronwell.up import run_up

    settings = session(context).settings(
        _given(
            {
                "host": host,
                "port": port,
                "data_dir": data_dir,
                "worker.pools": pools,
                "worker.imports": imports,
                "worker.concurrency": concurrency,
                "shell.enabled": shell,
            }
        )
    )
    raise typer.Exit(run_up(settings))


def api(context: typer.Context, host: Host = None, port: Port = None) -> None:
    """Serve the HTTP interface."""
    from cronwell import wiring

    settings = session(context).settings(_given({"host": host, "port": port}))
    raise typer.Exit(wiring.run_api(settings))


def scheduler(context: typer.Context) -> None:
    """Stage slots ahead of time and keep house. Run any number of them."""
    from cronwell import wiring

    raise typer.Exit(wiring.run_scheduler(session(context).settings()))


def worker(
    context: typer.Context,
    pools: Pools = None,
    imports: Imports = None,
    concurrency: Concurrency = None,
    shell: Shell = None,
) -> None:
    """Run executions. Run any number of them."""
    from cronwell import wiring

    settings = session(context).settings(
        _given(
            {
                "worker.pools": pools,
                "worker.imports": imports,
                "worker.concurrency": concurrency,
                "shell.enabled": shell,
            }
        )
    )
    raise typer.Exit(wiring.run_worker(settings))


def migrate(context: typer.Context, data_dir: DataDir = None) -> None:
    """Bring the database's schema up to date; safe while an older release is running."""
    from cronwell import wiring

    applied = wiring.migrate(session(context).settings(_given({"data_dir": data_dir})))
    for step in applied:
        print(f"applied {step}")
    if not applied:
        print("the schema is up to date")


def signing_secret(context: typer.Context, data_dir: DataDir = None) -> None:
    """Print the secret that deliveries are signed with, for those who verify them."""
    from cronwell import wiring

    print(wiring.signing_secret(session(context).settings(_given({"data_dir": data_dir}))))


def _given(options: dict[str, object]) -> dict[str, object]:
    return {path: value for path, value in options.items() if value not in (None, [])}
