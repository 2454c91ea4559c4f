"""When the rules of zones have changed, move next slots to where they belong, or hold them, by the setting."""

from __future__ import annotations

from datetime import timedelta

from cronwell import telemetry
from cronwell.config import SchedulerSettings
from cronwell.control.tzdata import Tzdata
from cronwell.model import zones


class Rezoning:
    """Implements `Chore`.

    A process has one release for its life, so there is most to do right after a start; later rounds find what a scheduler
    of another release has staged meanwhile.
    """

    name = "rezoning"
    every = timedelta(hours=1)

    def __init__(self, tzdata: Tzdata, settings: SchedulerSettings) -> None:
        self._tzdata = tzdata
        self._settings = settings

    async def run_once(self) -> int:
        moved = await self._tzdata.settle_all()
        if moved:
            telemetry.rezoned(self._settings.tzdata, count=moved, tzdata=zones.version())
        return moved
