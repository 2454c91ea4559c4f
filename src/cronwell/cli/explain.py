"""`cronwell explain`: what became of one instant of a job, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from cronwell.cli.paths import job_path
from cronwell.cli.session import Json, session


def explain(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name or id.")],
    at: Annotated[
        str,
        typer.Argument(
            metavar="AT",
            help='The instant, e.g. "2027-03-28T02:30" in the schedule\'s zone, or with an offset.',
        ),
    ],
    as_json: Json = False,
) -> None:
    """Say what became of an instant of a job, and why."""
    here = session(context)
    screen = here.screen(as_json)
    found = here.client.get(f"{job_path(job)}/explain", {"at": at})
    if as_json:
        screen.json(found)
        return
    screen.line(found["sentence"], style="bold")
    fields = [
        ("at", f"{found['local']}  ({found['at']})"),
        ("verdict", found["verdict"] + (f": {found['reason']}" if found.get("reason") else "")),
        ("schedule", found.get("schedule")),
        ("slot before", found.get("previous_slot")),
        ("slot after", found.get("next_slot")),
        ("decided by", (found.get("override") or {}).get("author")),
        *(("follows", f"{each['job']}: {each['state']}") for each in found.get("upstreams", [])),
        ("execution", (found.get("execution") or {}).get("id")),
    ]
    for name, value in fields:
        if value:
            screen.remark(f"{name:<12} {value}")
