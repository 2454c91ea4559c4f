"""The text of an RFC 5545 recurrence rule: it becomes parts, or an error with its column and what may stand there.

    FREQ=MONTHLY;BYDAY=1MO;BYHOUR=9

What a rule means is settled here and in `recurrence`. Where RFC 5545 lets implementations differ, or where a rule
says in a roundabout way what cron says plainly, the rule is refused with the advice what to write instead.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NoReturn

from cronwell import errors

ACCEPTED = 'an RFC 5545 rule such as "FREQ=MONTHLY;BYDAY=1MO;BYHOUR=9"'
LONGEST_TEXT = 1000
MOST_COUNTED = 10_000
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")

_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
_WEEKDAY = re.compile(r"([+-]?[0-9]{1,9})?([A-Z]+)")
_UNTIL = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?", re.ASCII)
_OTHER_LINES = ("DTSTART", "DTEND", "EXDATE", "EXRULE", "RDATE")


class Freq(IntEnum):
    """The length of a rule's period, longest first."""

    YEARLY = 0
    MONTHLY = 1
    WEEKLY = 2
    DAILY = 3
    HOURLY = 4
    MINUTELY = 5
    SECONDLY = 6

    @property
    def is_of_days(self) -> bool:
        """Whether a period is a day or longer."""
        return self <= Freq.DAILY

    @property
    def unit(self) -> str:
        return _UNITS[self]


_UNITS = ("year", "month", "week", "day", "hour", "minute", "second")
# A hundred years: a longer period has no second one before the horizon.
_LONGEST_INTERVAL = (100, 1200, 5200, 36_500, 876_000, 52_560_000, 999_999_999)


@dataclass(frozen=True, slots=True)
class Weekday:
    """A weekday (0 is Monday) of BYDAY: each one, or the `nth` of its month or year; from the end when negative."""

    day: int
    nth: int = 0

    def __str__(self) -> str:
        return f"{self.nth or ''}{WEEKDAYS[self.day]}"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that was understood. A part that is not in the text is empty; `text` is the same for the same rule."""

    freq: Freq
    interval: int = 1
    count: int | None = None
    months: tuple[int, ...] = ()
    weeks: tuple[int, ...] = ()
    year_days: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    weekdays: tuple[Weekday, ...] = ()
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    seconds: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    week_start: int = 0

    @property
    def text(self) -> str:
        parts = [f"FREQ={self.freq.name}"]
        if self.interval != 1:
            parts.append(f"INTERVAL={self.interval}")
        if self.count is not None:
            parts.append(f"COUNT={self.count}")
        lists = [(part.name, getattr(self, part.attribute)) for part in _LISTS]
        parts += [f"{name}={','.join(map(str, values))}" for name, values in lists if values]
        if self.week_start:
            parts.append(f"WKST={WEEKDAYS[self.week_start]}")
        return ";".join(parts)

    @property
    def has_days(self) -> bool:
        """Whether it says itself which days of a period it means; the start says it otherwise."""
        return bool(self.weeks or self.year_days or self.month_days or self.weekdays)


def read(text: str) -> Rule:
    """Read a rule. Raises errors.Invalid with an empty field name and the column to blame."""
    if len(text) > LONGEST_TEXT:
        _refuse(f"the rule has {len(text)} characters", None, f"at most {LONGEST_TEXT} characters")
    if not text.isascii():
        at = next(at for at, letter in enumerate(text) if not letter.isascii())
        _refuse(f"{text[at]!r} has no place in a rule", at)
    shown = text.rstrip().upper()
    begin = len(shown) - len(shown.lstrip())
    if shown.startswith("RRULE:", begin):
        begin += len("RRULE:")
    _check_lines(shown, begin)
    reader = _Reader()
    at = begin
    for part in shown[begin:].split(";"):
        reader.read_part(part, at)
        at += len(part) + 1
    return reader.finish()


@dataclass(frozen=True, slots=True)
class _List:
    """A part that lists numbers."""

    name: str
    attribute: str
    low: int
    high: int
    counts_back: bool = False
    """Whether -1 is the last one."""

    @property
    def accepted(self) -> str:
        back = f", or -{self.high} to -1 counted from the end" if self.counts_back else ""
        return f"{self.name}: numbers from {self.low} to {self.high}{back}"


_BY_DAY = _List("BYDAY", "weekdays", 1, 53, counts_back=True)
# In the order in which a rule is written.
_LISTS = (
    _List("BYMONTH", "months", 1, 12),
    _List("BYWEEKNO", "weeks", 1, 53, counts_back=True),
    _List("BYYEARDAY", "year_days", 1, 366, counts_back=True),
    _List("BYMONTHDAY", "month_days", 1, 31, counts_back=True),
    _BY_DAY,
    _List("BYHOUR", "hours", 0, 23),
    _List("BYMINUTE", "minutes", 0, 59),
    _List("BYSECOND", "seconds", 0, 59),
    _List("BYSETPOS", "positions", 1, 366, counts_back=True),
)
_LIST_OF = {part.name: part for part in _LISTS}
_PARTS = ("FREQ", "INTERVAL", "COUNT", *_LIST_OF, "WKST")
_ALL_PARTS = f"parts {', '.join(_PARTS)}, separated by semicolons"
_DAY_PARTS = ("BYMONTH", "BYWEEKNO", "BYYEARDAY", "BYMONTHDAY", "BYDAY")
_ACCEPTED_DAYS = "BYDAY: MO, TU, WE, TH, FR, SA, SU, with a count in months and years: 1MO, -1FR"
# RFC 5545, section 3.3.10: what has no meaning with which FREQ.
_NOT_WITH = {
    Freq.YEARLY: (),
    Freq.MONTHLY: ("BYWEEKNO", "BYYEARDAY"),
    Freq.WEEKLY: ("BYWEEKNO", "BYYEARDAY", "BYMONTHDAY"),
    Freq.DAILY: ("BYWEEKNO", "BYYEARDAY"),
}


@dataclass(slots=True)
class _Reader:
    """Gathers the parts of one rule, and then judges them together."""

    values: dict[str, str] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)

    def read_part(self, part: str, at: int) -> None:
        name, equals, value = part.partition("=")
        if not part.strip():
            _refuse("a part is empty", at, ACCEPTED if not self.values else _ALL_PARTS)
        if name == "UNTIL":
            _refuse(f"the end of a rule goes into the schedule's `end`{_as_end(value)}", at, _ALL_PARTS)
        if name not in _PARTS:
            near = difflib.get_close_matches(name[:20], _PARTS, 1, 0.6)
            advice = f"; did you mean {near[0]}?" if near else ""
            _refuse(f"there is no part {_show(name)}{advice}", at, _ALL_PARTS)
        if name in self.values:
            _refuse(f"{name} is there twice", at, "each part once")
        if not equals or not value:
            _refuse(f"{name} has no value", at + len(part), _accepted(name))
        self.values[name] = value
        self.places[name] = at + len(name) + 1

    def finish(self) -> Rule:
        freq = self._freq()
        self._check_company(freq)
        numbers = {
            part.attribute: self._numbers(part)
            for part in _LISTS
            if part.name in self.values and part is not _BY_DAY
        }
        return Rule(
            freq,
            interval=self._single("INTERVAL", _LONGEST_INTERVAL[freq]),
            count=self._single("COUNT", MOST_COUNTED) if "COUNT" in self.values else None,
            weekdays=self._weekdays(freq),
            week_start=self._week_start(),
            **numbers,
        )

    def _freq(self) -> Freq:
        if "FREQ" not in self.values:
            _refuse("FREQ is missing: it says how long a period is", None, _accepted("FREQ"))
        name = self.values["FREQ"]
        if name not in Freq.__members__:
            near = difflib.get_close_matches(name[:20], Freq.__members__, 1, 0.5)
            advice = f"; did you mean {near[0]}?" if near else ""
            _refuse(f"{_show(name)} is no FREQ{advice}", self.places["FREQ"], _accepted("FREQ"))
        return Freq[name]

    def _check_company(self, freq: Freq) -> None:
        """Refuse parts that do not go together."""
        if not freq.is_of_days:
            for name in (*_DAY_PARTS, "BYSETPOS"):
                self._forbid(
                    name, f"FREQ={freq.name} does not go with {name}; write FREQ=DAILY with BYHOUR, or cron"
                )
            return
        for name in _NOT_WITH[freq]:
            self._forbid(name, f"RFC 5545 gives {name} no meaning with FREQ={freq.name}")
        if "BYWEEKNO" in self.values and "BYDAY" not in self.values:
            # Some take the start's weekday here, some the whole week.
            self._forbid("BYWEEKNO", "BYWEEKNO alone does not say which days of the week; add BYDAY")
        if "BYSETPOS" in self.values and not any(
            name.startswith("BY") for name in self.values.keys() - {"BYSETPOS"}
        ):
            self._forbid("BYSETPOS", "BYSETPOS picks from what other parts give; add one, such as BYDAY")

    def _forbid(self, name: str, message: str) -> None:
        if name in self.values:
            _refuse(message, self.places[name] - len(name) - 1, ACCEPTED)

    def _single(self, name: str, high: int) -> int:
        text = self.values.get(name, "1")
        value = int(text) if _NUMBER.fullmatch(text) else 0
        if not 1 <= value <= high:
            _refuse(f"{_show(text)} is not what {name} takes", self.places[name], f"{name}: 1 to {high}")
        return value

    def _numbers(self, part: _List) -> tuple[int, ...]:
        found: set[int] = set()
        for text, at in self._items(part.name):
            value = int(text) if _NUMBER.fullmatch(text) else None
            size = None if value is None else abs(value) if part.counts_back else value
            if value is None or size is None or not part.low <= size <= part.high:
                _refuse(f"{_show(text)} is not a number that {part.name} takes", at, part.accepted)
            found.add(value)
        return tuple(sorted(found, key=lambda value: (value < 0, value)))

    def _weekdays(self, freq: Freq) -> tuple[Weekday, ...]:
        found: set[Weekday] = set()
        for text, at in self._items("BYDAY"):
            match = _WEEKDAY.fullmatch(text)
            if match is None or match[2] not in WEEKDAYS:
                near = difflib.get_close_matches(text.lstrip("+-0123456789")[:3], WEEKDAYS, 1, 0.4)
                _refuse(
                    f"{_show(text)} is not a weekday{f'; did you mean {near[0]}?' if near else ''}",
                    at,
                    _ACCEPTED_DAYS,
                )
            if match[1] is not None:
                self._check_nth(freq, int(match[1]), at)
            found.add(Weekday(WEEKDAYS.index(match[2]), int(match[1] or 0)))
        return tuple(sorted(found, key=lambda each: (each.nth < 0, each.nth, each.day)))

    def _check_nth(self, freq: Freq, nth: int, at: int) -> None:
        if freq > Freq.MONTHLY or "BYWEEKNO" in self.values:
            _refuse(
                "a weekday is counted within months and years only", at, "BYDAY: MO, TU, WE, TH, FR, SA, SU"
            )
        whole, most = ("month", 5) if freq is Freq.MONTHLY or "BYMONTH" in self.values else ("year", 53)
        if not 1 <= abs(nth) <= most:
            _refuse(
                f"a {whole} has no weekday number {nth}", at, f"1 to {most}, or -{most} to -1 from the end"
            )

    def _week_start(self) -> int:
        name = self.values.get("WKST", "MO")
        if name not in WEEKDAYS:
            _refuse(f"{_show(name)} is not a weekday", self.places["WKST"], _accepted("WKST"))
        return WEEKDAYS.index(name)

    def _items(self, name: str) -> list[tuple[str, int]]:
        at = self.places.get(name, 0)
        items: list[tuple[str, int]] = []
        for text in self.values[name].split(",") if name in self.values else ():
            items.append((text, at))
            at += len(text) + 1
        return items


def _check_lines(shown: str, begin: int) -> None:
    for match in re.finditer(r"[^\r\n]+", shown):
        if match[0].lstrip().startswith(_OTHER_LINES):
            name = match[0].lstrip().split(";")[0].split(":")[0]
            advice = (
                "the rule's start goes into the schedule's `anchor`"
                if name == "DTSTART"
                else f"{name} is not read here"
            )
            _refuse(f"{advice}; give the rule alone", match.start(), ACCEPTED)
    end = re.search(r"[\r\n]", shown[begin:])
    if end is not None:
        _refuse("a rule is one line", begin + end.start())
    if not shown[begin:]:
        _refuse("the rule is empty", begin)


def _as_end(until: str) -> str:
    """Write an UNTIL as `end` wants it, where it is one."""
    match = _UNTIL.fullmatch(until)
    if match is None:
        return ""
    day = "-".join(match.groups()[:3])
    time = f"{match[4]}:{match[5]}:{match[6]}{match[7]}" if match[4] else "23:59:59"
    return f': "{day}T{time}"'


def _accepted(name: str) -> str:
    if name in _LIST_OF:
        return _ACCEPTED_DAYS if name == "BYDAY" else _LIST_OF[name].accepted
    if name == "FREQ":
        return f"FREQ: {', '.join(Freq.__members__)}"
    return f"{name}: {', '.join(WEEKDAYS)}" if name == "WKST" else f"{name}: a whole number above 0"


def _show(text: str) -> str:
    return repr(text if len(text) <= 20 else f"{text[:20]}…")


def _refuse(message: str, at: int | None, accepted: str = ACCEPTED) -> NoReturn:
    """Refuse the rule; `at` counts from 0."""
    raise errors.Invalid.field("", message, accepted=accepted, column=None if at is None else at + 1)
