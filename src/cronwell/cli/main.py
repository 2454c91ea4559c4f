"""The command line's front door: `cronwell` and `python -m cronwell` start here.

Each group of commands has a file of its own. What they need beyond Typer is imported when a command runs, so that
`cronwell --help` and a typing error are answered at once.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cronwell import __version__
from cronwell.cli import (
    alerts,
    audit,
    backfills,
    calendars,
    dead_letters,
    executions,
    hosts,
    jobs,
    keys,
    roles,
    secrets,
    settings,
    tenants,
    tzdata,
)
from cronwell.cli.bench import bench
from cronwell.cli.cluster import cluster, drain
from cronwell.cli.explain import explain
from cronwell.cli.failures import MEANINGS, ExitCode, Failure
from cronwell.cli.forecast import forecast
from cronwell.cli.preview import preview
from cronwell.cli.reconcile import reconcile
from cronwell.cli.screen import Screen
from cronwell.cli.sentinel import sentinel
from cronwell.cli.session import Session
from cronwell.errors import ConfigError, StoreUnavailable

_ANYWHERE = ("--url", "--config")
EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())


class Front(TyperGroup):
    """The outermost group: global options may stand anywhere, and failures become messages and exit codes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _hoisted(args))

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            # What fails to be written is told like any other failure only as long as the command has not ended.
            sys.stdout.flush()
            return result
        except Failure as failure:
            _tell(ctx, failure)
            raise typer.Exit(failure.code) from None
        except (ConfigError, StoreUnavailable) as error:
            code = ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.FAILED
            _tell(ctx, Failure(str(error), code))
            raise typer.Exit(code) from None
        except BrokenPipeError:
            # Whoever read has seen enough.
            _forget_unwritten()
            raise typer.Exit(ExitCode.FAILED) from None
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            _forget_unwritten()
            _tell(ctx, Failure(str(error)))
            raise typer.Exit(ExitCode.FAILED) from None
        except KeyboardInterrupt:
            # The shell's ^C stands on this line.
            print(file=sys.stderr)
            raise typer.Exit(ExitCode.INTERRUPTED) from None


app = typer.Typer(
    name="cronwell",
    cls=Front,
    epilog=EPILOG,
    no_args_is_help=True,
    # Typer's own boxes cost 0.3 s of imports at each --help (measured), and do not survive a narrow terminal.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 110},
)


def run() -> None:
    """Run the command that the process was started with."""
    # A process may be started with these closed.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - open as long as the process
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character still gets the rest of the line.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # typed as TextIO, is a TextIOWrapper
    try:
        app(prog_name="cronwell")
    finally:
        _write_the_rest()


@app.callback()
def front(
    context: typer.Context,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="The API to talk to (CRONWELL_URL; default: host and port settings)."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A settings file in TOML (CRONWELL_CONFIG)."),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Cron for a fleet: jobs fire on the instant, once in effect.

    Start everything with `cronwell up`. Every command that reads takes --json.
    """
    context.obj = Session(config_file=config, url=url)
    context.call_on_close(context.obj.close)


app.command()(roles.up)
app.command()(roles.api)
app.command()(roles.scheduler)
app.command()(roles.worker)
app.command()(roles.migrate)
app.command("signing-secret")(roles.signing_secret)
app.command()(roles.bootstrap)
app.add_typer(settings.app, name="config")
app.add_typer(jobs.app, name="job")
app.add_typer(executions.app, name="execution")
app.add_typer(backfills.app, name="backfill")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(calendars.app, name="calendar")
app.add_typer(alerts.app, name="alert")
app.command()(preview)
app.command()(explain)
app.command()(forecast)
app.command()(reconcile)
app.add_typer(tzdata.app, name="tzdata")
app.add_typer(keys.app, name="key")
app.add_typer(secrets.app, name="secret")
app.add_typer(tenants.app, name="tenant")
app.add_typer(audit.app, name="audit")
app.add_typer(hosts.limits, name="limit")
app.add_typer(hosts.app, name="host")
app.command()(cluster)
app.command()(drain)
app.command()(sentinel)
app.command(short_help="Measure throughput and lateness on this machine.")(bench)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        print(f"cronwell {__version__}")
        raise typer.Exit


def _hoisted(args: list[str]) -> list[str]:
    """Move the global options, wherever they were written, before the command; `--` ends the options."""
    front: list[str] = []
    rest: list[str] = []
    place = 0
    while place < len(args):
        arg = args[place]
        if arg == "--":
            return [*front, *rest, *args[place:]]
        if arg in _ANYWHERE:
            front += args[place : place + 2]
            place += 2
            continue
        (front if arg.startswith(tuple(f"{name}=" for name in _ANYWHERE)) else rest).append(arg)
        place += 1
    return [*front, *rest]


def _write_the_rest() -> None:
    """Write what stdout still holds, quietly where its reader has gone away; Python itself would complain."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _forget_unwritten()
        if error.errno != errno.EPIPE:
            sys.exit(f"Error: {error}")


def _forget_unwritten() -> None:
    """Let what stdout still holds go nowhere: else Python tries, and fails, to write it once more when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _tell(context: Any, failure: Failure) -> None:
    here = context.obj
    if isinstance(here, Session) and here.as_json:
        print(json.dumps(failure.document(), ensure_ascii=False), file=sys.stderr)
        return
    Screen().remark(f"Error: {failure}", style="red")
