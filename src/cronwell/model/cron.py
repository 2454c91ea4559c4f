"""The cron dialect: a text becomes fields of terms, or an error with its column and what may stand there.

Five fields (minute, hour, day of month, month, day of week), or six with the seconds first. What a field means
is settled here; which wall-clock times match is the matter of `wallclock`, and which instants those are of `kinds`.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

from cronwell import errors

LONGEST_TEXT = 1000
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
LAST = -1
"""The `nth` of a weekday's last occurrence in the month."""

_TOKEN = re.compile(r"\S+")
_NUMBER = re.compile(r"[0-9]+")
_SUNDAY_AGAIN = 7


@dataclass(frozen=True, slots=True)
class Span:
    """Every `step`-th value from `first` through `last`; `is_star` when it was written with a `*`."""

    first: int
    last: int
    step: int = 1
    is_star: bool = False

    @property
    def values(self) -> range:
        return range(self.first, self.last + 1, self.step)


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """The `nth` (1 to 5, or LAST) such weekday of the month; 0 is Sunday."""

    weekday: int
    nth: int


@dataclass(frozen=True, slots=True)
class MonthEnd:
    """The month's last day, or its last day from Monday to Friday."""

    on_weekday: bool


Term = Span | NthWeekday | MonthEnd


@dataclass(frozen=True, slots=True)
class Field:
    """One field as it was written: a list of terms, any of which may match."""

    terms: tuple[Term, ...]
    starts_with_star: bool

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
class Expression:
    """A cron expression that was understood. `text` is as written, but for its white space and alias."""

    text: str
    seconds: Field
    minutes: Field
    hours: Field
    days: Field
    months: Field
    weekdays: Field
    has_seconds: bool

    @property
    def needs_both_days(self) -> bool:
        """Debian's rule: a day field that starts with `*` narrows the other; two plain ones widen each other."""
        return self.days.starts_with_star or self.weekdays.starts_with_star

    @property
    def has_fixed_times(self) -> bool:
        """Debian's rule: neither minute nor hour starts with `*`, so that each time of day is meant once a day.

        Such a slot fires right after a gap that swallows it and once in a fold. Like cronsim, an expression with
        seconds never counts as such: it follows the wall clock to the letter.
        """
        return not (self.has_seconds or self.minutes.starts_with_star or self.hours.starts_with_star)


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Read an expression. Raises errors.Invalid with an empty field name and the column to blame."""
    if len(text) > LONGEST_TEXT:
        _refuse(f"the expression has {len(text)} characters", None, f"at most {LONGEST_TEXT} characters")
    tokens = [(match.start() + 1, match[0]) for match in _TOKEN.finditer(text)]
    if len(tokens) == 1 and tokens[0][1].startswith("@"):
        tokens = _expand(*tokens[0])
    _check_shape(text, tokens)
    words = [word for _, word in tokens]
    has_seconds = len(tokens) == len(_RULES)
    if not has_seconds:
        tokens = [(1, "0"), *tokens]
    seconds, minutes, hours, days, months, weekdays = (
        _FieldReader(rule, column).read(word) for rule, (column, word) in zip(_RULES, tokens, strict=True)
    )
    return Expression(" ".join(words), seconds, minutes, hours, days, months, weekdays, has_seconds)


@dataclass(frozen=True, slots=True)
class _Rule:
    """What one field accepts."""

    name: str
    low: int
    high: int
    accepted: str
    names: tuple[str, ...] = ()
    first_name: int = 0
    has_days: bool = False
    """Whether `?` is a way to write `*` here."""

    @property
    def article(self) -> str:
        return "an" if self.name == "hour" else "a"


_RULES = (
    _Rule("second", 0, 59, "0-59, *, ranges 10-20, steps */15, lists 0,30"),
    _Rule("minute", 0, 59, "0-59, *, ranges 10-20, steps */15, lists 0,30"),
    _Rule("hour", 0, 23, "0-23, *, ranges 9-17, steps */2, lists 6,18"),
    _Rule(
        "day of month",
        1,
        31,
        "1-31, *, ?, ranges 1-7, steps */2, lists 1,15, L (last day), LW (last weekday)",
        has_days=True,
    ),
    _Rule(
        "month",
        1,
        12,
        "1-12 or JAN-DEC, *, ranges 1-6, steps */3, lists JAN,JUL",
        ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
        first_name=1,
    ),
    _Rule(
        "day of week",
        0,
        7,
        "0-7 or SUN-SAT (0 and 7 are Sunday), *, ?, ranges MON-FRI, steps */2, lists MON,THU, "
        "MON#2 (second Monday), 5L (last Friday)",
        ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"),
        has_days=True,
    ),
)
_WEEKDAY = _RULES[5]
_MONTH_DAY = _RULES[3]


@dataclass(frozen=True, slots=True)
class _FieldReader:
    """Reads one field that begins at `column` of the expression."""

    rule: _Rule
    column: int

    def read(self, text: str) -> Field:
        terms: list[Term] = []
        at = 0
        for part in text.split(","):
            terms.append(self._term(part.upper() if part.isascii() else part, at))
            at += len(part) + 1
        return Field(tuple(terms), text[0] in "*?")

    def _term(self, text: str, at: int) -> Term:
        if not text:
            self._refuse("an item of the list is empty", at)
        if text == "?" and self.rule.has_days:
            return Span(self.rule.low, self.rule.high, is_star=True)
        if self.rule is _MONTH_DAY and text in {"L", "LW"}:
            return MonthEnd(on_weekday=text == "LW")
        if self.rule is _WEEKDAY and "#" in text:
            return self._nth(text, at)
        if self.rule is _WEEKDAY and len(text) > 1 and text.endswith("L"):
            return NthWeekday(self._value(text[:-1], at) % 7, LAST)
        return self._span(text, at)

    def _nth(self, text: str, at: int) -> NthWeekday:
        day, _, nth = text.partition("#")
        weekday = self._value(day, at) % 7
        if nth not in {"1", "2", "3", "4", "5"}:
            self._refuse(
                f"{_show(nth)} does not count a weekday within its month; use #1 to #5", at + len(day) + 1
            )
        return NthWeekday(weekday, int(nth))

    def _span(self, text: str, at: int) -> Span:
        body, slash, step_text = text.partition("/")
        step = self._step(step_text, at + len(body) + 1) if slash else 1
        if body == "*":
            return Span(self.rule.low, self.rule.high, step, is_star=True)
        first_text, dash, last_text = body.partition("-")
        first = self._value(first_text, at)
        if not dash:
            # `5/15` runs from 5 to the end of the field, as in cronsim.
            return Span(first, self.rule.high if slash else first, step)
        last = self._value(last_text, at + len(first_text) + 1)
        if self.rule is _WEEKDAY and last == 0:
            # A week that ends on Sunday: `MON-SUN`.
            last = _SUNDAY_AGAIN if first else last
        if last < first:
            self._refuse(f"the range {_show(body)} runs backwards; write it as a list of two", at)
        return Span(first, last, step)

    def _step(self, text: str, at: int) -> int:
        if not _NUMBER.fullmatch(text) or not text.strip("0"):
            self._refuse(f"the step {_show(text)} is not a whole number above 0", at)
        return int(text)

    def _value(self, text: str, at: int) -> int:
        if text in self.rule.names:
            return self.rule.names.index(text) + self.rule.first_name
        value = int(text) if _NUMBER.fullmatch(text) else -1
        if not self.rule.low <= value <= self.rule.high:
            self._refuse(self._advise(text), at)
        return value

    def _advise(self, text: str) -> str:
        if not text:
            return f"{self.rule.article} {self.rule.name} is missing"
        near = difflib.get_close_matches(text[:10], self.rule.names, 1, 0.5)
        return f"{_show(text)} is not {self.rule.article} {self.rule.name}" + (
            f"; did you mean {near[0]}?" if near else ""
        )

    def _refuse(self, message: str, at: int) -> NoReturn:
        _refuse(message, self.column + at, f"{self.rule.name}: {self.rule.accepted}")


def _expand(column: int, alias: str) -> list[tuple[int, str]]:
    expression = ALIASES.get(alias.lower())
    if expression is None:
        near = difflib.get_close_matches(alias.lower()[:20], ALIASES, 1, 0.6)
        advice = f"; did you mean {near[0]}?" if near else ""
        _refuse(f"there is no alias {_show(alias)}{advice}", column, ", ".join([*ALIASES, "@every 15m"]))
    return [(column, word) for word in expression.split()]


def _check_shape(text: str, tokens: list[tuple[int, str]]) -> None:
    accepted = "5 fields: minute hour day-of-month month day-of-week; or 6 with the second first"
    if not tokens:
        _refuse("the expression is empty", 1, accepted)
    if tokens[0][1].upper().startswith(("TZ=", "CRON_TZ=")):
        _refuse(
            "a zone does not go into the expression; put its name into `timezone`", tokens[0][0], accepted
        )
    if len(tokens) > len(_RULES):
        _refuse(f"the expression has {len(tokens)} fields", tokens[len(_RULES)][0], accepted)
    if len(tokens) < len(_RULES) - 1:
        count = "one field" if len(tokens) == 1 else f"{len(tokens)} fields"
        _refuse(f"the expression has only {count}", len(text.rstrip()) + 1, accepted)


def _show(text: str) -> str:
    return repr(text if len(text) <= 20 else f"{text[:20]}…")


def _refuse(message: str, column: int | None, accepted: str) -> NoReturn:
    raise errors.Invalid.field("", message, accepted=accepted, column=column)
