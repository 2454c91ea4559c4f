"""`cronwell config`: the settings, and where each of them comes from."""

from __future__ import annotations

import typer

from cronwell.cli.screen import Column
from cronwell.cli.session import Json, session

app = typer.Typer(no_args_is_help=True, help="The settings, and where each of them comes from.")

COLUMNS = (
    Column("SETTING"),
    Column("VALUE"),
    Column("FROM", rank=1),
    Column("ENVIRONMENT", rank=3),
    Column("WHAT IT IS", rank=2, is_prose=True),
)


@app.callback()
def settings() -> None:
    # With a callback the group stays a group although it has one command.
    pass


@app.command()
def show(context: typer.Context, as_json: Json = False) -> None:
    """Show every setting: its value, its origin, its environment variable and what it is for.

    In a settings file (--config or CRONWELL_CONFIG, TOML) `worker.lease` is `lease` in the table `[worker]`.
    """
    from cronwell import config

    here = session(context)
    screen = here.screen(as_json)
    lines = here.describe()
    if as_json:
        shown = {
            line.path: {
                "value": config.write_value(line.value),
                "origin": line.origin,
                "env": line.env,
                "doc": line.doc,
            }
            for line in lines
        }
        screen.json(shown)
        return
    screen.table(
        COLUMNS,
        [
            (line.path, config.write_value(line.value) or '""', line.origin, line.env, line.doc)
            for line in lines
        ],
    )
