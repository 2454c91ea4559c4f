"""`cronwell forecast`: how many fires each minute of the next day has, as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import typer

from cronwell.cli import times
from cronwell.cli.session import Json, session

HEIGHT = 8
_EIGHTHS = " ▁▂▃▄▅▆▇█"
# Minutes in a column, with the width that the whole plot takes then, from the finest.
_SCALES = ((15, 96), (30, 48), (60, 24))
_LABEL = 9


def forecast(context: typer.Context, as_json: Json = False) -> None:
    """Show how many fires are to come, over all jobs, in the next 24 hours."""
    here = session(context)
    screen = here.screen(as_json)
    found = here.client.get("/v1/forecast")
    if as_json:
        screen.json(found)
        return
    peak_at = times.read_moment(found["peak"]["at"])
    about = "about " if found["is_sampled"] else ""
    screen.line(
        f"{about}{found['total']:,} fires of {about}{found['jobs']:,} jobs in the next 24 hours",
        style="bold",
    )
    if not found["total"]:
        return
    for line in plot(found, screen.out.width):
        screen.line(line)
    screen.line(
        f"peak: {about}{found['peak']['count']:,} in the minute from {times.local(peak_at)}"
        f" ({times.distance(peak_at, screen.now)})"
    )
    if found["is_sampled"]:
        screen.remark(f"estimated from {found['share']:.2%} of the jobs")


def plot(found: dict[str, Any], width: int) -> list[str]:
    """Bars of the fires in each quarter of an hour (or more, where that is too wide), with the peak marked below."""
    step = next((step for step, columns in _SCALES if columns + _LABEL <= width), _SCALES[-1][0])
    minutes: Sequence[int] = found["minutes"]
    sums = [sum(minutes[start : start + step]) for start in range(0, len(minutes), step)]
    highest = max(sums)
    levels = [-(-each * HEIGHT * 8 // highest) for each in sums]
    lines = []
    for row in reversed(range(HEIGHT)):
        bars = "".join(_EIGHTHS[min(8, max(0, level - row * 8))] for level in levels)
        label = f"{highest:,}" if row == HEIGHT - 1 else "0" if row == 0 else ""
        lines.append(f"{label:>{_LABEL - 1}} {bars}".rstrip())
    begins = times.read_moment(found["from"])
    place = int((times.read_moment(found["peak"]["at"]) - begins) / timedelta(minutes=step))
    lines.append(" " * (_LABEL + place) + "▲")
    lines.append(" " * _LABEL + _axis(found, step, len(sums)))
    return lines


def _axis(found: dict[str, Any], step: int, columns: int) -> str:
    """Local times below the bars, one every few hours."""
    begins = times.read_moment(found["from"])
    apart = 12 if step < 60 else 6
    labels = [
        f"{(begins + timedelta(minutes=step * place)).astimezone():%H:%M}"
        for place in range(0, columns, apart)
    ]
    return "".join(f"{label:<{apart}}" for label in labels).rstrip()
