"""Zone names, and what a wall clock does at a jump."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronwell import errors
from cronwell.model import zones

HOUR = timedelta(hours=1)
NEW_YORK = zones.find("America/New_York")
GAP = datetime(2027, 3, 14, 2, 30, tzinfo=NEW_YORK)
FOLD = datetime(2027, 11, 7, 1, 30, tzinfo=NEW_YORK)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../../etc/passwd",
        "America/../Europe/Berlin",
        "America/New_York/",
        "/usr/share/zoneinfo/UTC",
        "America\\New_York",
        "America",
        "localtime",
        "posixrules",
        "Factory",
        "posix/Europe/Berlin",
        "right/Europe/Berlin",
        "zone.tab",
        "tzdata.zi",
        "UTC\0",
        "\0",
        " UTC",
        "UTC ",
        "utc",
        "EUROPE/BERLIN",
        "Europe/Berlín",
        "+02:00",
        "UTC+2",
        "A" * 100_000,
    ],
)
def test_what_is_not_an_iana_name_to_the_letter_is_refused(name: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        zones.find(name, field="schedule.timezone")
    (problem,) = caught.value.problems
    assert problem.field == "schedule.timezone"
    assert problem.accepted
    assert len(str(problem)) < 400


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("america/new_york", "America/New_York"),
        ("New York", "America/New_York"),
        ("Berlin", "Europe/Berlin"),
        ("US/Berlin", "Europe/Berlin"),
        ("Amerika/Los_Angeles", "America/Los_Angeles"),
        ("Europe/Berln", "Europe/Berlin"),
        ("utc", "UTC"),
    ],
)
def test_an_unknown_zone_is_answered_with_the_nearest_known_ones(name: str, suggestion: str) -> None:
    with pytest.raises(errors.Invalid, match=rf"did you mean .*{suggestion}"):
        zones.find(name)


@given(st.text(max_size=80))
@settings(max_examples=100, deadline=None)
def test_any_text_is_a_zone_or_refused(name: str) -> None:
    if name not in zones.names():
        with pytest.raises(errors.Invalid):
            zones.find(name)


def test_every_listed_zone_can_be_loaded() -> None:
    moment = datetime(2027, 6, 1, tzinfo=UTC)
    assert len(zones.names()) > 500
    for name in zones.names():
        assert moment.astimezone(zones.find(name)) == moment


def test_a_time_is_missing_in_the_gap_and_repeated_in_the_fold_and_nowhere_else() -> None:
    assert zones.is_missing(GAP)
    assert not zones.is_repeated(GAP)
    assert zones.is_repeated(FOLD)
    assert zones.is_repeated(FOLD.replace(fold=1))
    assert not zones.is_missing(FOLD)
    for ordinary in (GAP - HOUR, GAP + HOUR, FOLD - HOUR, FOLD + HOUR):
        assert not zones.is_missing(ordinary)
        assert not zones.is_repeated(ordinary)


@pytest.mark.parametrize("minutes", [-30, 0, 29])
def test_the_jump_is_found_from_anywhere_in_a_gap_or_fold(minutes: int) -> None:
    shift = timedelta(minutes=minutes, microseconds=5)
    assert zones.jump(GAP + shift) == zones.Transition(
        datetime(2027, 3, 14, 7, tzinfo=UTC), -5 * HOUR, -4 * HOUR
    )
    for fold in (0, 1):
        wall = (FOLD + shift).replace(fold=fold)
        assert zones.jump(wall) == zones.Transition(
            datetime(2027, 11, 7, 6, tzinfo=UTC), -4 * HOUR, -5 * HOUR
        )


def test_transitions_are_listed_in_order_with_their_offsets() -> None:
    found = list(
        zones.transitions(NEW_YORK, datetime(2027, 1, 1, tzinfo=UTC), datetime(2029, 1, 1, tzinfo=UTC))
    )
    assert [f"{change.at:%Y-%m-%d %H:%M:%S.%f}" for change in found] == [
        "2027-03-14 07:00:00.000000",
        "2027-11-07 06:00:00.000000",
        "2028-03-12 07:00:00.000000",
        "2028-11-05 06:00:00.000000",
    ]
    assert [change.is_gap for change in found] == [True, False, True, False]
    assert all(earlier.after == later.before for earlier, later in pairwise(found))


def test_a_transition_at_the_start_is_left_out_and_at_the_end_is_listed() -> None:
    change = datetime(2027, 3, 14, 7, tzinfo=UTC)
    assert [found.at for found in zones.transitions(NEW_YORK, change - HOUR, change)] == [change]
    assert not list(zones.transitions(NEW_YORK, change, change + HOUR))


def test_utc_never_changes() -> None:
    assert not list(
        zones.transitions(UTC, datetime(2000, 1, 1, tzinfo=UTC), datetime(2001, 1, 1, tzinfo=UTC))
    )
