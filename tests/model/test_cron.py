"""The cron dialect: what is understood, and what is refused at which column."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import given, settings
from hypothesis import strategies as st

from cronwell import errors
from cronwell.model import cron
from cronwell.model.cronfields import LAST, MonthEnd, NearestWeekday, NthWeekday, Span, Term
from cronwell.model.kinds import CronTimes
from tests.model import expressions

NOW = datetime(2027, 1, 1, 12, 34, 56, 789, tzinfo=UTC)

# The expression, the column to blame, and a part of the message.
BAD = [
    ("", 1, "empty"),
    ("   ", 1, "empty"),
    ("0", 2, "only one field"),
    ("0 3 * *", 8, "only 4 fields"),
    ("0 0 3 * * * 2027 1", 18, "8 fields"),
    ("0 0 3 * * * 1969", 13, "'1969' is not a year"),
    ("0 0 3 * * * 2101", 13, "'2101' is not a year"),
    ("0 0 3 * * * 2030-2027", 13, "runs backwards"),
    ("0 0 3 * * * H", 13, "H does not go into the year field"),
    ("60 3 * * *", 1, "'60' is not a minute"),
    ("0 24 * * *", 3, "'24' is not an hour"),
    ("0 3 0 * *", 5, "'0' is not a day of month"),
    ("0 3 32 * *", 5, "'32' is not a day of month"),
    ("0 3 * 13 *", 7, "'13' is not a month"),
    ("0 3 * * 8", 9, "'8' is not a day of week"),
    ("0 3 * * MOO", 9, "did you mean MON"),
    ("0 3 * * MON,TUX", 13, "did you mean TUE"),
    ("0 3 * JANUARY *", 7, "did you mean JAN"),
    ("61 0 3 * * *", 1, "'61' is not a second"),
    ("0 0,15,75 3 * * *", 8, "'75' is not a minute"),
    ("0 5-99 * * *", 5, "'99' is not an hour"),
    ("0 3 * * -5", 9, "a day of week is missing"),
    ("5- 3 * * *", 3, "a minute is missing"),
    ("*/0 3 * * *", 3, "the step '0'"),
    ("*/ 3 * * *", 3, "the step ''"),
    ("*/x 3 * * *", 3, "the step 'X'"),
    ("1/2/3 3 * * *", 3, "the step '2/3'"),
    ("0,,5 3 * * *", 3, "empty"),
    (",0 3 * * *", 1, "empty"),
    ("0, 3 * * *", 3, "empty"),
    ("0 3 L-31 * *", 5, "L-1 to L-30"),
    ("0 3 L-x * *", 5, "L-1 to L-30"),
    ("0 3 32W * *", 5, "'32' is not a day of month"),
    ("0 3 W * *", 5, "is not a day of month"),
    ("0 3 1-5W * *", 5, "is not a day of month"),
    ("0 3 * * 3W", 9, "is not a day of week"),
    ("0 3 L/2 * *", 5, "is not a day before the month's end"),
    ("H(0-29 3 * * *", 1, "is not H"),
    ("H(40-20) 3 * * *", 3, "runs backwards"),
    ("H(0-99) 3 * * *", 5, "'99' is not a minute"),
    ("H/0 3 * * *", 3, "the step '0'"),
    ("Hx 3 * * *", 1, "is not H"),
    ("5,H-3 3 * * *", 3, "is not H"),
    ("0 3 * * L", 9, "is not a day of week"),
    ("0 3 * * MON#6", 13, "#1 to #5"),
    ("0 3 * * MON#", 13, "#1 to #5"),
    ("0 3 * * #2", 9, "a day of week is missing"),
    ("L 3 * * *", 1, "is not a minute"),
    ("? 3 * * *", 1, "'?' is not a minute"),
    ("0 3 * * 1.5", 9, "is not a day of week"),
    ("+5 3 * * *", 1, "is not a minute"),
    ("٣ 3 * * *", 1, "is not a minute"),
    ("0 3 * * FR\N{LATIN SMALL LETTER DOTLESS I}", 9, "is not a day of week"),
    ("0\x00 3 * * *", 1, "is not a minute"),
    ("  0   3 *  *  BAD", 15, "'BAD' is not a day of week"),
    ("@fortnightly", 1, "no alias '@fortnightly'"),
    ("@dayly", 1, "did you mean @daily"),
    ("@reboot", 1, "no alias"),
    ("@daily 5", 9, "only 2 fields"),
    ("TZ=UTC 0 3 * * *", 1, "put its name into `timezone`"),
    ("CRON_TZ=UTC 0 3 * * *", 1, "put its name into `timezone`"),
    ("every15m", 9, "only one field"),
]


@pytest.mark.parametrize(("text", "column", "message"), BAD)
def test_bad_expressions_are_refused_at_their_column_with_what_is_accepted(
    text: str, column: int, message: str
) -> None:
    with pytest.raises(errors.Invalid) as caught:
        cron.parse(text)
    (problem,) = caught.value.problems
    assert message in problem.message
    assert problem.column == column
    assert problem.accepted


def test_an_expression_of_more_than_1000_characters_is_refused() -> None:
    fits = "0," * 495 + "0 3 * * *"
    assert cron.parse(fits).minutes.values == [0]
    with pytest.raises(errors.Invalid, match="at most 1000 characters"):
        cron.parse(fits + " " * 10)


@pytest.mark.parametrize(
    ("text", "field", "terms"),
    [
        ("* * * * *", "minutes", (Span(0, 59, 1, True),)),
        ("*/15 * * * *", "minutes", (Span(0, 59, 15, True),)),
        ("5/15 * * * *", "minutes", (Span(5, 59, 15),)),
        ("5-10,20-40/10,50 * * * *", "minutes", (Span(5, 10), Span(20, 40, 10), Span(50, 50))),
        ("0 0 ? * MON", "days", (Span(1, 31, 1, True),)),
        ("0 0 L,LW,5 * *", "days", (MonthEnd(False), MonthEnd(True), Span(5, 5))),
        ("0 0 * jan-Mar,12 *", "months", (Span(1, 3), Span(12, 12))),
        ("0 0 * * mon-fri", "weekdays", (Span(1, 5),)),
        ("0 0 * * FRI-SUN", "weekdays", (Span(5, 7),)),
        ("0 0 * * SUN-SUN", "weekdays", (Span(0, 0),)),
        ("0 0 * * 5L,SATL,1#3,SUN#5", "weekdays", (NthWeekday(5, LAST), NthWeekday(6, LAST), NthWeekday(1, 3), NthWeekday(0, 5))),
        ("30 */5 * * * *", "seconds", (Span(30, 30),)),
        ("0 0 L-3,15W,L-1W * *", "days", (MonthEnd(False, 3), NearestWeekday(15), MonthEnd(True, 1))),
        ("0 0 3 * * * 2027,2030/2", "years", (Span(2027, 2027), Span(2030, 2100, 2))),
    ],
)  # fmt: skip
def test_terms_mean_what_they_say(text: str, field: str, terms: tuple[Term, ...]) -> None:
    assert getattr(cron.parse(text), field).terms == terms


@pytest.mark.parametrize(
    ("text", "field", "values"),
    [
        ("0 22-2 * * *", "hours", [0, 1, 2, 22, 23]),
        ("50-10/10 * * * *", "minutes", [0, 10, 50]),
        ("55-9/6 * * * *", "minutes", [1, 7, 55]),
        ("0 0 28-2 * *", "days", [1, 2, 28, 29, 30, 31]),
        ("0 0 * NOV-FEB *", "months", [1, 2, 11, 12]),
        ("0 0 * * FRI-MON", "weekdays", [0, 1, 5, 6]),
        ("0 0 * * 7-2", "weekdays", [0, 1, 2]),
        ("0 0 * * SAT-TUE/2", "weekdays", [1, 6]),
    ],
)
def test_a_range_that_runs_backwards_goes_round_the_end(text: str, field: str, values: list[int]) -> None:
    assert getattr(cron.parse(text), field).values == values


@pytest.mark.parametrize(
    ("text", "field", "allowed", "count"),
    [
        ("H * * * *", "minutes", range(60), 1),
        ("0 H(9-17) * * *", "hours", range(9, 18), 1),
        ("H/15 * * * *", "minutes", range(60), 4),
        ("H(0-29)/10 * * * *", "minutes", range(30), 3),
        ("0 0 H * *", "days", range(1, 29), 1),
        ("0 0 * H *", "months", range(1, 13), 1),
        ("0 0 * * H", "weekdays", range(7), 1),
        ("H H H * * *", "seconds", range(60), 1),
    ],
)
def test_h_is_a_place_by_the_seed_and_seeds_are_spread_over_all_places(
    text: str, field: str, allowed: range, count: int
) -> None:
    seen: set[int] = set()
    for number in range(600):
        read = cron.parse(text, seed=f"job-{number}")
        values = getattr(read, field).values
        assert len(values) == count
        seen |= set(values)
        assert cron.parse(read.text) == read, "what is kept has numbers in the place of H"
    assert seen == set(allowed)


def test_h_is_the_same_in_every_process_and_release() -> None:
    assert cron.parse("H H(0-5) * * *", seed="daily-invoices").text == "18 1 * * *"
    assert cron.parse("H H * * *", seed="a").text != cron.parse("H H * * *", seed="b").text


def test_a_name_with_an_h_in_it_is_no_hash() -> None:
    assert not cron.has_hash("0 3 * MAR THU")
    assert cron.has_hash("0 3 * * THU,h")


@pytest.mark.parametrize(("alias", "expression"), cron.ALIASES.items())
def test_an_alias_is_its_expression(alias: str, expression: str) -> None:
    assert cron.parse(f" {alias.upper()} ") == cron.parse(expression)


def test_white_space_is_normalised_and_the_rest_is_kept_to_the_letter() -> None:
    assert cron.parse("  0\t3  * *   mOn ").text == "0 3 * * mOn"


@pytest.mark.parametrize(
    ("text", "is_fixed"),
    [
        ("0 3 * * *", True),
        ("0 1-5/2 * * *", True),
        ("*/5 3 * * *", False),
        ("0 */2 * * *", False),
        ("0 0 3 * * *", False),
    ],
)
def test_only_five_fields_without_a_starred_time_are_fixed_times(text: str, is_fixed: bool) -> None:
    assert cron.parse(text).has_fixed_times is is_fixed


@given(expressions.expressions)
@settings(max_examples=300, deadline=None)
def test_what_cronsim_reads_is_read_the_same(text: str) -> None:
    try:
        reference = CronSim(text, NOW)
    except CronSimError:
        return  # it refuses some days that never come; those are for `schedule.parse` to refuse
    read = cron.parse(text)
    assert set(read.seconds.values) == reference.seconds
    assert set(read.minutes.values) == reference.minutes
    assert set(read.hours.values) == reference.hours
    assert set(read.months.values) == reference.months
    assert set(read.days.values) == {day for day in reference.days if day > 0}
    assert read.needs_both_days == reference.day_and


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused_at_a_column_within_it(text: str) -> None:
    check_fuzzed(text)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_expressions_are_read_like_cronsim_or_refused_in_bounded_time(seed: int) -> None:
    chance = random.Random(seed)
    stock = [text for text, _, _ in BAD] + [
        "0 3 * * *", "*/15 9-17 * * MON-FRI", "0 0 L,LW,15 */2 5L,MON#2", "5/7 1-20/3 1,2,3 JAN-DEC SUN", "@hourly", "*/1 * * * * *"
    ]  # fmt: skip
    begun = time.process_time()
    for _ in range(150):
        check_fuzzed(mutate(chance.choice(stock), chance))
    assert (time.process_time() - begun) / 150 < 0.02


def mutate(text: str, chance: random.Random) -> str:
    letters = list(text)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(letters))
        piece = chance.choice(
            [*"0123456789*/,-#?LWH @", "MON", "60", "99999999999999999999", "\0", "é", "L/2", "* "]
        )
        letters[at : at + chance.randint(0, 2)] = piece * chance.choice([1, 1, 1, 50])
    return "".join(letters)


def check_fuzzed(text: str) -> None:
    try:
        read = cron.parse(text)
    except errors.Invalid as error:
        (problem,) = error.problems
        assert problem.column is None or 1 <= problem.column <= len(text) + 1
        assert len(str(problem)) < 400
        return
    found = CronTimes.of(read, "UTC").next_after(NOW)
    assert found is None or found > NOW
    if (expected := cronsim_says(read.text)) is not None:
        assert found == expected


def cronsim_says(text: str) -> datetime | None:
    """Ask cronsim, where it has an opinion that counts."""
    try:
        return next(CronSim(text, NOW), None)
    except (CronSimError, ValueError):
        return None
