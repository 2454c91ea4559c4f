"""`cronwell preview`: what a schedule would do, without storing anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from cronwell.cli import times
from cronwell.cli.create import warn
from cronwell.cli.screen import Column, Screen
from cronwell.cli.session import Json, session
from cronwell.cli.sources import read_schedule, usage

SLOT_COLUMNS = (
    Column("IN ITS ZONE"),
    Column("UTC", rank=2),
    Column("WHEN", rank=1),
    Column("STARTS", rank=3),
    Column("NOTE", rank=4, is_prose=True),
)


def preview(
    context: typer.Context,
    schedule: Annotated[
        str,
        typer.Argument(
            metavar="SCHEDULE", help='In quotes: "0 3 * * *", "@hourly", "every 15m", or an object as JSON.'
        ),
    ],
    zone: Annotated[str | None, typer.Option("--zone", "-z", metavar="ZONE", help="IANA time zone.")] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=1000, metavar="N", help="How many slots.")
    ] = 10,
    after: Annotated[
        str | None, typer.Option(metavar="TIME", help='Slots after this time, e.g. "2027-03-28 00:00".')
    ] = None,
    window: Annotated[
        str | None, typer.Option(metavar="SPREAD", help='Spread of the starts, e.g. "5m".')
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", metavar="NAME", help="The job it is for: its name places an H.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show when a schedule fires, in words and times, and what may surprise; nothing is stored."""
    here = session(context)
    screen = here.screen(as_json)
    body: dict[str, Any] = {"schedule": read_schedule(schedule), "count": count}
    body |= {
        key: value
        for key, value in (("timezone", zone), ("window", window), ("job", job))
        if value is not None
    }
    if after is not None:
        try:
            body["after"] = times.write_moment(times.parse_moment(after, now=screen.now, toward="future"))
        except ValueError as error:
            raise usage(f"--after: {error}") from None
    found = here.client.post("/v1/schedules/preview", body)
    if as_json:
        screen.json(found)
        return
    screen.line(found["description"], style="bold")
    screen.table(SLOT_COLUMNS, [slot_row(screen, each) for each in found["slots"]])
    warn(screen, found)


def slot_row(screen: Screen, slot: dict[str, Any]) -> Sequence[object]:
    """A coming slot: the place in the window is shown only where there is one."""
    at = times.read_moment(slot["slot"])
    starts = slot.get("effective_at")
    starts_at = at if starts is None else times.read_moment(starts)
    return (
        f"{times.read_moment(slot['local']):%a %Y-%m-%d %H:%M:%S %z}",
        f"{at:%Y-%m-%d %H:%M:%S}",
        times.distance(at, screen.now),
        times.local(starts_at) if starts_at != at else "",
        "; ".join(filter(None, (_decided(slot.get("override")), slot.get("note")))),
    )


def _decided(override: dict[str, Any] | None) -> str:
    """What was decided about a slot; where it is moved to stands in its column."""
    if not override:
        return ""
    what = {"skip": "skipped", "move": "moved", "payload": "another payload"}[override["action"]]
    who = f" by {override['author']}" if override.get("author") else ""
    return f"{what}{who}" + (f": {override['note']}" if override.get("note") else "")
