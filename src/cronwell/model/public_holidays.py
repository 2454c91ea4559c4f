"""Public holidays of countries and regions, from the `holidays` package, year by year.

The package is loaded when the first holiday is asked for: it takes 0.1 to 0.2 s, and a country's first year as long
again (November 2026). After that a year costs a third of a millisecond, once.
"""

from __future__ import annotations

import difflib
import warnings
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from cronwell.errors import FieldProblem

if TYPE_CHECKING:
    from holidays import HolidayBase

LONGEST_CODE = 64

_LANGUAGE = "en_US"


@dataclass(frozen=True, slots=True)
class Year:
    """The holidays of one year."""

    days: tuple[date, ...]
    """In order."""
    names: Mapping[date, str]

    def first_after(self, day: date) -> date | None:
        place = bisect_right(self.days, day)
        return self.days[place] if place < len(self.days) else None


@lru_cache(maxsize=4096)
def of(country: str, region: str | None, year: int) -> Year:
    """Return a year's holidays, under their English names where the package has them; empty where it knows none."""
    from holidays import country_holidays  # noqa: PLC0415  # large: see above

    speaks_english = _LANGUAGE in _entity(country).supported_languages
    with warnings.catch_warnings():
        # That a lunar calendar is known up to 2035 only: nobody who could mend it would read it.
        warnings.simplefilter("ignore", UserWarning)
        found = country_holidays(
            country, subdiv=region, years=year, expand=False, language=_LANGUAGE if speaks_english else None
        )
    names = {day: found[day] for day in sorted(found)}
    return Year(tuple(names), names)


def check(country: str, region: str | None, field: str) -> list[FieldProblem]:
    """Say what is wrong with a country and its region; nothing when both are known."""
    if country not in countries():
        return [
            FieldProblem(
                f"{field}.country",
                f"there is no country {country[:LONGEST_CODE]!r}{_hint(country, _names_of_countries())}",
                'an ISO 3166 code of two letters such as "DE"',
            )
        ]
    if region is None or region in regions(country):
        return []
    known = {code: code for code in regions(country)} | _entity(country).subdivisions_aliases
    if not known:
        return [FieldProblem(f"{field}.region", f"{country} has no regions with holidays of their own")]
    return [
        FieldProblem(
            f"{field}.region",
            f"{country} has no region {region[:LONGEST_CODE]!r}{_hint(region, known)}",
            f"one of {', '.join(regions(country))}",
        )
    ]


@cache
def countries() -> frozenset[str]:
    """The codes of all known countries."""
    return frozenset(_names_of_countries().values())


def regions(country: str) -> tuple[str, ...]:
    """The codes of a known country's regions."""
    return tuple(_entity(country).subdivisions)


@cache
def _names_of_countries() -> dict[str, str]:
    """Return the codes by name, by code of three letters and by themselves."""
    from holidays.registry import COUNTRIES  # noqa: PLC0415  # large: see above

    codes: dict[str, str] = {}
    for module, (_, two, three, *_) in COUNTRIES.items():
        codes |= {module.replace("_", " "): two, three: two, two: two}
    return codes


@cache
def _entity(country: str) -> type[HolidayBase]:
    import holidays  # noqa: PLC0415  # large: see above

    entity = getattr(holidays, country)
    return type(entity())


def _hint(wanted: str, known: Mapping[str, str]) -> str:
    """Suggest the code that was meant, by name or by likeness."""
    folded = {name.casefold(): code for name, code in known.items()}
    near = difflib.get_close_matches(wanted[:LONGEST_CODE].casefold(), folded, 1, 0.6)
    return f"; did you mean {folded[near[0]]}?" if near else ""
