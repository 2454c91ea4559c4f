"""Time zones: which names exist, and what a wall clock does where its zone jumps.

The rules come from the `tzdata` package alone, never from the machine's own files: two schedulers with
different system packages would disagree about a slot. Upgrading that package is how new rules arrive.

A wall-clock time is an aware datetime in its zone. Between two of the same zone Python compares and adds wall
time, which is what the search for a cron slot wants; instants are compared in UTC. With PEP 495 the offsets of
the two folds of a wall time tell everything about it:

    before == after   an ordinary time
    before <  after   missing: the clock jumped over it (the gap)
    before >  after   repeated: the clock was put back over it (the fold)
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from importlib import import_module, resources
from zoneinfo import ZoneInfo

from cronwell import errors

ACCEPTED = 'an IANA time zone name such as "Europe/Berlin", or "UTC"'
LONGEST_NAME = 64

_SECOND = timedelta(seconds=1)
# Shorter than any zone has kept an offset since 1970 (6 days and 23 hours, in tzdata 2026f), so no change is stepped over.
_STRIDE = timedelta(days=6)
# In the list of names but no place's time: the file that installers leave until a zone is chosen.
_NOT_ZONES = frozenset({"Factory", "localtime", "posixrules"})
_PRINTABLE = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of a zone's offset. At `at` (UTC) the wall clock goes from `before` to `after`."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def is_gap(self) -> bool:
        return self.after > self.before


@cache
def names() -> frozenset[str]:
    """Every name that is accepted, to the letter."""
    listed = resources.files("tzdata").joinpath("zones").read_text(encoding="ascii")
    return frozenset(listed.split()) - _NOT_ZONES


@cache
def version() -> str:
    """The release of the zones' rules that this process goes by, e.g. `2026b`."""
    release: str = import_module("tzdata").IANA_VERSION
    return release


def find(name: str, *, field: str = "timezone") -> tzinfo:
    """Return the zone of that name; a name that is not listed is refused with its nearest neighbours."""
    # Only listed names reach the package's files, so no text of a user is ever a path.
    if name not in names():
        raise errors.Invalid.field(field, _refusal(name), accepted=ACCEPTED)
    return _load(name)


def offsets(wall: datetime) -> tuple[timedelta, timedelta]:
    """Return the offsets that hold before and after the jump that `wall` may be part of."""
    return _offset(wall.replace(fold=0) if wall.fold else wall), _offset(wall.replace(fold=1))


def is_missing(wall: datetime) -> bool:
    before, after = offsets(wall)
    return before < after


def is_repeated(wall: datetime) -> bool:
    before, after = offsets(wall)
    return before > after


def jump(wall: datetime) -> Transition:
    """Return the transition that makes `wall` a missing or a repeated time."""
    before, after = offsets(wall)
    size = abs(after - before)
    # Whichever side of the jump `wall` lies on, the jump is less than its own size away from both readings.
    reading = wall.replace(fold=0, microsecond=0).astimezone(UTC)
    return Transition(_bisect(wall.tzinfo, reading - size, reading + size), before, after)


def wall_at(transition: Transition, zone: tzinfo | None, offset: timedelta) -> datetime:
    """Read the clock at a transition as if `offset` held there; it need not be a time that exists."""
    return (transition.at + offset).replace(tzinfo=zone)


def transitions(zone: tzinfo, after: datetime, until: datetime) -> Iterator[Transition]:
    """Yield the changes of offset in (after, until], oldest first."""
    for year in range(after.year, until.year + 1):
        for change in _changes(zone, year):
            if after < change.at <= until:
                yield change


@lru_cache(maxsize=4096)
def _changes(zone: tzinfo, year: int) -> tuple[Transition, ...]:
    """The changes in a year of UTC; one at its first instant is the year before's."""
    low = datetime(year, 1, 1, tzinfo=UTC)
    end = datetime(year + 1, 1, 1, tzinfo=UTC) if year < MAXYEAR else datetime(MAXYEAR, 12, 31, tzinfo=UTC)
    found: list[Transition] = []
    while low < end:
        high = min(low + _STRIDE, end)
        before, later = _offset(low.astimezone(zone)), _offset(high.astimezone(zone))
        if before != later:
            found.append(Transition(_bisect(zone, low, high), before, later))
        low = high
    return tuple(found)


@cache
def _load(name: str) -> tzinfo:
    if name in {"UTC", "Etc/UTC"}:
        return UTC
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def _offset(moment: datetime) -> timedelta:
    offset = moment.utcoffset()
    assert offset is not None, "only aware datetimes come here"
    return offset


def _bisect(zone: tzinfo | None, low: datetime, high: datetime) -> datetime:
    """Return the first second in (low, high] with the offset of `high`; one change lies between them."""
    seconds = int((high - low) / _SECOND)
    start, target = 0, _offset(high.astimezone(zone))
    while seconds - start > 1:
        middle = (start + seconds) // 2
        if _offset((low + middle * _SECOND).astimezone(zone)) == target:
            seconds = middle
        else:
            start = middle
    return low + seconds * _SECOND


def _refusal(name: str) -> str:
    if not name:
        return "the name is empty"
    if len(name) > LONGEST_NAME:
        return f"a zone's name has at most {LONGEST_NAME} characters, this one has {len(name)}"
    if not _PRINTABLE.fullmatch(name.replace(" ", "_")):
        return f"{name!r} has characters that no zone's name has"
    near = _nearest(name)
    advice = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"there is no time zone {name!r}{advice}"


def _nearest(name: str) -> list[str]:
    """Suggest by letter case, then by city, then by likeness."""
    folded = {known.lower(): known for known in sorted(names())}
    wanted = name.lower().replace(" ", "_")
    if wanted in folded:
        return [folded[wanted]]
    city = wanted.rsplit("/", 1)[-1]
    cities = [known for low, known in folded.items() if low.rsplit("/", 1)[-1] == city]
    if cities:
        return cities[:3]
    return [folded[low] for low in difflib.get_close_matches(wanted, folded, 3, 0.7)]
