"""One spec of a schedule, as a user writes it: a text, or an object with one of cron, rrule, every, at, in.

A reader goes on after a wrong field to find the others; `Problems` gathers what is wrong.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, TypeVar

from cronwell import durations, errors
from cronwell.model import cron, dst, instants, recurrence, zones
from cronwell.model.cron import Days
from cronwell.model.dst import DstRule
from cronwell.model.instants import HORIZON
from cronwell.model.kinds import CronTimes, FixedDelay, FixedRate, Instants, Kind, RuleTimes
from cronwell.model.wallclock import compiled

ACCEPTED = (
    'cron text such as "0 3 * * *", "@hourly", "every 15m", "in 5m", "at 2027-05-05T10:00:00Z", '
    "or an object with one of cron, rrule, every, at, in, any"
)
KINDS = ("cron", "rrule", "every", "at", "in")
PARTS = ("anchor", "after", "days", "dst", "timezone")
"""What may stand beside a kind, in a schedule or in one of several specs."""
SHORTEST_EVERY = timedelta(seconds=1)
MOST_INSTANTS = 1000
MOST_EXPRESSIONS = 50

_SHORTHAND = re.compile(r"\s*(@?every|in|at)(?![\w*/,#(-])\s*(.*)", re.IGNORECASE | re.DOTALL)
_AFTER_FINISH = re.compile(r"(.*?)\s+after\s+finish\s*", re.IGNORECASE | re.DOTALL)
_FIELD = re.compile(r"\S+")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Given:
    """One value and the field it was found in."""

    value: Any
    path: str


@dataclass(slots=True)
class Problems:
    """What is wrong, gathered field by field."""

    found: list[errors.FieldProblem] = field(default_factory=list)

    def add(self, path: str, message: str, accepted: str | None = None, column: int | None = None) -> None:
        self.found.append(errors.FieldProblem(path, message, accepted, column))

    def add_all(self, error: errors.Invalid, path: str = "") -> None:
        self.found.extend((error.under(path) if path else error).problems)

    def attempt(self, given: Given | None, parse: Callable[[str], T], accepted: str) -> T | None:
        """Read a text; None where it is not given, or is wrong, which is noted."""
        if given is None:
            return None
        if not isinstance(given.value, str):
            self.add(given.path, "it is not text", accepted)
            return None
        try:
            return parse(given.value)
        except ValueError as error:
            self.add(given.path, str(error).removesuffix(f"; write {accepted}"), accepted)
            return None

    def choose(self, given: Given | None, choices: Sequence[T]) -> T | None:
        """Read one of a few words."""
        if given is None:
            return None
        if given.value in choices:
            return next(choice for choice in choices if choice == given.value)
        self.add(given.path, f"{str(given.value)[:32]!r} is not one of them", " or ".join(map(str, choices)))
        return None

    def refuse_unknown(self, path: str, key: str, known: Sequence[str]) -> None:
        near = difflib.get_close_matches(key.lower()[:32], known, 1, 0.5)
        advice = f"; did you mean {near[0]}?" if near else ""
        self.add(f"{path}.{key[:64]}", f"there is no such field{advice}", f"the fields {', '.join(known)}")


def shorthand(raw: str, path: str) -> dict[str, Given]:
    """The fields that a text stands for: cron unless it begins with every, in or at."""
    match = _SHORTHAND.fullmatch(raw) if len(raw) <= cron.LONGEST_TEXT else None
    if match is None:
        return {"cron": Given(raw, path)}
    key, text = match[1].lower().removeprefix("@"), match[2]
    if key == "every" and (delay := _AFTER_FINISH.fullmatch(text)) is not None:
        return {"every": Given(delay[1], path), "after": Given("finish", path)}
    return {key: Given(text, path)}


@dataclass(frozen=True, slots=True)
class SpecReader:
    """Reads the fields of one spec."""

    given: Mapping[str, Given]
    now: datetime
    seed: str
    problems: Problems

    def zone(self, default: tuple[str, tzinfo]) -> tuple[str, tzinfo]:
        given = self.given.get("timezone")
        if given is None:
            return default
        if not isinstance(given.value, str):
            self.problems.add(given.path, "it is not text", zones.ACCEPTED)
            return default
        try:
            return given.value, zones.find(given.value, field=given.path)
        except errors.Invalid as error:
            self.problems.add_all(error)
            return default

    def kinds(self, name: str, zone: tzinfo, *, is_named: bool) -> list[Kind]:
        """The kinds that the spec describes: several where it lists several expressions."""
        # Without a named zone a time must carry its offset: nobody means UTC by leaving it out.
        local = zone if is_named or "timezone" in self.given else None
        key = next(key for key in KINDS if key in self.given)
        self._check_parts(key)
        kinds: list[Kind | None]
        if key == "cron":
            kinds = [self._cron(given, name) for given in self._each("cron")]
        elif key == "rrule":
            kinds = [self._rule(given, name, zone) for given in self._each("rrule")]
        elif key == "every":
            kinds = [self._every(local)]
        else:
            kinds = [self._at(local) if key == "at" else self._in()]
        return [kind for kind in kinds if kind is not None]

    def _check_parts(self, key: str) -> None:
        owners = {
            "anchor": ("every", "rrule"),
            "after": ("every",),
            "days": ("cron",),
            "dst": ("cron", "rrule"),
        }
        for part, kinds in owners.items():
            if part in self.given and key not in kinds:
                self.problems.add(
                    self.given[part].path,
                    f"it goes with {' and '.join(f'`{k}`' for k in kinds)}, not with `{key}`",
                )

    def _each(self, key: str, most: int = MOST_EXPRESSIONS) -> list[Given]:
        """The values of a field that takes one or a list of them."""
        given = self.given[key]
        if not isinstance(given.value, list):
            return [given]
        if not 1 <= len(given.value) <= most:
            self.problems.add(given.path, f"{len(given.value)} are given", f"1 to {most} of them")
            return []
        return [Given(value, f"{given.path}.{place}") for place, value in enumerate(given.value)]

    def _cron(self, given: Given, name: str) -> CronTimes | None:
        choices: tuple[Days, ...] = ("or", "and")
        days = self.problems.choose(self.given.get("days"), choices)
        if not isinstance(given.value, str):
            self.problems.add(given.path, "it is not text", 'text such as "0 3 * * *"')
            return None
        try:
            expression = cron.parse(given.value, seed=self.seed, days=days or "or")
        except errors.Invalid as error:
            self.problems.add_all(error, given.path)
            return None
        if not compiled(expression).can_match:
            columns = [match.start() + 1 for match in _FIELD.finditer(given.value)]
            column = columns[{5: 2, 6: 3, 7: 3}[len(columns)]]
            self.problems.add(
                given.path,
                "it never fires: no date has these days in these months",
                "days that exist",
                column,
            )
        return CronTimes.of(
            expression, name, self._dst(dst.FIXED if expression.has_fixed_times else dst.FACE)
        )

    def _rule(self, given: Given, name: str, zone: tzinfo) -> RuleTimes | None:
        start = self.now.astimezone(zone).replace(microsecond=0)
        if "anchor" in self.given:
            anchor = self.problems.attempt(
                self.given["anchor"], lambda text: instants.parse(text, zone), instants.ACCEPTED
            )
            start = start if anchor is None else anchor.astimezone(zone).replace(microsecond=0)
        if not isinstance(given.value, str):
            self.problems.add(given.path, "it is not text", 'text such as "FREQ=MONTHLY;BYDAY=1MO"')
            return None
        try:
            faces = recurrence.parse(given.value, start.replace(tzinfo=None, fold=0))
        except errors.Invalid as error:
            self.problems.add_all(error, given.path)
            return None
        if not faces.can_match:
            self.problems.add(
                given.path, "it never fires: no date is what the rule asks for", "days that exist"
            )
        return RuleTimes.of(faces, name, self._dst(dst.FIXED if faces.has_fixed_times else dst.FACE))

    def _dst(self, default: DstRule) -> DstRule:
        given = self.given.get("dst")
        if given is None:
            return default
        if not isinstance(given.value, Mapping):
            self.problems.add(given.path, "it is not an object", '{"gap": "skip", "fold": "first"}')
            return default
        for key in given.value:
            if key not in ("gap", "fold"):
                self.problems.refuse_unknown(given.path, str(key), ("gap", "fold"))
        parts = {key: Given(value, f"{given.path}.{key}") for key, value in given.value.items()}
        gap = self.problems.choose(parts.get("gap"), dst.GAPS)
        fold = self.problems.choose(parts.get("fold"), dst.FOLDS)
        return DstRule(gap or default.gap, fold or default.fold)

    def _every(self, local: tzinfo | None) -> FixedRate | FixedDelay | None:
        every = self.problems.attempt(self.given["every"], durations.parse, durations.ACCEPTED)
        self.problems.choose(self.given.get("after"), ("finish",))
        # By default the first slot comes one full period from now, as people expect of "every 15m"; it also keeps
        # jobs made at different times apart, where a common grid would make a herd of them.
        now = self.now.astimezone(UTC).replace(microsecond=0)
        anchor = self.problems.attempt(
            self.given.get("anchor"), lambda text: instants.parse(text, local), instants.ACCEPTED
        )
        if every is None:
            return None
        if every < SHORTEST_EVERY:
            self.problems.add(
                self.given["every"].path, f"{durations.write(every)} is too often", "at least 1s"
            )
            return None
        if "after" in self.given:
            return FixedDelay(every, anchor if anchor is not None and anchor > self.now else now + every)
        return FixedRate(every, anchor or now)

    def _at(self, local: tzinfo | None) -> Instants | None:
        moments: set[datetime] = set()
        for given in self._each("at", MOST_INSTANTS):
            at = self.problems.attempt(given, lambda text: instants.parse(text, local), instants.ACCEPTED)
            if at is None:
                continue
            if at <= self.now:
                self.problems.add(
                    given.path, f"{instants.write(at)} is past; it is now {instants.write(self.now)}"
                )
            moments.add(at)
        return Instants(tuple(sorted(moments))) if moments else None

    def _in(self) -> Instants | None:
        path = self.given["in"].path
        length = self.problems.attempt(self.given["in"], durations.parse, durations.ACCEPTED)
        if length is None:
            return None
        at = self.now.astimezone(UTC) + length
        if not length:
            self.problems.add(
                path, "no time at all is not in the future", "a duration above 0; or trigger the job"
            )
        elif at >= HORIZON:
            self.problems.add(path, f"{instants.write(at)} is too far away", f"a time before {HORIZON.year}")
        return Instants((at,))
