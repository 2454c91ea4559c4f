"""Plots of a report: one file for each quantity and axis of a row, from its JSON alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from cronwell.bench.plots import Series, read_name, write
from cronwell.cli.bench import _drawing_into
from cronwell.cli.failures import ExitCode, Failure


def report(**series: list[list[float]]) -> dict[str, Any]:
    return {
        "facts": {"version": "1.2.3", "commit": "abc", "machine": "a machine"},
        "rows": {"soak": {"title": "soak: 5/s for 6 s", "series": series}},
    }


@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("lateness", Series("lateness", None, "ms")),
        ("lateness: the herd", Series("lateness", "the herd", "ms")),
        ("throughput over time", Series("throughput", None, "executions/s", "time", "s")),
        ("size: cursors (MiB) over time (s)", Series("size", "cursors", "MiB", "time", "s")),
        ("dead rows: claim index over time", Series("dead rows", "claim index", None, "time", "s")),
        ("cost (CPU s per 1,000) over jobs", Series("cost", None, "CPU s per 1,000", "jobs")),
        ("((", Series("((")),
    ],
)
def test_the_name_of_a_series_says_what_is_on_which_axis(name: str, series: Series) -> None:
    assert read_name(name) == series


def test_lines_of_one_quantity_over_one_axis_share_a_plot(tmp_path: Path) -> None:
    course, shares = [[0.0, 1.0], [1.0, 200.0]], [[0.0, 0.5], [3.5, 0.99], [2_000.0, 1.0]]
    written = write(
        report(
            **{
                "lateness": shares,
                "lateness: p50 (ms) over time (s)": course,
                "lateness: p99 (ms) over time (s)": course,
                "throughput over time": course,
                "cost (CPU s per 1,000) over jobs": [[1e5, 0.2], [1e7, 0.21]],
            }
        ),
        tmp_path / "plots",
    )
    assert [path.name for path in written] == [
        "soak-lateness.png",
        "soak-lateness-over-time.png",
        "soak-throughput-over-time.png",
        "soak-cost-over-jobs.png",
    ]
    for path in written:
        pixels = imread(path)
        assert pixels.shape[0] > 400
        assert pixels.min() < pixels.max()


def test_lines_that_differ_are_drawn_differently(tmp_path: Path) -> None:
    (rising,) = write(
        report(**{"size over time": [[0.0, 1.0], [1.0, 9.0]], "nothing over time": []}), tmp_path / "a"
    )
    (level,) = write(report(**{"size over time": [[0.0, 1.0], [1.0, 1.0]]}), tmp_path / "b")
    assert rising.read_bytes() != level.read_bytes()


@pytest.mark.parametrize("points", [[[0.0, 0.0]], [[0.0, -3.0], [1.0, 4.0]], [[0.0, 0.0], [1.0, 1e6]]])
def test_points_that_a_logarithmic_axis_cannot_show_are_drawn_all_the_same(
    points: list[list[float]], tmp_path: Path
) -> None:
    for name in ("lateness over time", "cost over jobs"):
        (path,) = write(report(**{name: points}), tmp_path)
        assert path.exists()


def test_a_row_without_series_has_no_plot(tmp_path: Path) -> None:
    assert write(report(), tmp_path) == []


def test_without_matplotlib_one_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "cronwell.bench.plots")
    with pytest.raises(Failure, match="pip install 'matplotlib") as failure:
        _drawing_into(tmp_path)
    assert failure.value.code == ExitCode.USAGE
