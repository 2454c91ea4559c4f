"""Whatever a user writes for a schedule is read, or refused with a field and a reason, soon."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest

from cronwell import errors
from cronwell.model import calendars, schedule
from cronwell.model.describe import clock_changes, describe, warnings
from cronwell.model.schedule import Schedule, load, slots

NOW = datetime(2027, 1, 1, 12, 34, 56, 789, tzinfo=UTC)
CALENDARS = {"closed": calendars.parse({"rrules": ["FREQ=WEEKLY;BYDAY=SA,SU"], "dates": ["2027-01-06"]})}
LETTERS = "0123456789" * 4 + "*/,-#?@LWH() MONSUFRIJAD\t\x00é٣%;=:."
TEXTS = [
    "0 3 * * *", "*/15 9-17 * * MON-FRI", "0 0 L,LW,15W,L-3 */2 5L,MON#2", "H(0-29)/10 H * * FRI-MON", "@hourly", "5/7 1-20/3 1,2,3 JAN-DEC SUN",
    "0 0 0 1 1 ? 2027-2099/3", "*/1 * * * * *", "every 15m", "every 5m after finish", "in 5m", "at 2027-05-05T10:00:00Z", "0 0 30 2 *",
]  # fmt: skip
OBJECTS: list[dict[str, Any]] = [
    {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "dst": {"gap": "shift", "fold": "both"}},
    {"any": ["0 3 * * *", {"every": "7h", "anchor": "2027-01-01T00:00:00Z"}], "except": ["0 3 1 * *"]},
    {"rrule": "FREQ=MONTHLY;BYDAY=1MO,-1FR;BYHOUR=9,17;BYMINUTE=30", "timezone": "America/New_York"},
    {"rrule": "FREQ=YEARLY;INTERVAL=3;BYYEARDAY=1,-1;BYSETPOS=1", "anchor": "2027-01-01T00:00:00Z"},
    {"cron": "0 9 * * *", "exclude": ["closed"], "shift": "next", "timezone": "Pacific/Apia"},
    {"cron": "* * * * * *", "only": "closed", "window": "10%", "max_runs": 7},
    {"at": ["2027-05-05T10:00:00Z", "2028-02-29T00:00:00+05:45"], "start": "2027-01-02T00:00:00Z"},
    {
        "every": "90m",
        "anchor": "2027-01-01T00:00:00",
        "timezone": "Australia/Lord_Howe",
        "end": "2030-01-01T00:00",
    },
]
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1e308,
    10**30,
    "",
    "x" * 2000,
    [],
    {},
    [[]],
    ["0 3 * * *"] * 60,
    "../../etc/passwd",
    "100%",
    "101%",
    "1000y",
]


def mutated(text: str, chance: random.Random) -> str:
    letters = list(text)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        place = chance.randrange(len(letters) + 1)
        act = chance.randrange(3)
        if act == 0:
            letters.insert(place, chance.choice(LETTERS))
        elif letters and act == 1:
            del letters[place % len(letters)]
        elif letters:
            letters[place % len(letters)] = chance.choice(LETTERS)
    return "".join(letters)


def bent(raw: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The same object with one of its values mutated, replaced or misplaced."""
    made = dict(raw)
    key = chance.choice(list(made))
    if isinstance(made[key], str) and chance.random() < 0.6:
        made[key] = mutated(made[key], chance)
    elif chance.random() < 0.7:
        made[key] = chance.choice(VALUES)
    else:
        made[chance.choice(["cron", "every", "any", "dst", "shift", "window", "tz"])] = chance.choice(VALUES)
    return made


def read_or_refused(raw: Any) -> Schedule | errors.Invalid:
    try:
        return schedule.parse(raw, timezone=None, window=None, now=NOW, seed="fuzz", calendars=CALENDARS)
    except errors.Invalid as error:
        return error


def checked(raw: Any) -> bool:
    """Whether it was read as a schedule; whichever it was, it says enough of itself."""
    read = read_or_refused(raw)
    if isinstance(read, errors.Invalid):
        assert read.problems, raw
        assert all(problem.field and problem.message for problem in read.problems), raw
        return False
    describe(read)
    warnings(read, NOW)
    clock_changes(read, NOW)
    found = slots(read, NOW, None, 5)
    assert found == sorted(set(found))
    assert slots(load(read.canonical()), NOW, None, 5) == found, raw
    return True


def timed(raw: Any) -> tuple[bool, float]:
    """With its processor time; a process of many tests may stop for its garbage in the midst of one of three, but not of all."""
    is_read, least = False, inf
    for _ in range(3):
        begun = time.process_time()
        is_read = checked(raw)
        if (least := min(least, time.process_time() - begun)) < 0.1:
            break
    return is_read, least


@pytest.mark.parametrize("seed", range(4))
def test_ten_thousand_mutations_are_read_or_refused_in_bounded_time(seed: int) -> None:
    chance = random.Random(seed)
    accepted = 0
    slowest = 0.0
    for _ in range(2500):
        raw: Any = (
            mutated(chance.choice(TEXTS), chance)
            if chance.random() < 0.6
            else bent(chance.choice(OBJECTS), chance)
        )
        is_read, took = timed(raw)
        accepted += is_read
        slowest = max(slowest, took)
    assert accepted > 100
    assert slowest < 0.5, "of processor time; a few milliseconds where the machine is quiet"


@pytest.mark.parametrize(
    "zone",
    [
        "../../etc/passwd",
        "/etc/localtime",
        "Europe/../UTC",
        "UTC\x00",
        "",
        "posixrules",
        "Factory",
        "x" * 10_000,
    ],
)
def test_a_zone_that_is_none_is_never_a_path(zone: str) -> None:
    with pytest.raises(errors.Invalid, match=r"timezone"):
        schedule.parse({"cron": "0 3 * * *", "timezone": zone}, timezone=None, window=None, now=NOW)
