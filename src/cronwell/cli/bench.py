"""`cronwell bench`: measure throughput and lateness on this machine."""

from __future__ import annotations

import typer

from cronwell.cli.failures import Failure

app = typer.Typer(invoke_without_command=True, help="Measure throughput and lateness on this machine.")


@app.callback()
def bench() -> None:
    """Measure throughput and lateness on this machine."""
    raise Failure("this build cannot measure yet")
