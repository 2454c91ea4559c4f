"""RFC 5545 rules: the same times as plain dateutil lists, in a bounded number of steps, and clear refusals."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta

import pytest
from dateutil import rrule as dateutil
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cronwell import errors
from cronwell.model import recurrence, yeardays, zones
from cronwell.model.recurrence import Recurrence, parse
from cronwell.model.rrule import Rule
from cronwell.model.yeardays import YearDays
from tests.model import rules


def face(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, microsecond: int = 0
) -> datetime:
    """Make a time on the clock's face, which has no zone."""
    return datetime(year, month, day, hour, minute, second, microsecond)  # noqa: DTZ001


START = face(2026, 1, 5, 9)  # a Monday
LAST = face(2100, 12, 31, 23, 59, 59)

# The rule, the column to blame, and a part of the message.
BAD = [
    ("", 1, "empty"),
    ("  ", 1, "empty"),
    ("RRULE:", 7, "empty"),
    ("FREQ=DAILY;", 12, "a part is empty"),
    ("FREQ=DAILY;;COUNT=2", 12, "a part is empty"),
    ("INTERVAL=2", None, "FREQ is missing"),
    ("FREQ", 5, "FREQ has no value"),
    ("FREQ=", 6, "FREQ has no value"),
    ("FREQ=DAYLY", 6, "did you mean DAILY"),
    ("FREQ=DAILY;FREQ=DAILY", 12, "FREQ is there twice"),
    ("FREQ=DAILY;BYDAYS=MO", 12, "did you mean BYDAY"),
    ("FREQ=YEARLY;BYEASTER=0", 13, "no part 'BYEASTER'"),
    ("FREQ=DAILY;INTERVAL=0", 21, "'0' is not what INTERVAL takes"),
    ("FREQ=DAILY;INTERVAL=-1", 21, "'-1' is not what INTERVAL takes"),
    ("FREQ=DAILY;INTERVAL=1000000000", 21, "not what INTERVAL takes"),
    ("FREQ=YEARLY;INTERVAL=101", 22, "not what INTERVAL takes"),
    ("FREQ=DAILY;COUNT=10001", 18, "not what COUNT takes"),
    ("FREQ=DAILY;COUNT=" + "9" * 500, 18, "not what COUNT takes"),
    ("FREQ=DAILY;UNTIL=20271231T235959Z", 12, 'the schedule\'s `end`: "2027-12-31T23:59:59Z"'),
    ("FREQ=DAILY;UNTIL=20271231", 12, 'the schedule\'s `end`: "2027-12-31T23:59:59"'),
    ("FREQ=DAILY;UNTIL=soon", 12, "the schedule's `end`"),
    ("DTSTART:20260101T090000\nRRULE:FREQ=DAILY", 1, "the schedule's `anchor`"),
    ("RRULE:FREQ=DAILY\nDTSTART;TZID=Europe/Berlin:20260101T090000", 18, "the schedule's `anchor`"),
    ("RRULE:FREQ=DAILY\nEXDATE:20260101T090000", 18, "EXDATE is not read here"),
    ("FREQ=DAILY\nFREQ=WEEKLY", 11, "a rule is one line"),
    ("FREQ=DAILY;BYMONTH=13", 20, "'13' is not a number that BYMONTH takes"),
    ("FREQ=DAILY;BYMONTH=1,2,x", 24, "'X' is not a number that BYMONTH takes"),
    ("FREQ=DAILY;BYMONTH=-1", 20, "'-1' is not a number that BYMONTH takes"),
    ("FREQ=DAILY;BYMONTHDAY=0", 23, "'0' is not a number that BYMONTHDAY takes"),
    ("FREQ=DAILY;BYMONTHDAY=-32", 23, "'-32' is not a number that BYMONTHDAY takes"),
    ("FREQ=DAILY;BYHOUR=24", 19, "'24' is not a number that BYHOUR takes"),
    ("FREQ=DAILY;BYSECOND=60", 21, "'60' is not a number that BYSECOND takes"),
    ("FREQ=DAILY;BYHOUR=9,", 21, "'' is not a number that BYHOUR takes"),
    ("FREQ=WEEKLY;BYDAY=MO,XX", 22, "'XX' is not a weekday"),
    ("FREQ=WEEKLY;BYDAY=MON", 19, "did you mean MO"),
    ("FREQ=WEEKLY;BYDAY=1MO", 19, "counted within months and years only"),
    ("FREQ=MONTHLY;BYDAY=6MO", 20, "a month has no weekday number 6"),
    ("FREQ=MONTHLY;BYDAY=0MO", 20, "a month has no weekday number 0"),
    ("FREQ=YEARLY;BYMONTH=1;BYDAY=20MO", 29, "a month has no weekday number 20"),
    ("FREQ=YEARLY;BYDAY=54MO", 19, "a year has no weekday number 54"),
    ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=1MO", 31, "counted within months and years only"),
    ("FREQ=YEARLY;BYWEEKNO=20", 13, "add BYDAY"),
    ("FREQ=MONTHLY;BYWEEKNO=20;BYDAY=MO", 14, "no meaning with FREQ=MONTHLY"),
    ("FREQ=WEEKLY;BYMONTHDAY=1", 13, "no meaning with FREQ=WEEKLY"),
    ("FREQ=DAILY;BYYEARDAY=1", 12, "no meaning with FREQ=DAILY"),
    ("FREQ=MONTHLY;BYSETPOS=1", 14, "add one, such as BYDAY"),
    ("FREQ=HOURLY;BYDAY=MO", 13, "FREQ=HOURLY does not go with BYDAY"),
    ("FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30", 15, "FREQ=SECONDLY does not go with BYMONTH"),
    ("FREQ=MINUTELY;BYMINUTE=0;BYSETPOS=1", 26, "FREQ=MINUTELY does not go with BYSETPOS"),
    ("FREQ=SECONDLY;BYHOUR=9", None, "goes without other parts"),
    ("FREQ=MINUTELY;INTERVAL=7;BYHOUR=9", None, "an INTERVAL of 7"),
    ("FREQ=DAILY;WKST=XX", 17, "'XX' is not a weekday"),
    ("FREQ=DAILY;BYHOUR=٣", 19, "'٣' has no place"),
    ("\N{LATIN SMALL LETTER LONG S}ECONDLY", 1, "has no place"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "message"), BAD)
def test_bad_rules_are_refused_at_their_column_with_what_is_accepted(
    text: str, column: int | None, message: str
) -> None:
    with pytest.raises(errors.Invalid) as caught:
        parse(text, START)
    (problem,) = caught.value.problems
    assert message in problem.message
    assert problem.column == column
    assert problem.accepted


def test_a_rule_of_more_than_1000_characters_is_refused() -> None:
    with pytest.raises(errors.Invalid, match="at most 1000 characters"):
        parse("FREQ=DAILY;BYHOUR=" + "1," * 500 + "1", START)


def test_a_rule_with_more_times_of_day_than_a_day_has_minutes_is_refused() -> None:
    minutes, hours = ",".join(map(str, range(60))), ",".join(map(str, range(24)))
    every_minute = f"FREQ=DAILY;BYHOUR={hours};BYMINUTE={minutes};BYSECOND=0"
    assert next_after(every_minute, face(2027, 5, 5, 10, 7, 30)) == face(2027, 5, 5, 10, 8)
    with pytest.raises(errors.Invalid, match="2880 times of day, more than 1440"):
        parse(every_minute.replace("BYSECOND=0", "BYSECOND=0,30"), START)
    with pytest.raises(errors.Invalid, match="3600 times of day"):
        parse(f"FREQ=HOURLY;BYMINUTE={minutes};BYSECOND={minutes}", START)
    with pytest.raises(errors.Invalid, match="times of day"):
        parse(f"FREQ=MINUTELY;BYHOUR={hours};BYSECOND=0,1", START)


def test_positions_that_give_each_day_other_times_are_refused_beyond_four_sorts_of_days() -> None:
    text = "FREQ=MONTHLY;BYDAY=MO;BYHOUR=1,2,3,4,5;BYSETPOS="
    assert parse(f"{text}1,7,13,19", START).can_match
    with pytest.raises(errors.Invalid, match="BYSETPOS mixes too many"):
        parse(f"{text}1,7,13,19,25", START)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        (" rrule:freq=monthly;byhour=9;byday=+1mo ", "FREQ=MONTHLY;BYDAY=1MO;BYHOUR=9"),
        ("INTERVAL=1;FREQ=DAILY;WKST=MO", "FREQ=DAILY"),
        ("FREQ=WEEKLY;BYDAY=FR,MO,FR;WKST=SU;INTERVAL=02", "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR;WKST=SU"),
        ("COUNT=3;BYMONTHDAY=-1,15,1;FREQ=MONTHLY", "FREQ=MONTHLY;COUNT=3;BYMONTHDAY=1,15,-1"),
        ("FREQ=YEARLY;BYDAY=MO,-1FR,20TU", "FREQ=YEARLY;BYDAY=MO,20TU,-1FR"),
    ],
)
def test_the_text_is_the_same_for_the_same_rule(text: str, normal: str) -> None:
    assert parse(text, START).text == normal
    assert parse(normal, START) == parse(text, START)


# RFC 5545, section 3.8.5.3, with its own start of 1997-09-02 09:00 unless it has another.
RFC = [
    ("FREQ=DAILY;COUNT=10", "1997-09-02", ["09-02", "09-03", "09-04", "09-05", "09-06", "09-07", "09-08", "09-09", "09-10", "09-11"]),
    ("FREQ=DAILY;INTERVAL=10;COUNT=5", "1997-09-02", ["09-02", "09-12", "09-22", "10-02", "10-12"]),
    ("FREQ=WEEKLY;INTERVAL=2;COUNT=8;WKST=SU;BYDAY=TU,TH", "1997-09-02", ["09-02", "09-04", "09-16", "09-18", "09-30", "10-02", "10-14", "10-16"]),
    ("FREQ=MONTHLY;COUNT=10;BYDAY=1FR", "1997-09-05", ["09-05", "10-03", "11-07", "12-05"]),
    ("FREQ=MONTHLY;INTERVAL=2;COUNT=10;BYDAY=1SU,-1SU", "1997-09-07", ["09-07", "09-28", "11-02", "11-30"]),
    ("FREQ=MONTHLY;COUNT=6;BYDAY=-2MO", "1997-09-22", ["09-22", "10-20", "11-17", "12-22"]),
    ("FREQ=MONTHLY;BYMONTHDAY=-3", "1997-09-28", ["09-28", "10-29", "11-28", "12-29"]),
    ("FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3", "1997-09-04", ["09-04", "10-07", "11-06"]),
    ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2", "1997-09-29", ["09-29", "10-30", "11-27", "12-30"]),
    ("FREQ=MONTHLY;BYDAY=SA;BYMONTHDAY=7,8,9,10,11,12,13", "1997-09-13", ["09-13", "10-11", "11-08", "12-13"]),
    ("FREQ=YEARLY;BYDAY=20MO", "1997-05-19", ["05-19"]),
    ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "1997-05-12", ["05-12"]),
    ("FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO", "1997-08-05", ["08-05", "08-10", "08-19", "08-24"]),
    ("FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU", "1997-08-05", ["08-05", "08-17", "08-19", "08-31"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "start", "dates"), RFC)
def test_the_examples_of_rfc_5545_hold(text: str, start: str, dates: list[str]) -> None:
    begin = datetime.fromisoformat(f"{start}T09:00")
    wanted = [datetime.fromisoformat(f"1997-{date}T09:00") for date in dates]
    assert times(parse(text, begin), begin - timedelta(1), face(1997, 12, 31)) == wanted


def test_plain_and_counted_weekdays_in_one_rule_are_both_meant() -> None:
    rule = parse("FREQ=MONTHLY;BYMONTH=3;BYDAY=MO,1TU", START)
    assert [found.day for found in times(rule, face(2026, 3, 1), face(2026, 4, 1))] == [
        2,
        3,
        9,
        16,
        23,
        30,
    ]


def test_positions_in_a_week_are_counted_from_the_weeks_beginning_also_where_the_rule_starts_in_its_midst() -> (
    None
):
    rule = parse("FREQ=WEEKLY;BYDAY=MO,WE,FR;BYSETPOS=2", face(2026, 1, 8, 9))  # a Thursday
    assert next_face(rule, face(2026, 1, 1)) == face(2026, 1, 14, 9)


@settings(deadline=None, max_examples=120)
@given(rules.day_rules(), rules.starts, st.integers(0, 4000), st.integers(0, 86_400))
def test_a_rule_of_days_has_the_times_that_dateutil_lists(
    text: str, start: datetime, days: int, second: int
) -> None:
    rule = accepted(text, start)
    after = start + timedelta(days - 1, second)
    until = min(after + timedelta(days=900), LAST)
    assert times(rule, after, until) == rules.walk(text, start, after, until)


@pytest.mark.parametrize("week_start", rules.DAYS)
@pytest.mark.parametrize("number", [1, 20, 52, 53, -1, -52, -53])
def test_a_week_belongs_to_the_year_of_its_fourth_day_and_has_its_number(
    number: int, week_start: str
) -> None:
    weeks: dict[int, list[date]] = {}  # by year, the first day of each week
    week = date(1959, 12, 28) + timedelta(rules.DAYS.index(week_start))  # a Monday, and so on
    while week.year < 2110:
        weeks.setdefault((week + timedelta(3)).year, []).append(week)
        week += timedelta(7)
    chosen = [of[number - 1 if number > 0 else number] for of in weeks.values() if len(of) >= abs(number)]
    wanted = [
        day for week in chosen for day in (week + timedelta(n) for n in range(7)) if 1970 <= day.year <= 2100
    ]
    rule = parse(
        f"FREQ=YEARLY;BYWEEKNO={number};BYDAY=MO,TU,WE,TH,FR,SA,SU;WKST={week_start}", face(1970, 1, 1)
    )
    assert [found.date() for found in walk(rule, face(1969, 12, 31))] == wanted


def test_the_first_of_january_2011_is_in_week_52_of_2010() -> None:
    # dateutil says 53 (its pull request 1537); date.isocalendar() says 52.
    rule = parse("FREQ=YEARLY;BYWEEKNO=52;BYDAY=SA", face(2010, 12, 30))
    assert next_face(rule, face(2010, 12, 30)) == face(2011, 1, 1)


@pytest.mark.parametrize("week_start", rules.DAYS)
def test_positions_are_counted_through_weeks_of_two_years(week_start: str) -> None:
    text = f"FREQ=WEEKLY;BYDAY=MO,WE,FR,SU;BYSETPOS=2,-1;WKST={week_start}"
    begin, until = face(1999, 12, 1), face(2012, 2, 1)
    assert times(parse(text, begin), begin, until) == rules.walk(text, begin, begin, until)


@settings(deadline=None, max_examples=200)
@given(rules.beat_rules(), rules.starts, st.integers(-100_000, 100_000))
def test_a_rule_of_hours_minutes_or_seconds_has_the_times_that_dateutil_lists(
    text: str, start: datetime, seconds: int
) -> None:
    rule = accepted(text, start)
    after = start + timedelta(seconds=seconds)
    try:
        wanted = list(
            itertools.islice((found for found in dateutil.rrulestr(text, dtstart=start) if found > after), 40)
        )
    except ValueError:  # how dateutil says that nothing matches
        wanted = []
    assert list(itertools.islice(walk(rule, after), 40)) == wanted


@settings(deadline=None, max_examples=100)
@given(rules.day_rules(), rules.starts)
def test_count_leaves_as_many_times_as_it_says_before_the_horizon(text: str, start: datetime) -> None:
    assume("COUNT" not in text)
    endless, counted = accepted(text, start), accepted(f"{text};COUNT=50", start)
    first_50 = list(itertools.islice(walk(endless, start - timedelta(seconds=1)), 50))
    assert list(walk(counted, start - timedelta(seconds=1))) == first_50


@settings(deadline=None, max_examples=100)
@given(st.one_of(rules.day_rules(), rules.beat_rules()), rules.starts)
def test_the_normal_text_means_the_same_rule(text: str, start: datetime) -> None:
    rule = accepted(text, start)
    again = parse(rule.text, start)
    assert (again.text, again.rule) == (rule.text, rule.rule)


def test_the_answer_is_in_the_zone_of_the_question_and_in_the_first_pass() -> None:
    berlin = zones.find("Europe/Berlin")
    rule = parse("FREQ=DAILY;BYHOUR=2;BYMINUTE=30", START)
    second_pass = datetime(2026, 10, 25, 2, 10, 0, 5, tzinfo=berlin, fold=1)
    found = rule.next_after(second_pass)
    assert found == datetime(2026, 10, 25, 2, 30, tzinfo=berlin)
    assert found.tzinfo is berlin
    assert found.fold == 0


def test_a_match_is_strictly_later_than_the_question() -> None:
    assert next_after("FREQ=DAILY", face(2026, 1, 5, 8, 59, 59, 999_999)) == face(2026, 1, 5, 9)
    assert next_after("FREQ=DAILY", face(2026, 1, 5, 9)) == face(2026, 1, 6, 9)
    assert next_after("FREQ=DAILY", face(2026, 1, 5, 9, 0, 0, 1)) == face(2026, 1, 6, 9)


def test_nothing_comes_before_the_start_nor_after_the_horizon() -> None:
    assert next_after("FREQ=DAILY;BYHOUR=8", face(1980, 1, 1)) == face(2026, 1, 6, 8)
    assert next_after("FREQ=DAILY", face(2100, 12, 31, 9)) is None
    assert next_after("FREQ=HOURLY;INTERVAL=24", face(2100, 12, 31, 9)) is None
    assert next_after("FREQ=SECONDLY", face(2100, 12, 31, 23, 59, 59)) is None
    assert next_after("FREQ=YEARLY;COUNT=200", face(2099, 12, 31)) == face(2100, 1, 5, 9)
    assert next_after("FREQ=HOURLY;INTERVAL=876000;COUNT=10000", face(2027, 1, 1)) is None


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=MONTHLY;INTERVAL=12;BYMONTH=2",  # from a January
        "FREQ=YEARLY;INTERVAL=4;BYYEARDAY=366",  # from 2026
        "FREQ=DAILY;INTERVAL=14;BYDAY=TU,WE,TH,FR,SA,SU",  # from a Monday
        "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6",
        "FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=3,-3",
        "FREQ=DAILY;BYHOUR=1,2;BYSETPOS=3",
        "FREQ=MINUTELY;INTERVAL=120;BYHOUR=10",  # from 9 o'clock
    ],
)
def test_an_impossible_rule_is_known_for_it_by_looking_at_each_kind_of_year_once(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = count_questions(monkeypatch)
    assert not parse.__wrapped__(text, START).can_match
    # A week may lie in two years, so that for one year three are looked at.
    assert len(asked) <= 14 * (3 if "WEEKLY" in text else 1)


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO",
        "FREQ=YEARLY;BYWEEKNO=53;BYDAY=SU",
        "FREQ=DAILY;INTERVAL=36500",
        "FREQ=MONTHLY;BYDAY=MO,TU;BYHOUR=1,2,3,4;BYSETPOS=1,6,11,16",
        "FREQ=YEARLY;BYYEARDAY=366;BYHOUR=1,2,3;COUNT=10000",
    ],
)
def test_however_long_a_rule_is_used_it_asks_dateutil_once_for_each_kind_of_year(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = count_questions(monkeypatch)
    rule = parse.__wrapped__(text, face(1970, 1, 1))
    assert len(list(itertools.islice(walk(rule, face(1970, 1, 1)), 2000))) > 0
    assert rule.next_after(datetime(2100, 12, 31, 23, 59, 59, tzinfo=UTC)) is None
    assert len(asked) <= 28 * 4


def test_asking_far_from_the_start_takes_no_more_steps_than_near_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    years: list[int] = []
    of = YearDays.of

    def noting(days: YearDays, year: int) -> int:
        years.append(year)
        return of(days, year)

    monkeypatch.setattr(YearDays, "of", noting)
    rule = parse.__wrapped__("FREQ=DAILY;INTERVAL=2", face(1970, 1, 1))
    assert rule.next_after(datetime(2090, 6, 1, tzinfo=UTC)) is not None
    assert years == [2090]


def test_a_start_with_a_zone_or_a_fraction_is_no_start() -> None:
    for start in (datetime(2026, 1, 1, tzinfo=UTC), face(2026, 1, 1, 0, 0, 0, 1)):
        with pytest.raises(ValueError, match="without a zone, in whole seconds"):
            parse("FREQ=DAILY", start)


@pytest.mark.parametrize(
    ("freq", "is_fixed"), [("DAILY", True), ("YEARLY", True), ("HOURLY", False), ("SECONDLY", False)]
)
def test_times_are_fixed_from_a_day_on(freq: str, is_fixed: bool) -> None:
    assert parse(f"FREQ={freq}", START).has_fixed_times is is_fixed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FREQ=MONTHLY;BYDAY=1MO;BYHOUR=9", "Every month on the first Monday at 09:00"),
        ("FREQ=MONTHLY;BYDAY=-1FR", "Every month on the last Friday at 09:00"),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", "Every month on the last day at 09:00"),
        ("FREQ=MONTHLY;BYMONTHDAY=1,15", "Every month on the 1st and 15th at 09:00"),
        ("FREQ=MONTHLY", "Every month on the 5th at 09:00"),
        ("FREQ=MONTHLY;INTERVAL=3", "Every 3 months on the 5th at 09:00, starting 2026-01-05"),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "Every month on the last weekday (Monday to Friday) at 09:00"),
        ("FREQ=YEARLY", "Every year on the 5th of January at 09:00"),
        ("FREQ=YEARLY;BYMONTH=11;BYDAY=4TH", "Every year on the fourth Thursday of November at 09:00"),
        ("FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=31", "Every year on the 31st of December at 09:00"),
        ("FREQ=WEEKLY", "Every week on Monday at 09:00"),
        ("FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", "Every week on Monday to Friday at 09:00"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR;BYHOUR=6,18", "Every 2 weeks on Monday and Friday at 06:00 and 18:00, starting 2026-01-05"),
        ("FREQ=DAILY", "Every day at 09:00"),
        ("FREQ=DAILY;BYMONTH=6;BYSECOND=30", "Every day in June at 09:00:30"),
        ("FREQ=DAILY;COUNT=10", "Every day at 09:00, 10 times in all"),
        ("FREQ=HOURLY", "Every hour"),
        ("FREQ=HOURLY;BYMINUTE=0,30", "Every hour at minutes 0 and 30"),
        ("FREQ=HOURLY;INTERVAL=5", "Every 5 hours, starting 2026-01-05 09:00"),
        ("FREQ=MINUTELY;INTERVAL=20", "Every 20 minutes, starting 2026-01-05 09:00"),
        ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO"),
        ("FREQ=YEARLY;BYYEARDAY=-1", "FREQ=YEARLY;BYYEARDAY=-1"),
        ("FREQ=MINUTELY;INTERVAL=20;BYHOUR=9", "FREQ=MINUTELY;INTERVAL=20;BYHOUR=9"),
        ("FREQ=DAILY;BYHOUR=1,2,3,4,5,6,7", "FREQ=DAILY;BYHOUR=1,2,3,4,5,6,7"),
    ],
)  # fmt: skip
def test_common_rules_are_told_in_words_and_others_as_written(text: str, words: str) -> None:
    assert recurrence.in_words(parse(text, START)) == words


@settings(deadline=None, max_examples=200)
@given(st.one_of(rules.day_rules(), rules.beat_rules()), rules.starts)
def test_every_rule_can_be_told(text: str, start: datetime) -> None:
    words = recurrence.in_words(accepted(text, start))
    assert words.startswith(("Every ", "FREQ="))
    assert "None" not in words


@settings(deadline=None, max_examples=300)
@given(
    st.text(alphabet="FREQ=DAILYWKMOTUBHSP;,:+-0123456789 \nIN", max_size=60),
    rules.day_rules(),
    st.integers(0, 60),
)
def test_any_text_is_read_or_refused(noise: str, text: str, at: int) -> None:
    for candidate in (noise, text[:at] + noise[:3] + text[at:]):
        refusal = refused(candidate, START)
        assert refusal is None or refusal.problems[0].accepted


def refused(text: str, start: datetime) -> errors.Invalid | None:
    try:
        parse(text, start)
    except errors.Invalid as error:
        return error
    return None


def accepted(text: str, start: datetime) -> Recurrence:
    """Read a random rule; drop the example if it is of the one sort that is refused on purpose."""
    refusal = refused(text, start)
    assert refusal is None or "BYSETPOS mixes" in str(refusal)
    assume(refusal is None)
    return parse(text, start)


def next_face(rule: Recurrence, face: datetime) -> datetime | None:
    found = rule.next_after(face.replace(tzinfo=UTC))
    return None if found is None else found.replace(tzinfo=None)


def next_after(text: str, face: datetime) -> datetime | None:
    return next_face(parse(text, START), face)


def walk(rule: Recurrence, after: datetime) -> Iterator[datetime]:
    found = next_face(rule, after)
    while found is not None:
        yield found
        found = next_face(rule, found)


def times(rule: Recurrence, after: datetime, until: datetime) -> list[datetime]:
    return list(itertools.takewhile(lambda found: found <= until, walk(rule, after)))


def count_questions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note each year of which dateutil is asked for the days."""
    asked: list[int] = []
    ask = yeardays._ask

    def counting(rule: Rule, start: date, year: int, weekdays: Sequence[dateutil.weekday]) -> int:
        asked.append(year)
        return ask(rule, start, year, weekdays)

    monkeypatch.setattr(yeardays, "_ask", counting)
    return asked
