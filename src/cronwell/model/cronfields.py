"""One field of a cron expression: which terms may stand in it, and how a text becomes them, or an error with its column."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NoReturn

from cronwell import errors

LAST = -1
"""The `nth` of a weekday's last occurrence in the month."""
FIRST_YEAR, LAST_YEAR = 1970, 2100

_NUMBER = re.compile(r"[0-9]+")
_HASHED = re.compile(r"H(?:\((?P<range>[^()]*)\))?")
_MONTH_END = re.compile(r"L(?:-(?P<before>[0-9]+))?(?P<weekday>W)?")
_SUNDAY_AGAIN = 7
_MOST_BEFORE_END = 30


@dataclass(frozen=True, slots=True)
class Span:
    """Every `step`-th value from `first` through `last`; `is_star` when it was written with a `*`.

    Where `first` is beyond `last` it runs on over the end of the field, whose values are `low` to `low + size - 1`.
    """

    first: int
    last: int
    step: int = 1
    is_star: bool = False
    low: int = 0
    size: int = 0

    @property
    def values(self) -> Sequence[int]:
        if self.first <= self.last:
            return range(self.first, self.last + 1, self.step)
        length = self.last - self.first + self.size + 1
        return [self.low + (self.first - self.low + n) % self.size for n in range(0, length, self.step)]


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """The `nth` (1 to 5, or LAST) such weekday of the month; 0 is Sunday."""

    weekday: int
    nth: int


@dataclass(frozen=True, slots=True)
class MonthEnd:
    """The month's last day, or the one `before` days earlier; or the day from Monday to Friday nearest to it."""

    on_weekday: bool
    before: int = 0


@dataclass(frozen=True, slots=True)
class NearestWeekday:
    """The day from Monday to Friday of the same month that is nearest to a day, in months that have that day."""

    day: int


Term = Span | NthWeekday | MonthEnd | NearestWeekday


@dataclass(frozen=True, slots=True)
class Field:
    """One field as it was written: a list of terms, any of which may match."""

    terms: tuple[Term, ...]
    starts_with_star: bool
    text: str
    """As written, but with each `H` replaced by what it stands for."""

    @property
    def is_any(self) -> bool:
        """Whether the field lets every value pass."""
        return any(isinstance(term, Span) and term.is_star and term.step == 1 for term in self.terms)

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(term for term in self.terms if isinstance(term, Span))

    @property
    def values(self) -> list[int]:
        """What the spans select, in order; the days that only a calendar knows are not among them."""
        return sorted({value for span in self.spans for value in span.values})


@dataclass(frozen=True, slots=True)
class Rule:
    """What one field accepts."""

    name: str
    low: int
    high: int
    accepted: str
    names: tuple[str, ...] = ()
    first_name: int = 0
    has_days: bool = False
    """Whether `?` is a way to write `*` here."""
    size: int = 0
    """How many values there are before the field begins anew; 0 where it never does."""
    hashed_to: int = 0
    """The highest value that `H` may stand for: a day that every month has."""

    @property
    def article(self) -> str:
        return "an" if self.name == "hour" else "a"


_MINUTES = "0-59, *, ranges 10-20, steps */15, lists 0,30, H (a place by the job's name)"
SECOND = Rule("second", 0, 59, _MINUTES, size=60, hashed_to=59)
MINUTE = Rule("minute", 0, 59, _MINUTES, size=60, hashed_to=59)
HOUR = Rule("hour", 0, 23, "0-23, *, ranges 9-17, steps */2, lists 6,18, H", size=24, hashed_to=23)
MONTH_DAY = Rule(
    "day of month",
    1,
    31,
    "1-31, *, ?, ranges 1-7, steps */2, lists 1,15, L (last day), L-3 (three before it), "
    "LW (last weekday), 15W (nearest weekday), H",
    has_days=True,
    size=31,
    hashed_to=28,
)
MONTH = Rule(
    "month",
    1,
    12,
    "1-12 or JAN-DEC, *, ranges 1-6, steps */3, lists JAN,JUL, H",
    ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
    first_name=1,
    size=12,
    hashed_to=12,
)
WEEKDAY = Rule(
    "day of week",
    0,
    7,
    "0-7 or SUN-SAT (0 and 7 are Sunday), *, ?, ranges MON-FRI, steps */2, lists MON,THU, "
    "MON#2 (second Monday), 5L (last Friday), H",
    ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"),
    has_days=True,
    size=7,
    hashed_to=6,
)
YEAR = Rule(
    "year",
    FIRST_YEAR,
    LAST_YEAR,
    f"{FIRST_YEAR}-{LAST_YEAR}, *, ranges 2027-2030, steps */2, lists 2027,2029",
)


@dataclass(frozen=True, slots=True)
class FieldReader:
    """Reads one field that begins at `column` of the expression. `seed` is what `H` is a hash of."""

    rule: Rule
    column: int
    seed: str

    def read(self, text: str) -> Field:
        terms: list[Term] = []
        texts: list[str] = []
        at = 0
        for part in text.split(","):
            term, written = self._term(part.upper() if part.isascii() else part, part, at)
            terms.append(term)
            texts.append(written)
            at += len(part) + 1
        return Field(tuple(terms), text[0] in "*?", ",".join(texts))

    def _term(self, text: str, written: str, at: int) -> tuple[Term, str]:
        if not text:
            self.refuse("an item of the list is empty", at)
        if _HASHED.match(text):
            return self._hashed(text, at)
        return self._plain(text, at), written

    def _plain(self, text: str, at: int) -> Term:
        if text == "?" and self.rule.has_days:
            return Span(self.rule.low, self.rule.high, is_star=True)
        if self.rule is MONTH_DAY and text.startswith("L"):
            return self._month_end(text, at)
        if self.rule is MONTH_DAY and len(text) > 1 and text.endswith("W"):
            return NearestWeekday(self._value(text[:-1], at))
        if self.rule is WEEKDAY and "#" in text:
            return self._nth(text, at)
        if self.rule is WEEKDAY and len(text) > 1 and text.endswith("L"):
            return NthWeekday(self._value(text[:-1], at) % 7, LAST)
        return self._span(text, at)

    def _month_end(self, text: str, at: int) -> MonthEnd:
        match = _MONTH_END.fullmatch(text)
        before = int(match["before"] or 0) if match is not None else 0
        if match is None or before > _MOST_BEFORE_END:
            self.refuse(f"{show(text)} is not a day before the month's end; use L, L-1 to L-30, or LW", at)
        return MonthEnd(on_weekday=match["weekday"] is not None, before=before)

    def _nth(self, text: str, at: int) -> NthWeekday:
        day, _, nth = text.partition("#")
        weekday = self._value(day, at) % 7
        if nth not in {"1", "2", "3", "4", "5"}:
            self.refuse(
                f"{show(nth)} does not count a weekday within its month; use #1 to #5", at + len(day) + 1
            )
        return NthWeekday(weekday, int(nth))

    def _span(self, text: str, at: int) -> Span:
        rule = self.rule
        body, slash, step_text = text.partition("/")
        step = self._step(step_text, at + len(body) + 1) if slash else 1
        if body == "*":
            return Span(rule.low, rule.high, step, is_star=True)
        first, last = self._range(body, at)
        if last is None:
            # `5/15` runs from 5 to the end of the field, as in cronsim.
            last = rule.high if slash else first
        return (
            Span(first, last, step)
            if first <= last
            else Span(first, last, step, low=rule.low, size=rule.size)
        )

    def _range(self, body: str, at: int) -> tuple[int, int | None]:
        """The ends of a range; a single value has no second one. One that runs backwards goes round the field's end."""
        first_text, dash, last_text = body.partition("-")
        first = self._value(first_text, at)
        if not dash:
            return first, None
        last = self._value(last_text, at + len(first_text) + 1)
        if self.rule is WEEKDAY:
            if last == 0 and first:
                last = _SUNDAY_AGAIN  # a week that ends on Sunday: `MON-SUN`
            if last < first == _SUNDAY_AGAIN:
                first = 0
        if last < first and not self.rule.size:
            self.refuse(f"the range {show(body)} runs backwards", at)
        return first, last

    def _hashed(self, text: str, at: int) -> tuple[Span, str]:
        """`H`, `H(0-29)`, `H/10`, `H(0-29)/10`: a stable place in the field, or in a range of it, by the seed."""
        match = _HASHED.match(text)
        assert match is not None
        low, high = self.rule.low, self.rule.hashed_to
        if not high:
            self.refuse(f"H does not go into the {self.rule.name} field", at)
        if match["range"] is not None:
            low, end = self._range(match["range"], at + 2)
            high = low if end is None else end
            if high < low:
                self.refuse(f"the range {show(match['range'])} of an H runs backwards", at + 2)
        rest = text[match.end() :]
        if rest and not rest.startswith("/"):
            self.refuse(f"{show(text)} is not H, H(0-29), H/10 or H(0-29)/10", at)
        digest = blake2b(
            f"{self.rule.name} {self.seed}".encode(), digest_size=8, person=b"cronwell H"
        ).digest()
        number = int.from_bytes(digest)
        if not rest:
            place = low + number % (high - low + 1)
            return Span(place, place), str(place)
        step = self._step(rest[1:], at + match.end() + 1)
        first = low + number % min(step, high - low + 1)
        return Span(first, high, step), f"{first}-{high}/{step}"

    def _step(self, text: str, at: int) -> int:
        if not _NUMBER.fullmatch(text) or not text.strip("0"):
            self.refuse(f"the step {show(text)} is not a whole number above 0", at)
        return int(text)

    def _value(self, text: str, at: int) -> int:
        if text in self.rule.names:
            return self.rule.names.index(text) + self.rule.first_name
        value = int(text) if _NUMBER.fullmatch(text) else -1
        if not self.rule.low <= value <= self.rule.high:
            self.refuse(self._advise(text), at)
        return value

    def _advise(self, text: str) -> str:
        if not text:
            return f"{self.rule.article} {self.rule.name} is missing"
        near = difflib.get_close_matches(text[:10], self.rule.names, 1, 0.5)
        return f"{show(text)} is not {self.rule.article} {self.rule.name}" + (
            f"; did you mean {near[0]}?" if near else ""
        )

    def refuse(self, message: str, at: int) -> NoReturn:
        refuse(message, self.column + at, f"{self.rule.name}: {self.rule.accepted}")


def show(text: str) -> str:
    """A piece of a user's text as an error repeats it."""
    return repr(text if len(text) <= 20 else f"{text[:20]}…")


def refuse(message: str, column: int | None, accepted: str) -> NoReturn:
    """Say what is wrong, where, and what may stand there."""
    raise errors.Invalid.field("", message, accepted=accepted, column=column)
