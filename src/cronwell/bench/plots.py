"""The plots of a report, from its JSON alone.

A series is named `QUANTITY[: LINE] [(UNIT)] [over AXIS [(UNIT)]]`: "lateness: the herd", "size: cursors (MiB) over time (s)".
The lines of one quantity over one axis share a plot. Without an axis the points are a distribution: how much, and the
share that is no more than that.

matplotlib, which only this module needs, comes with the development environment; import the module late.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

Points = Sequence[Sequence[float]]

UNITS = {"lateness": "ms", "throughput": "executions/s", "time": "s"}
"""Those that go without saying."""
WORDS = {"lateness": "start lateness"}
MANY_TIMES = 50.0
"""Figures that lie further apart than this are drawn on a logarithmic axis."""
FEW_DECADES = 100.0
"""A logarithmic axis that spans less has figures within each decade too."""
# Less than this is the resolution of the clocks, and a logarithmic axis has no zero.
LEAST_MS = 0.1

_NAME = re.compile(
    r"(?P<quantity>[^:(]+?)(?:: (?P<line>[^(]+?))?(?: \((?P<unit>[^)]+)\))?"
    r"(?: over (?P<axis>[^(]+?)(?: \((?P<axis_unit>[^)]+)\))?)?"
)


@dataclass(frozen=True, slots=True)
class Series:
    """What the name of a series says."""

    quantity: str
    line: str | None = None
    unit: str | None = None
    axis: str | None = None
    axis_unit: str | None = None

    @property
    def plot(self) -> str:
        """The plot that it belongs in, as a part of a file's name."""
        words = self.quantity if self.axis is None else f"{self.quantity} over {self.axis}"
        return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def write(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw every series of a report into PNG files, `ROW-QUANTITY-over-AXIS.png`, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        _draw(report, row, lines, folder / f"{name}-{plot}.png")
        for name, row in report["rows"].items()
        for plot, lines in _plots(row["series"])
    ]


def read_name(name: str) -> Series:
    """Take the name of a series apart."""
    found = _NAME.fullmatch(name)
    if found is None:
        return Series(name)
    quantity, line, unit, axis, axis_unit = found.group("quantity", "line", "unit", "axis", "axis_unit")
    return Series(
        quantity, line, unit or UNITS.get(quantity), axis, axis_unit or (axis and UNITS.get(axis)) or None
    )


def _plots(series: Mapping[str, Points]) -> Iterator[tuple[str, list[tuple[Series, Points]]]]:
    """The lines of each plot; a series without a point is left out."""
    plots: dict[str, list[tuple[Series, Points]]] = {}
    for name, points in series.items():
        if points:
            read = read_name(name)
            plots.setdefault(read.plot, []).append((read, points))
    yield from plots.items()


def _draw(
    report: Mapping[str, Any], row: Mapping[str, Any], lines: list[tuple[Series, Points]], path: Path
) -> Path:
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    series = lines[0][0]
    if series.axis is None:
        _draw_distribution(axes, lines)
    else:
        _draw_course(axes, lines)
    axes.set_title(row["title"], loc="left", fontsize=11)
    axes.grid(visible=True, which="major", alpha=0.4)
    axes.grid(visible=True, which="minor", alpha=0.12)
    if len(lines) > 1 or series.line is not None:
        figure.legend(loc="outside right upper", frameon=False)
    facts = report["facts"]
    figure.supxlabel(
        f"Cronwell {facts['version']} ({facts['commit'] or 'no commit'}) on {facts['machine']}",
        fontsize=7,
        color="grey",
    )
    figure.savefig(path)
    return path


def _draw_distribution(axes: Axes, lines: list[tuple[Series, Points]]) -> None:
    """The share of all, from none to all, against how much: the tail is where the interest is."""
    for series, points in lines:
        axes.step(
            [max(point[0], LEAST_MS) for point in points],
            [100 * point[1] for point in points],
            where="post",
            label=series.line or series.quantity,
        )
    axes.set_xscale("log")
    _plain_figures(axes, "x")
    axes.set_xlabel(_label(lines[0][0].quantity, lines[0][0].unit))
    axes.set_ylabel("share that is no more than that, %")
    axes.set_ylim(0, 102)


def _draw_course(axes: Axes, lines: list[tuple[Series, Points]]) -> None:
    for series, points in lines:
        axes.plot(
            [point[0] for point in points],
            [_shown(series, point[1]) for point in points],
            label=series.line or series.quantity,
            # A line needs two points; a few are better seen one by one.
            marker="o" if len(points) < 20 else None,
            markersize=3,
        )
    first = lines[0][0]
    axes.set_xlabel(_label(first.axis or "", first.axis_unit))
    axes.set_ylabel(_label(first.quantity, first.unit))
    if first.axis != "time":
        _scale(axes, "x", [point[0] for _, points in lines for point in points])
    _scale(
        axes,
        "y",
        [_shown(series, point[1]) for series, points in lines for point in points],
        far_apart=1.0 if first.quantity == "lateness" else MANY_TIMES,
    )


def _shown(series: Series, figure: float) -> float:
    return max(figure, LEAST_MS) if series.quantity == "lateness" else figure


def _scale(axes: Axes, side: str, figures: Sequence[float], far_apart: float = MANY_TIMES) -> None:
    """A logarithmic axis where the largest figure is so many times the least, one from zero where it is not."""
    if min(figures) > 0 and max(figures) > far_apart * min(figures):
        axes.set(**{f"{side}scale": "log"})
        _plain_figures(axes, side)
    elif side == "y" and min(figures) >= 0:
        axes.set_ylim(bottom=0)


def _plain_figures(axes: Axes, side: str) -> None:
    """Write 0.5, 10 and 2,000 on a logarithmic axis, not powers of ten."""
    axis = axes.xaxis if side == "x" else axes.yaxis
    least, most = axis.get_view_interval()
    if most < FEW_DECADES * least:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda figure, _: f"{figure:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def _label(what: str, unit: str | None) -> str:
    words = WORDS.get(what, what)
    return words if unit is None else f"{words}, {unit}"
