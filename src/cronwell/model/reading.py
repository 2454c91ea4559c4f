"""What a user writes for a schedule, read into a draft, or refused with every wrong field at once.

"0 3 * * *"   "@hourly"   "every 15m"   "every 5m after finish"   "in 5m"   "at 2027-05-05T10:00:00Z"
{"cron" | "rrule" | "every" | "at" | "in" | "any": …, …}

`any` is a list of specs whose slots are united; `except` is a list of specs whose slots are taken away; `exclude`, `only`
and `shift` speak of calendars; `start`, `end`, `max_runs`, `timezone` and `window` are for the whole.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo

from cronwell import errors
from cronwell.model import filters, instants
from cronwell.model import window as windows
from cronwell.model.calendars import Calendar
from cronwell.model.filters import Filter, Named
from cronwell.model.kinds import FixedDelay, Instants, Kind
from cronwell.model.specs import ACCEPTED, KINDS, PARTS, Given, Problems, SpecReader, shorthand
from cronwell.model.window import Share, Window

MOST_SPECS = 50
MOST_CALENDARS = 10
MOST_RUNS = 1_000_000

_WHOLE = ("window", "start", "end", "max_runs", "except", "exclude", "only", "shift")
_KEYS = (*KINDS, "any", *PARTS, *_WHOLE)
_SPEC_KEYS = (*KINDS[:-1], *PARTS)


@dataclass(frozen=True, slots=True)
class Draft:
    """A schedule whose every part is well formed; whether it ever fires is not settled."""

    kinds: tuple[Kind, ...]
    timezone: str
    window: Window | None
    start: datetime | None
    end: datetime | None
    excepts: tuple[Kind, ...]
    filter: Filter | None
    max_runs: int | None
    path: str
    """The field that says when it fires."""


def read(
    raw: object,
    *,
    timezone: str | None,
    window: str | None,
    now: datetime,
    seed: str,
    calendars: Mapping[str, Calendar],
) -> Draft:
    """Read a user's schedule. Raises errors.Invalid with each field that is wrong."""
    problems = Problems()
    given = _fields(raw, problems)
    for key, text in (("timezone", timezone), ("window", window)):
        if text is None:
            continue
        own = given.get(key)
        if own is not None and str(own.value).strip() != text.strip():
            problems.add(
                key, f"it differs from the schedule's own {key}, {str(own.value)[:64]!r}; give it once"
            )
        given.setdefault(key, Given(text, key))
    if problems.found:
        raise errors.Invalid(problems.found)
    return _Reader(given, now, seed, calendars, problems).read()


def calendar_names(raw: object) -> set[str]:
    """The calendars that a schedule names, so that they can be looked up before it is read."""
    # A text names none. Asked first: whether something is a mapping takes ten times as long to find out.
    if isinstance(raw, str) or not isinstance(raw, Mapping):
        return set()
    listed = [_as_list(raw.get(key)) for key in ("exclude", "only")]
    return {name for names in listed for name in names[:MOST_CALENDARS] if isinstance(name, str)}


@dataclass(slots=True)
class _Reader:
    given: Mapping[str, Given]
    now: datetime
    seed: str
    calendars: Mapping[str, Calendar]
    problems: Problems = field(default_factory=Problems)

    def read(self) -> Draft:
        whole = SpecReader(self.given, self.now, self.seed, self.problems)
        zone = whole.zone(("UTC", UTC))
        local = zone[1] if "timezone" in self.given else None
        if "any" in self.given:
            path = self.given["any"].path
            for part in ("anchor", "after", "days", "dst"):
                if part in self.given:
                    self.problems.add(
                        self.given[part].path, "it goes into the specs of `any`, beside their kind"
                    )
            kinds = self._specs("any", zone)
        else:
            path = next(self.given[key].path for key in KINDS if key in self.given)
            kinds = whole.kinds(*zone, is_named=local is not None)
        excepts = self._specs("except", zone)
        window = self.problems.attempt(self.given.get("window"), windows.parse, windows.ACCEPTED)
        start, end = self._bounds(local)
        draft = Draft(
            kinds=tuple(kinds),
            timezone=zone[0],
            window=window,
            start=start,
            end=end,
            excepts=tuple(excepts),
            filter=self._filter(),
            max_runs=self._max_runs(),
            path=path,
        )
        self._check(draft)
        if self.problems.found or not kinds:
            raise errors.Invalid(self.problems.found)
        return draft

    def _bounds(self, local: tzinfo | None) -> tuple[datetime | None, datetime | None]:
        start, end = (
            self.problems.attempt(
                self.given.get(key), lambda text: instants.parse(text, local), instants.ACCEPTED
            )
            for key in ("start", "end")
        )
        if start is not None and end is not None and end < start:
            self.problems.add(
                self.given["end"].path, f"the end comes before the start, {instants.write(start)}"
            )
        return start, end

    def _specs(self, key: str, zone: tuple[str, tzinfo]) -> list[Kind]:
        given = self.given.get(key)
        if given is None:
            return []
        listed = _as_list(given.value)
        if not 1 <= len(listed) <= MOST_SPECS:
            self.problems.add(given.path, f"{len(listed)} specs are given", f"1 to {MOST_SPECS} specs")
            return []
        found: list[Kind] = []
        for place, spec in enumerate(listed):
            path = f"{given.path}.{place}" if isinstance(given.value, list) else given.path
            fields = _spec_fields(spec, path, _SPEC_KEYS, KINDS[:-1], self.problems)
            if fields:
                # An exception may well lie in the past: it takes nothing away then, and need not be edited out.
                now = self.now if key == "any" else instants.EARLIEST
                reader = SpecReader(fields, now, self.seed, self.problems)
                found += reader.kinds(*reader.zone(zone), is_named="timezone" in self.given)
        return found

    def _filter(self) -> Filter | None:
        exclude, only = self._calendars("exclude"), self._calendars("only")
        shift = self.problems.choose(self.given.get("shift"), filters.SHIFTS)
        if shift is not None and not (self.given.get("exclude") or self.given.get("only")):
            self.problems.add(
                self.given["shift"].path,
                "it needs calendars that say which days are closed",
                "an `exclude` beside it",
            )
        if shift is not None and not all(each.calendar.has_only_days for each in (*exclude, *only)):
            self.problems.add(self.given["shift"].path, "it needs calendars that consist of whole days")
        return Filter(exclude, only, shift) if exclude or only else None

    def _calendars(self, key: str) -> tuple[Named, ...]:
        given = self.given.get(key)
        if given is None:
            return ()
        listed = _as_list(given.value)
        if not 1 <= len(listed) <= MOST_CALENDARS:
            self.problems.add(
                given.path, f"{len(listed)} calendars are named", f"1 to {MOST_CALENDARS} names"
            )
            return ()
        found: list[Named] = []
        for place, name in enumerate(listed):
            path = f"{given.path}.{place}" if isinstance(given.value, list) else given.path
            if not isinstance(name, str):
                self.problems.add(path, "it is not text", "a calendar's name")
            elif name not in self.calendars:
                near = difflib.get_close_matches(name[:100], self.calendars, 1, 0.5)
                advice = f"; did you mean {near[0]}?" if near else ""
                self.problems.add(
                    path, f"there is no calendar {name[:100]!r}{advice}", "the name of a calendar"
                )
            else:
                found.append(Named(name, self.calendars[name]))
        return tuple(found)

    def _max_runs(self) -> int | None:
        given = self.given.get("max_runs")
        if given is None:
            return None
        value = given.value
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_RUNS:
            self.problems.add(
                given.path, "it is not such a number", f"a whole number from 1 to {MOST_RUNS:,}"
            )
            return None
        return value

    def _check(self, draft: Draft) -> None:
        if isinstance(draft.window, Share) and all(isinstance(kind, Instants) for kind in draft.kinds):
            self.problems.add(
                self.given["window"].path,
                "instants have no rhythm to take a share of",
                'a duration such as "10m"',
            )
        if any(isinstance(kind, FixedDelay) for kind in draft.kinds):
            for key in ("any", "except", "exclude", "only", "shift", "window"):
                if key in self.given:
                    self.problems.add(
                        self.given[key].path,
                        "it cannot be combined with `after finish`, whose slots are not known ahead",
                    )


def _fields(raw: object, problems: Problems) -> dict[str, Given]:
    """Gather the given values by name, from a shorthand or an object."""
    if not isinstance(raw, (str, Mapping)):
        raise errors.Invalid.field("schedule", "it is neither text nor an object", accepted=ACCEPTED)
    return _spec_fields(raw, "schedule", _KEYS, (*KINDS, "any"), problems)


def _spec_fields(
    raw: object, path: str, known: tuple[str, ...], kinds: tuple[str, ...], problems: Problems
) -> dict[str, Given]:
    if isinstance(raw, str):
        found = shorthand(raw, path)
        if next(iter(found)) not in kinds:
            problems.add(path, "`in` does not go here; write the time with `at`")
            return {}
        return found
    if not isinstance(raw, Mapping):
        problems.add(path, "it is neither text nor an object", ACCEPTED)
        return {}
    before = len(problems.found)
    found = {}
    for key, value in raw.items():
        if len(problems.found) - before > len(known):
            break  # it is no schedule at all; to explain each of a thousand names helps nobody
        if key not in known:
            problems.refuse_unknown(path, str(key), known)
        elif value is not None:
            found[str(key)] = Given(value, f"{path}.{key}")
    chosen = [key for key in kinds if key in found]
    if len(chosen) != 1 and len(problems.found) == before:
        given = "none is given" if not chosen else f"{' and '.join(chosen)} are given"
        problems.add(path, f"{given}; one is needed", f"one of {', '.join(kinds)}")
    return found if len(problems.found) == before else {}


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [] if value is None else [value]
