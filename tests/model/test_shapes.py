"""A definition whose shape is known is judged as any other, and told so in the same words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell import errors
from cronwell.config import Settings
from cronwell.control import shapes
from cronwell.control.definitions import Definition, judge
from cronwell.control.shapes import Shapes
from cronwell.model.job import PAYLOAD_DEPTH
from tests.support import rules

NOW = datetime(2026, 5, 5, 12, tzinfo=UTC)
SETTINGS = Settings()
MISSING = object()


def nested(depth: int) -> object:
    """A list in a list, so many times."""
    made: object = 1
    for _ in range(depth):
        made = [made]
    return made


NAMES = ["a", "billing/daily-1", "a\n", "", "-a", "ä", "n" * 200, "n" * 201, 7, None, MISSING]
PAYLOADS = [
    MISSING,
    None,
    1,
    {"account": 7, "range": "yesterday"},
    {"key": {"secret": "mail"}},
    {"secret": "no name"},
    [float("inf")],
    {"a\0": 1},
    ["\0"],
    {"a": None, "b": [None, {"c": "\\u0000"}]},
    {"a": None, "b": float("nan")},
    {"secret": None, "key": {"secret": 7}},
    2**64,
    nested(PAYLOAD_DEPTH - 1),
    nested(PAYLOAD_DEPTH),
    nested(PAYLOAD_DEPTH + 1),
    "x" * (SETTINGS.limits.payload + 1),
]
TAGS = [
    MISSING,
    {},
    {"team": "billing"},
    {"-team": "billing"},
    {"team\n": "billing"},
    {"team": "x" * 256},
    {"team": "x" * 257},
    {"team": 7},
    {f"t{number}": "" for number in range(33)},
    [],
    None,
]
SCHEDULES = [
    MISSING,
    None,
    "0 3 * * *",
    "5 3 * * MON",
    "H 3 * * *",
    "in 5m",
    "every 1h",
    "at 2027-01-01T10:00:00Z",
    "at 2020-01-01T10:00:00Z",
    "0 0 30 2 *",
    "0 0 0 1 1 * 2020",
    "never",
    "x" * 1001,
    "x" * 100_001,
    {"cron": "0 3 * * *", "timezone": "Europe/Berlin"},
    {"cron": "0 3 * * *", "until": "2026-05-05T13:00:00Z"},
    {"cron": "0 3 * * *", "max_runs": 2},
    {"cron": "0 3 * * *", "exclude": "holidays"},
    7,
]
RESTS: list[dict[str, Any]] = [
    {},
    {"timezone": "Europe/Berlin"},
    {"timezone": "Europe/Nowhere"},
    {"window": "10m", "priority": "high"},
    {"after": ["other"]},
    {"overlap": "allow", "max_running": 2},
    {"pool": "big", "retry": {"max_attempts": 2}, "group": {"key": "db"}, "description": "x"},
    {"colour": "red"},
]
TARGETS = [
    "https://example.com/run",
    {"http": {"url": "https://example.com/run", "headers": {"X-Key": {"secret": "mail"}}}},
    {"handler": {"name": "count"}},
    {"shell": {"command": "true"}},
    {"email": {"to": ["a@example.com"]}},
    {"publish": {"redis": {"stream": "s"}, "broker": "main"}},
    "nowhere",
]

OWN: dict[str, list[Any]] = {"name": NAMES, "payload": PAYLOADS, "tags": TAGS, "schedule": SCHEDULES}
PLAIN = {"name": "plain", "payload": {"account": 1}, "tags": {"team": "billing"}, "schedule": "0 3 * * *"}


def outcome(judged: Callable[[], Definition]) -> tuple[Any, ...]:
    """What is found of a definition, or what is said of it."""
    try:
        found = judged()
    except errors.UserError as error:
        return type(error), str(error), getattr(error, "problems", None)
    plan = None if found.plan is None else (found.plan, found.plan.canonical())
    spec = found.spec
    shown = (spec, spec.model_dump(), spec.model_dump_json(), spec.model_copy(), hash(spec.target.kind))
    return found.raw, shown, found.text, found.tags, plan, found.named


def check(known: Shapes, raw: dict[str, Any], now: datetime = NOW) -> None:
    """Judged by a shape that is known, wherever it is a good one, a definition fares as it does by itself."""
    raw = {key: each for key, each in raw.items() if each is not MISSING}
    assert outcome(lambda: known.judge(raw, now=now)) == outcome(
        lambda: judge(raw, now=now, settings=SETTINGS)
    )


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("field", OWN)
def test_a_known_shape_changes_nothing_of_what_is_found_or_said(field: str, target: object) -> None:
    for rest in RESTS:
        known = Shapes(SETTINGS)
        check(known, {"target": target, **rest, **PLAIN})
        check(known, {"target": target, **rest, **PLAIN, "schedule": MISSING})
        for value in OWN[field]:
            check(known, {"target": target, **rest, **PLAIN, field: value})


@given(st.lists(st.fixed_dictionaries({key: st.sampled_from(each) for key, each in OWN.items()}), max_size=6))
def test_whatever_came_before_changes_nothing(owns: list[dict[str, Any]]) -> None:
    known = Shapes(SETTINGS)
    for place, parts in enumerate(owns):
        check(known, {"target": TARGETS[0], **parts}, NOW + timedelta(minutes=place))


def test_the_secrets_of_the_first_job_s_payload_are_not_those_of_the_next() -> None:
    known = Shapes(SETTINGS)
    for payload in PAYLOADS[4], PAYLOADS[3], PAYLOADS[4]:
        check(known, {**PLAIN, "target": TARGETS[1], "payload": payload})


def test_a_schedule_that_means_something_else_by_now_is_planned_anew() -> None:
    known = Shapes(SETTINGS)
    raw = {**PLAIN, "target": TARGETS[0], "schedule": {"cron": "0 3 * * *", "until": "2026-05-07T00:00:00Z"}}
    check(known, raw)
    check(known, raw)
    check(known, raw, datetime(2026, 5, 8, tzinfo=UTC))
    text = {**PLAIN, "target": TARGETS[0]}
    check(known, text)
    first = known.judge(text, now=NOW).plan
    rules.forget()
    again = known.judge(text, now=NOW).plan
    assert first is not None
    assert again is not None
    assert again.schedule is not first.schedule, "which may hold on to the rules of zones as they were"


def test_jobs_that_differ_in_their_own_parts_are_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []

    def counted(raw: Any, **rest: Any) -> Definition:
        judged.append(raw["name"])
        return judge(raw, **rest)

    monkeypatch.setattr(shapes, "judge", counted)
    known = Shapes(SETTINGS)
    for number in range(100):
        raw = {
            "name": f"job-{number}",
            "schedule": f"{number % 60} 3 * * *",
            "target": "https://example.com/run",
            "payload": {"account": number},
            "tags": {"team": f"team-{number}"},
        }
        found = known.judge(raw, now=NOW)
        assert (found.spec.name, found.spec.payload, found.spec.tags) == (
            raw["name"],
            raw["payload"],
            raw["tags"],
        )
        assert found.plan is not None
        assert found.plan.schedule.next_after(NOW) == datetime(2026, 5, 6, 3, number % 60, tzinfo=UTC)
    assert judged == ["job-0"]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MOST_SHAPES", 4)
    monkeypatch.setattr(shapes, "MOST_PLANS", 8)
    monkeypatch.setattr(shapes, "LONGEST_SHAPE", 200)
    known = Shapes(SETTINGS)

    def add(number: int, minute: int, description: str = "") -> None:
        target = f"https://example.com/{number}"
        schedule = f"{minute % 60} {minute // 60} * * *"
        known.judge(
            {"name": "a", "schedule": schedule, "target": target, "description": description}, now=NOW
        )
        assert len(known._known) <= 4
        assert all(len(key) <= 200 for key in known._known)
        assert sum(len(shape.plans) for shape in known._known.values()) <= 8

    for number in range(50):
        for minute in range(5):
            add(number, minute)
        add(number, 0, "x" * 200)
    for minute in range(100):
        add(0, minute)
    assert known._known


def test_what_is_remembered_of_a_shape_holds_no_payload_tags_or_schedule() -> None:
    payload, tags, schedule = {"a": [1]}, {"team": "a"}, {"cron": "0 3 * * *"}
    own = (payload, tags, schedule)
    before = [sys.getrefcount(each) for each in own]
    kept = Shapes(SETTINGS)
    for name in ("first", "second"):
        rest = {"name": name, "target": "https://example.com/"}
        kept.judge({**rest, "payload": payload, "tags": tags, "schedule": schedule}, now=NOW)
    assert [sys.getrefcount(each) for each in own] == before
