"""Zones, times and a calendar of every part, for the tests of calendars."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from cronwell.model import zones

BERLIN = zones.find("Europe/Berlin")


NEW_YORK = zones.find("America/New_York")


MINUTE = timedelta(minutes=1)


DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


EVERYTHING: dict[str, Any] = {
    "dates": ["2026-12-24", "2026-12-28/2027-01-02"],
    "rrules": [
        "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=31",
        {"rule": "FREQ=WEEKLY;INTERVAL=2", "start": "2026-01-09"},
    ],
    "holidays": [{"country": "DE", "region": "BY"}, {"country": "US"}],
    "hours": [
        {"days": "MON-FRI", "from": "09:00", "to": "17:30"},
        {"days": "SAT,SUN", "from": "00:00", "to": "24:00"},
    ],
    "windows": [
        {"from": "2026-12-20T18:00", "to": "2027-01-03T06:00"},
        {"from": "2026-06-01T10:00:30+02:00", "to": "2026-06-01T09:00:00Z"},
    ],
    "description": "when nobody is there, „Betriebsruhe“",
}


def berlin(text: str, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold)
