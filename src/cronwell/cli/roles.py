"""The roles: commands that run until they are stopped, and those that need the database itself.

What they start is imported when they start: `cronwell --help` should not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from cronwell.cli.failures import Failure
from cronwell.cli.session import session
from cronwell.errors import UserError

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
OfTenant = Annotated[str, typer.Option("--tenant", metavar="TENANT", help="Whose it is.")]
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


def signing_secret(context: typer.Context, tenant: OfTenant = "default", data_dir: DataDir = None) -> None:
    """Print the secret that a tenant's deliveries are signed with, for those who verify them."""
    from cronwell import wiring

    settings = session(context).settings(_given({"data_dir": data_dir}))
    print(_told(lambda: wiring.signing_secret(settings, tenant)))


def bootstrap(
    context: typer.Context,
    tenant: OfTenant = "default",
    name: Annotated[str, typer.Option(metavar="NAME", help="What the key is called.")] = "bootstrap",
    scopes: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="What it may do. Repeatable; by default everything within the tenant but commands, and everything"
            " for the tenant `default`.",
        ),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Make a key straight in the database, and print it: it is shown this once.

    For the first key of a tenant; further ones are made with it by `cronwell key create`.
    """
    from cronwell import wiring
    from cronwell.model.access import first_scopes

    settings = session(context).settings(_given({"data_dir": data_dir}))
    print(_told(lambda: wiring.bootstrap(settings, tenant, name, scopes or first_scopes(tenant))))


def _told(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except UserError as error:
        raise Failure(str(error)) from None


def _given(options: dict[str, object]) -> dict[str, object]:
    return {path: value for path, value in options.items() if value not in (None, [])}
