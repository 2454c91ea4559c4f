from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Calendar:
    text: str
    has_only_days: bool = True

    def canonical(self) -> str:
        return self.text

    def why(self, wall: datetime) -> str | None:
        return None

    def contains(self, wall: datetime) -> bool:
        return False

    def next_change(self, wall: datetime) -> datetime | None:
        return None


def load(text: str) -> Calendar:
    return Calendar(text)
