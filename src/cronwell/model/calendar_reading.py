"""What a user writes for a calendar, read into its parts, or refused with every wrong field at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import NoReturn, TypeVar

from cronwell import errors
from cronwell.model import instants, public_holidays, recurrence
from cronwell.model.calendar_parts import DAY_NAMES, Dates, DayRule, Holidays, Hours, Window
from cronwell.model.instants import EARLIEST, HORIZON
from cronwell.model.rrule import Freq, Rule

ACCEPTED = "an object with dates, rrules, holidays, hours, windows, description"
LONGEST_DESCRIPTION = 1000

_LIMITS = {"dates": 1000, "rrules": 20, "holidays": 20, "hours": 100, "windows": 200}
_FIELDS = (*_LIMITS, "description")
_MOST_TOLD = 50
_LONGEST_TEXT = 64
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_CLOCK = re.compile(r"(\d\d):(\d\d)", re.ASCII)
_LOCAL = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?", re.ASCII)
_ACCEPTED_DATE = 'a day such as "2026-12-24", or a range of days such as "2026-12-28/2027-01-02"'
_ACCEPTED_DAYS = 'days such as "MON-FRI" or "SAT,SUN"'
_ACCEPTED_CLOCK = 'a time of day such as "09:00", up to "24:00"'
_ACCEPTED_BOUND = (
    'a wall-clock time such as "2026-12-20T18:00", or one with an offset such as "2026-12-20T18:00:00Z"'
)
_ACCEPTED_RULE = (
    'a rule of days such as "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=31", or {"rule": …, "start": "2026-01-05"}'
)
# Where a rule is counted from that gives the same days from wherever it is counted.
_ANY_START = "1970-01-01"

T = TypeVar("T")


@dataclass(slots=True)
class Parts:
    """The parts that were read."""

    dates: Dates = field(default_factory=lambda: Dates(()))
    rules: list[DayRule] = field(default_factory=list)
    holidays: list[Holidays] = field(default_factory=list)
    hours: list[Hours] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    description: str = ""


def read(raw: object, path: str) -> Parts:
    """Read a user's calendar. Raises errors.Invalid with each field that is wrong, up to a limit."""
    return _Reader(path).read(raw)


@dataclass(slots=True)
class _Reader:
    """Reads one field after the other, and goes on after a wrong one to find the others."""

    path: str
    problems: list[errors.FieldProblem] = field(default_factory=list)

    def read(self, raw: object) -> Parts:
        given = self._members(raw, self.path, _FIELDS)
        ranges = self._list(given, "dates", _range)
        parts = Parts(
            Dates(_merged(ranges)),
            self._list(given, "rrules", self._rule),
            self._list(given, "holidays", self._holidays),
            self._list(given, "hours", self._hours),
            self._list(given, "windows", self._window),
            self._description(given.get("description")),
        )
        if not self.problems and not any(given.get(name) for name in _LIMITS):
            self._tell(self.path, "it has no times in it", f"at least one of {', '.join(_LIMITS)}")
        if self.problems:
            raise errors.Invalid(self.problems[:_MOST_TOLD])
        return parts

    def _members(self, raw: object, path: str, known: tuple[str, ...]) -> Mapping[str, object]:
        """Return an object's members, less those that are null or unknown."""
        if not isinstance(raw, Mapping):
            self._tell(path, "it is not an object", f"an object with {', '.join(known)}")
            return {}
        for name in raw:
            if name not in known and len(self.problems) < _MOST_TOLD:
                near = difflib.get_close_matches(str(name).lower()[:_LONGEST_TEXT], known, 1, 0.5)
                hint = f"; did you mean {near[0]}?" if near else ""
                self._tell(
                    f"{path}.{str(name)[:_LONGEST_TEXT]}",
                    f"there is no such field{hint}",
                    f"the fields {', '.join(known)}",
                )
        return {name: raw[name] for name in known if raw.get(name) is not None}

    def _list(self, given: Mapping[str, object], name: str, read: Callable[[object, str], T]) -> list[T]:
        items, path = given.get(name, []), f"{self.path}.{name}"
        if not isinstance(items, list | tuple):
            self._tell(path, "it is not a list", f"a list of at most {_LIMITS[name]}")
            return []
        if len(items) > _LIMITS[name]:
            self._tell(path, f"it has {len(items)} items", f"at most {_LIMITS[name]}")
            return []
        found: list[T] = []
        for number, item in enumerate(items):
            try:
                part = read(item, f"{path}.{number}")
            except errors.Invalid as error:
                self.problems.extend(error.problems)
                continue
            if name == "dates" or part not in found:
                found.append(part)
        return found

    def _rule(self, item: object, path: str) -> DayRule:
        text, start = item, None
        if isinstance(item, Mapping):
            members = self._object(item, path, ("rule", "start"))
            text = members.get("rule")
            if "start" in members:
                start = _day(members["start"], f"{path}.start")
            path = f"{path}.rule"
        if not isinstance(text, str):
            _refuse(path, "it is not text", _ACCEPTED_RULE)
        begin = datetime.fromisoformat(f"{start or _ANY_START}T00:00")
        try:
            rule = recurrence.parse(text, begin)
        except errors.Invalid as error:
            raise error.under(path) from None
        if not rule.has_fixed_times or rule.rule.hours or rule.rule.minutes or rule.rule.seconds:
            _refuse(
                path, "a calendar's rule gives whole days, without hours, minutes and seconds", _ACCEPTED_RULE
            )
        if start is None and _needs_start(rule.rule):
            _refuse(
                path, "which days it gives depends on where it starts", '{"rule": …, "start": "2026-01-05"}'
            )
        if not rule.can_match:
            _refuse(path, "no day matches it", _ACCEPTED_RULE)
        return DayRule(rule, start is not None)

    def _holidays(self, item: object, path: str) -> Holidays:
        members = self._object(item, path, ("country", "region"))
        country, region = members.get("country"), members.get("region")
        if not isinstance(country, str):
            _refuse(
                f"{path}.country",
                "it is missing, or not text",
                'an ISO 3166 code of two letters such as "DE"',
            )
        if region is not None and not isinstance(region, str):
            _refuse(
                f"{path}.region", "it is not text", "a region's code, as in ISO 3166-2 after the country's"
            )
        if country.upper() in public_holidays.countries():
            country = country.upper()
            if region is not None:
                known = {code.upper(): code for code in public_holidays.regions(country)}
                region = known.get(region.upper().removeprefix(f"{country}-"), region)
        if problems := public_holidays.check(country, region, path):
            raise errors.Invalid(problems)
        return Holidays(country, region)

    def _hours(self, item: object, path: str) -> Hours:
        members = self._object(item, path, ("days", "from", "to"))
        days = _days(members.get("days"), f"{path}.days")
        begin, end = (_minute(members.get(name), f"{path}.{name}") for name in ("from", "to"))
        if end <= begin:
            _refuse(
                f"{path}.to",
                "it does not come after `from`; hours over midnight are two entries, up to 24:00 and from 00:00",
                _ACCEPTED_CLOCK,
            )
        return Hours(days, begin, end)

    def _window(self, item: object, path: str) -> Window:
        members = self._object(item, path, ("from", "to"))
        begin, end = (_bound(members.get(name), f"{path}.{name}") for name in ("from", "to"))
        if (begin.tzinfo is None) != (end.tzinfo is None):
            _refuse(path, "one of its times has an offset and the other has none", "both of one sort")
        if end <= begin:
            _refuse(f"{path}.to", "it does not come after `from`", _ACCEPTED_BOUND)
        return Window(begin, end)

    def _description(self, text: object) -> str:
        if text is None:
            return ""
        if not isinstance(text, str) or len(text) > LONGEST_DESCRIPTION:
            self._tell(
                f"{self.path}.description",
                "it is not a text of such a length",
                f"at most {LONGEST_DESCRIPTION} characters",
            )
            return ""
        return text

    def _object(self, item: object, path: str, known: tuple[str, ...]) -> Mapping[str, object]:
        """Return an item's members; what is wrong with their names is told, and ends the item."""
        before = len(self.problems)
        members = self._members(item, path, known)
        if wrong := self.problems[before:]:
            del self.problems[before:]
            raise errors.Invalid(wrong)
        return members

    def _tell(self, path: str, message: str, accepted: str | None = None) -> None:
        self.problems.append(errors.FieldProblem(path, message, accepted))


def _range(item: object, path: str) -> tuple[date, date]:
    first_text, slash, last_text = _text(item, path, _ACCEPTED_DATE).partition("/")
    first = _day(first_text, path)
    last = _day(last_text, path) if slash else first
    if last < first:
        _refuse(path, "the range ends before it begins", _ACCEPTED_DATE)
    return first, last


def _day(item: object, path: str) -> date:
    text = _text(item, path, _ACCEPTED_DATE).strip()
    match = _DATE.fullmatch(text)
    try:
        found = date(*map(int, match.groups())) if match else None
    except ValueError:
        _refuse(path, f"there is no day {text!r}", _ACCEPTED_DATE)
    if found is None:
        _refuse(path, f"{text!r} is not a day", _ACCEPTED_DATE)
    if not EARLIEST.year <= found.year < HORIZON.year:
        _refuse(
            path, f"{text!r} is not between the years {EARLIEST.year} and {HORIZON.year - 1}", _ACCEPTED_DATE
        )
    return found


def _days(item: object, path: str) -> tuple[int, ...]:
    found: set[int] = set()
    for word in _text(item, path, _ACCEPTED_DAYS).upper().split(","):
        first, dash, last = (part.strip() for part in word.partition("-"))
        begin = _weekday(first, path)
        end = _weekday(last, path) if dash else begin
        # A range may run over Sunday: FRI-MON.
        found |= {day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)}
    return tuple(sorted(found))


def _weekday(name: str, path: str) -> int:
    if name not in DAY_NAMES:
        near = difflib.get_close_matches(name[:3], DAY_NAMES, 1, 0.5)
        _refuse(path, f"{name!r} is not a day{f'; did you mean {near[0]}?' if near else ''}", _ACCEPTED_DAYS)
    return DAY_NAMES.index(name)


def _minute(item: object, path: str) -> int:
    text = _text(item, path, _ACCEPTED_CLOCK).strip()
    match = _CLOCK.fullmatch(text)
    hour, minute = (int(match[1]), int(match[2])) if match else (99, 0)
    if minute > 59 or 60 * hour + minute > 1440:
        _refuse(path, f"{text!r} is not a time of day", _ACCEPTED_CLOCK)
    return 60 * hour + minute


def _bound(item: object, path: str) -> datetime:
    text = _text(item, path, _ACCEPTED_BOUND).strip()
    is_local = _LOCAL.fullmatch(text) is not None
    try:
        found = instants.parse(text, UTC if is_local else None)
    except ValueError as error:
        _refuse(path, str(error).removesuffix(f"; write {instants.ACCEPTED}"), _ACCEPTED_BOUND)
    return found.replace(tzinfo=None) if is_local else found


def _text(item: object, path: str, accepted: str) -> str:
    if not isinstance(item, str):
        _refuse(path, "it is missing, or not text", accepted)
    if len(item) > _LONGEST_TEXT:
        _refuse(path, f"it has {len(item)} characters", accepted)
    return item


def _needs_start(rule: Rule) -> bool:
    takes_day_from_start = not rule.has_days and rule.freq is not Freq.DAILY
    return takes_day_from_start or rule.interval > 1 or rule.count is not None


def _merged(ranges: list[tuple[date, date]]) -> tuple[tuple[date, date], ...]:
    return tuple(_without_overlap(sorted(ranges)))


def _without_overlap(ranges: list[tuple[date, date]]) -> Iterator[tuple[date, date]]:
    held: tuple[date, date] | None = None
    for first, last in ranges:
        if held is not None and first <= held[1]:
            held = held[0], max(held[1], last)
        else:
            if held is not None:
                yield held
            held = first, last
    if held is not None:
        yield held


def _refuse(path: str, message: str, accepted: str) -> NoReturn:
    raise errors.Invalid.field(path, message, accepted=accepted)
