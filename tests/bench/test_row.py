"""A row's plan, its targets, its cost, and how the table tells them."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from rich.console import Console

from cronwell import errors
from cronwell.bench.cost import Cost, Reading
from cronwell.bench.row import Check, Row
from cronwell.bench.rows import MAY_BE_NOTHING, ROWS, changed
from cronwell.bench.rows.soak import QUICK, Plan
from cronwell.bench.table import table_of

FACTS = {"version": "1.2.3", "commit": None, "machine": "a machine"}


@pytest.mark.parametrize("name", ROWS)
def test_every_row_has_a_plan_and_a_quick_one_that_asks_for_no_more(name: str) -> None:
    module: Any = importlib.import_module(f"cronwell.bench.rows.{name}")
    full = module.Plan()
    assert type(module.QUICK) is module.Plan
    assert full != module.QUICK
    for field in module.Plan.__dataclass_fields__:
        assert getattr(module.QUICK, field) <= getattr(full, field)


def test_single_fields_of_a_plan_are_changed() -> None:
    assert changed(Plan(), {"rate": "7", "sample_seconds": "0.25"}) == Plan(rate=7, sample_seconds=0.25)
    assert changed(QUICK, {}) is not None
    assert changed(QUICK, {"rate": "7"}).seconds == QUICK.seconds


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rat": "7"}, r"no field 'rat' in this plan; there are rate, seconds, "),
        ({"rate": "fast"}, "rate must be a whole number, not 'fast'"),
        ({"rate": "1.5"}, "rate must be a whole number, not '1.5'"),
        ({"rate": "-1"}, "rate must be 1 or more, and not '-1'"),
        ({"sample_seconds": "often"}, "sample_seconds must be a number, not 'often'"),
        ({"sample_seconds": "0"}, "sample_seconds must be more than 0, and not '0'"),
        ({"sample_seconds": "nan"}, "sample_seconds must be more than 0, and not 'nan'"),
        ({"sample_seconds": "inf"}, "sample_seconds must be more than 0, and not 'inf'"),
    ],
)
def test_a_change_that_a_plan_cannot_take_is_refused(changes: dict[str, str], told: str) -> None:
    with pytest.raises(errors.ConfigError, match=told):
        changed(Plan(), changes)


@pytest.mark.parametrize("name", ROWS)
def test_a_plan_takes_nothing_only_where_that_means_something(name: str) -> None:
    plan = importlib.import_module(f"cronwell.bench.rows.{name}").Plan()
    for field in plan.__dataclass_fields__:
        if field in MAY_BE_NOTHING:
            assert getattr(changed(plan, {field: "0"}), field) == 0
            with pytest.raises(errors.ConfigError, match=f"{field} must be 0 or more, and not '-1'"):
                changed(plan, {field: "-1"})
        else:
            with pytest.raises(
                errors.ConfigError, match=f"{field} must be (1 or more|more than 0), and not '0'"
            ):
                changed(plan, {field: "0"})


def test_a_target_is_a_floor_or_a_ceiling_and_is_met_on_its_edge() -> None:
    assert Check("late", 5.0, 5.0).is_met
    assert not Check("late", 5.0, 5.1).is_met
    assert Check("rate", 5.0, 5.0, is_floor=True).is_met
    assert not Check("rate", 5.0, 4.9, is_floor=True).is_met


def test_a_row_is_met_when_each_of_its_targets_is() -> None:
    met, missed = Check("a", 1.0, 1.0), Check("b", 1.0, 2.0)
    assert Row("x", "X", [met, met]).is_met
    assert not Row("x", "X", [met, missed]).is_met
    assert [check["is_met"] for check in Row("x", "X", [met, missed]).as_dict()["checks"]] == [True, False]


def test_the_share_of_the_limit_needs_a_rate_and_a_limit() -> None:
    assert Row("x", "X", [], limit=200.0, per_second=50.0).ratio == 0.25
    assert Row("x", "X", [], limit=200.0).ratio is None
    assert Row("x", "X", [], per_second=50.0).ratio is None


def test_cost_is_what_the_meters_moved_by_for_each_thousand() -> None:
    before = Reading({"postgresql": 10.0, "worker": 1.0}, 5_000, 100)
    after = Reading({"postgresql": 16.0, "worker": 2.0, "scheduler": 0.5}, 25_000, 140)
    assert before.until(after, 4_000) == Cost(
        {"postgresql": 1.5, "worker": 0.25, "scheduler": 0.125}, wal_bytes=5_000, commits=10
    )


def test_cost_of_nothing_divides_by_nothing() -> None:
    reading = Reading({}, 0, 0)
    assert reading.until(reading, 0) == Cost({}, 0, 0)


def test_the_table_tells_each_target_with_what_was_measured_and_the_cost() -> None:
    row = Row(
        "x",
        "the row",
        [
            Check("p99", 50.0, 12.34, "ms"),
            Check("rate", 16_700, 9_000, "/s", is_floor=True),
            Check("share", 0.65, 0.7, is_floor=True),
        ],
        limit=20_000,
        per_second=9_000,
        cost=Cost({"postgresql": 0.1, "worker": 0.05}, 2048, 3.25),
        detail={"lateness_ms": {"p50": 1.0, "max": 2_500.0}},
    )
    lines = [" ".join(line.split()) for line in _printed(row).splitlines()]
    assert "Cronwell 1.2.3 (no commit) on a machine" in lines
    assert "p99 ≤ 50.0 ms 12.3 ms met" in lines
    assert "rate ≥ 16,700/s 9,000/s falls short" in lines
    assert "share ≥ 0.65 0.70 met" in lines
    assert "the row 9,000/s 20,000/s 0.45" in lines
    assert "late by (p50, max) 1.0, 2,500.0 ms" in lines
    assert "CPU s per 1,000 0.150" in lines
    assert "postgresql 0.100" in lines
    assert "worker 0.050" in lines
    assert "WAL, commits per 1,000 2 KiB, 3.2" in lines


def _printed(row: Row) -> str:
    console = Console(width=140)
    with console.capture() as capture:
        console.print(table_of([row], FACTS))
    return capture.get()
