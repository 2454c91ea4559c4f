"""What a user writes for a schedule, read into a draft, or refused with every wrong field at once.

"0 3 * * *"   "@hourly"   "every 15m"   "in 5m"   "at 2027-05-05T10:00:00Z"
{"cron" | "every" (+ "anchor") | "at" | "in": …, "timezone": …, "window": …, "start": …, "end": …}
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TypeVar

from cronwell import durations, errors
from cronwell.model import cron, instants, zones
from cronwell.model import window as windows
from cronwell.model.instants import HORIZON
from cronwell.model.kinds import CronTimes, FixedRate, Kind, Once
from cronwell.model.wallclock import compiled
from cronwell.model.window import Share, Window

ACCEPTED = (
    'cron text such as "0 3 * * *", "@hourly", "every 15m", "in 5m", "at 2027-05-05T10:00:00Z", '
    "or an object with one of cron, every, at, in"
)
SHORTEST_EVERY = timedelta(seconds=1)

_KINDS = ("cron", "every", "at", "in")
_KEYS = (*_KINDS, "anchor", "timezone", "window", "start", "end")
_SHORTHAND = re.compile(r"\s*(@?every|in|at)(?![\w*/,#-])\s*(.*)", re.IGNORECASE | re.DOTALL)
_FIELD = re.compile(r"\S+")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Draft:
    """A schedule whose every part is well formed; whether it ever fires is not settled."""

    kind: Kind
    timezone: str
    window: Window | None
    start: datetime | None
    end: datetime | None
    path: str
    """The field that says when it fires."""


def read(raw: object, *, timezone: str | None, window: str | None, now: datetime) -> Draft:
    """Read a user's schedule. Raises errors.Invalid with each field that is wrong."""
    return _Reader(_fields(raw, timezone, window), now).read()


@dataclass(frozen=True, slots=True)
class _Given:
    """One text and the field it was found in."""

    text: str
    path: str


@dataclass(slots=True)
class _Reader:
    """Reads the given fields, and goes on after a wrong one to find the others."""

    given: Mapping[str, _Given]
    now: datetime
    problems: list[errors.FieldProblem] = field(default_factory=list)

    def read(self) -> Draft:
        name, zone = self._zone()
        # Without a named zone a time must carry its offset: nobody means UTC by leaving it out.
        local = zone if "timezone" in self.given else None
        key = next(key for key in _KINDS if key in self.given)
        kind = self._kind(key, zone, local)
        window = self._try("window", windows.parse, windows.ACCEPTED)
        start = self._try("start", lambda text: instants.parse(text, local), instants.ACCEPTED)
        end = self._try("end", lambda text: instants.parse(text, local), instants.ACCEPTED)
        if start is not None and end is not None and end < start:
            self._refuse("end", f"the end comes before the start, {instants.write(start)}")
        if isinstance(kind, Once) and isinstance(window, Share):
            self._refuse(
                "window", "a one-off has no next slot to take a share of", 'a duration such as "10m"'
            )
        if self.problems or kind is None:
            raise errors.Invalid(self.problems)
        return Draft(kind, name, window, start, end, self.given[key].path)

    def _zone(self) -> tuple[str, tzinfo]:
        given = self.given.get("timezone")
        if given is None:
            return "UTC", UTC
        try:
            return given.text, zones.find(given.text, field=given.path)
        except errors.Invalid as error:
            self.problems.extend(error.problems)
            return "UTC", UTC

    def _kind(self, key: str, zone: tzinfo, local: tzinfo | None) -> Kind | None:
        if "anchor" in self.given and key != "every":
            self._refuse("anchor", f"an anchor goes with `every`, not with `{key}`")
        if key == "cron":
            return self._cron(zone)
        if key == "every":
            return self._every(local)
        return self._at(local) if key == "at" else self._in()

    def _cron(self, zone: tzinfo) -> CronTimes | None:
        given = self.given["cron"]
        try:
            expression = cron.parse(given.text)
        except errors.Invalid as error:
            self.problems.extend(error.under(given.path).problems)
            return None
        if not compiled(expression).can_match:
            days = [match.start() + 1 for match in _FIELD.finditer(given.text)][-3]
            self._refuse(
                "cron", "it never fires: no date has these days in these months", "days that exist", days
            )
        return CronTimes(expression, zone)

    def _every(self, local: tzinfo | None) -> FixedRate | None:
        every = self._try("every", durations.parse, durations.ACCEPTED)
        # By default the first slot comes one full period from now, as people expect of "every 15m"; it also keeps
        # jobs made at different times apart, where a common grid would make a herd of them.
        anchor: datetime | None = self.now.astimezone(UTC).replace(microsecond=0)
        if "anchor" in self.given:
            anchor = self._try("anchor", lambda text: instants.parse(text, local), instants.ACCEPTED)
        if every is not None and every < SHORTEST_EVERY:
            self._refuse("every", f"{durations.write(every)} is too often", "at least 1s")
            return None
        return FixedRate(every, anchor) if every is not None and anchor is not None else None

    def _at(self, local: tzinfo | None) -> Once | None:
        at = self._try("at", lambda text: instants.parse(text, local), instants.ACCEPTED)
        if at is not None and at <= self.now:
            self._refuse("at", f"{instants.write(at)} is past; it is now {instants.write(self.now)}")
        return Once(at) if at is not None else None

    def _in(self) -> Once | None:
        length = self._try("in", durations.parse, durations.ACCEPTED)
        if length is None:
            return None
        at = self.now.astimezone(UTC) + length
        if not length:
            self._refuse(
                "in", "no time at all is not in the future", "a duration above 0; or trigger the job"
            )
        elif at >= HORIZON:
            self._refuse("in", f"{instants.write(at)} is too far away", f"a time before {HORIZON.year}")
        return Once(at)

    def _try(self, key: str, parse: Callable[[str], T], accepted: str) -> T | None:
        given = self.given.get(key)
        if given is None:
            return None
        try:
            return parse(given.text)
        except ValueError as error:
            self._refuse(key, str(error).removesuffix(f"; write {accepted}"), accepted)
            return None

    def _refuse(self, key: str, message: str, accepted: str | None = None, column: int | None = None) -> None:
        self.problems.append(errors.FieldProblem(self.given[key].path, message, accepted, column))


def _fields(raw: object, timezone: str | None, window: str | None) -> dict[str, _Given]:
    """Gather the given texts by name, from a shorthand or an object and from beside it."""
    if isinstance(raw, str):
        found = _shorthand(raw)
    elif isinstance(raw, Mapping):
        found = _members(raw)
    else:
        raise errors.Invalid.field("schedule", "it is neither text nor an object", accepted=ACCEPTED)
    for key, text in (("timezone", timezone), ("window", window)):
        if text is None:
            continue
        if key in found and found[key].text.strip() != text.strip():
            raise errors.Invalid.field(
                key, f"it differs from the schedule's own {key}, {found[key].text[:64]!r}; give it once"
            )
        found.setdefault(key, _Given(text, key))
    return found


def _shorthand(raw: str) -> dict[str, _Given]:
    match = _SHORTHAND.fullmatch(raw) if len(raw) <= cron.LONGEST_TEXT else None
    key, text = (match[1].lower().removeprefix("@"), match[2]) if match else ("cron", raw)
    return {key: _Given(text, "schedule")}


def _members(raw: Mapping[object, object]) -> dict[str, _Given]:
    problems: list[errors.FieldProblem] = []
    found: dict[str, _Given] = {}
    for key, value in raw.items():
        if len(problems) > len(_KEYS):
            break  # it is no schedule at all; to explain each of a thousand names helps nobody
        if key not in _KEYS:
            problems.append(_unknown(str(key)))
        elif isinstance(value, str):
            found[str(key)] = _Given(value, f"schedule.{key}")
        elif value is not None:
            problems.append(errors.FieldProblem(f"schedule.{key}", "it is not text", _EXAMPLES[str(key)]))
    kinds = [key for key in _KINDS if key in found]
    if len(kinds) != 1 and not problems:
        given = "none is given" if not kinds else f"{' and '.join(kinds)} are given"
        problems.append(
            errors.FieldProblem("schedule", f"{given}; one is needed", f"one of {', '.join(_KINDS)}")
        )
    if problems:
        raise errors.Invalid(problems)
    return found


_EXAMPLES = {
    "cron": 'text such as "0 3 * * *"',
    "every": durations.ACCEPTED,
    "in": durations.ACCEPTED,
    "at": instants.ACCEPTED,
    "anchor": instants.ACCEPTED,
    "start": instants.ACCEPTED,
    "end": instants.ACCEPTED,
    "timezone": zones.ACCEPTED,
    "window": windows.ACCEPTED,
}


def _unknown(key: str) -> errors.FieldProblem:
    near = difflib.get_close_matches(key.lower()[:32], _KEYS, 1, 0.5)
    advice = f"; did you mean {near[0]}?" if near else ""
    return errors.FieldProblem(
        f"schedule.{key[:64]}", f"there is no such field{advice}", f"the fields {', '.join(_KEYS)}"
    )
