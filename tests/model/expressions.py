"""Random cron expressions, in the part of the dialect that cronsim speaks too."""

from __future__ import annotations

from hypothesis import strategies as st

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@st.composite
def _spans(draw: st.DrawFn, low: int, high: int) -> str:
    first = draw(st.integers(low, high))
    form = draw(st.sampled_from(["value", "value", "range", "stepped range", "tail"]))
    # Of `12-12/2` cronsim makes 12-23/2, where Vixie cron and we see the range that is written: not generated.
    if form == "value" or first == high:
        return str(first)
    step = draw(st.integers(1, high))
    if form == "tail":
        return f"{first}/{step}"
    text = f"{first}-{draw(st.integers(first + 1, high))}"
    return f"{text}/{step}" if form == "stepped range" else text


def _fields(low: int, high: int, *special: str) -> st.SearchStrategy[str]:
    terms = _spans(low, high)
    if special:
        terms = st.one_of(terms, st.sampled_from(special))
    lists = st.lists(terms, min_size=1, max_size=3).map(",".join)
    stars = st.one_of(st.just("*"), st.integers(1, high + 3).map("*/{}".format))
    return st.one_of(lists, stars)


SECONDS = _fields(0, 59)
MINUTES = _fields(0, 59)
HOURS = _fields(0, 23)
DAYS = _fields(1, 31, "L", "LW")
MONTHS = _fields(1, 12, *_MONTHS)
WEEKDAYS = _fields(0, 7, *_DAYS, "mon#2", "5L", "0#5", "7L", "MON-FRI", "TUE/2")

five = st.tuples(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS).map(" ".join)
six = st.tuples(SECONDS, MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS).map(" ".join)
expressions = st.one_of(five, six)

# Near a clock change the interesting fields are minute and hour, and the days must not rule the night out.
_NIGHT_HOURS = st.one_of(HOURS, st.sampled_from(["0", "1", "2", "3", "*", "*/2", "1-3", "0-2", "1,2", "23"]))
_MOST_DAYS = st.sampled_from(["* * *", "* * *", "*/2 * *", "* * 0", "1-15 * 6,0", "L * 0,5"])
five_by_night = st.tuples(MINUTES, _NIGHT_HOURS, _MOST_DAYS).map(" ".join)
six_by_night = st.tuples(SECONDS, MINUTES, _NIGHT_HOURS, _MOST_DAYS).map(" ".join)


# ── what cronsim does not speak: ranges round the end, W, L-n, years ──────────────────────────────────────────────


@st.composite
def _round(draw: st.DrawFn, low: int, high: int) -> str:
    text = f"{draw(st.integers(low, high))}-{draw(st.integers(low, high))}"
    return f"{text}/{draw(st.integers(1, high))}" if draw(st.booleans()) else text


def _wide(low: int, high: int, *special: str) -> st.SearchStrategy[str]:
    terms = st.one_of(_spans(low, high), _round(low, high), *([st.sampled_from(special)] if special else []))
    return st.one_of(st.lists(terms, min_size=1, max_size=3).map(",".join), st.just("*"))


wide = st.one_of(
    st.tuples(
        _wide(0, 59),
        _wide(0, 23),
        _wide(1, 31, "L", "LW", "L-1", "L-3", "L-30", "1W", "15W", "31W", "L-2W", "?"),
        _wide(1, 12, "NOV-FEB"),
        _wide(0, 7, "FRI-MON", "mon#2", "5L", "SAT-TUE/2", "?"),
    ).map(" ".join),
    st.tuples(
        _wide(0, 59),
        _wide(0, 59),
        _wide(0, 23),
        _wide(1, 31, "LW", "15W"),
        _wide(1, 12),
        _wide(0, 7),
        st.sampled_from(["*", "2000-2040", "1999,2027", "*/3", "2020/7"]),
    ).map(" ".join),
)
