"""Every chore that schedulers have beside staging; each is done by one of them at a time."""

from __future__ import annotations

from cronwell.bus.port import Bus
from cronwell.config import Settings
from cronwell.control.calendars import Calendars
from cronwell.control.jobs import Jobs
from cronwell.control.overrides import Overrides
from cronwell.control.rearming import Rearming
from cronwell.control.tzdata import Tzdata
from cronwell.runtime.clock import Clock
from cronwell.scheduler.chores.alerting import Alerting
from cronwell.scheduler.chores.backfilling import Backfilling
from cronwell.scheduler.chores.calendars import FollowingCalendars
from cronwell.scheduler.chores.callbacks import CalledBack
from cronwell.scheduler.chores.chaining import Chaining
from cronwell.scheduler.chores.gating import Gating
from cronwell.scheduler.chores.overriding import Overriding
from cronwell.scheduler.chores.port import Chore
from cronwell.scheduler.chores.rescue import Rescue
from cronwell.scheduler.chores.retention import Retention
from cronwell.scheduler.chores.rezoning import Rezoning
from cronwell.scheduler.chores.scan import Scan
from cronwell.scheduler.chores.sealing import Sealing
from cronwell.scheduler.chores.upkeep import Finishing, Following, Resuming
from cronwell.store.port import Store


def every_chore(
    store: Store, bus: Bus, clock: Clock, settings: Settings, jobs: Jobs, overrides: Overrides
) -> list[Chore]:
    """Make them all."""
    calendars = Calendars(store, clock)
    return [
        Retention(store, clock, settings.retention),
        Rescue(store, clock),
        CalledBack(store, clock),
        Finishing(store, clock, settings.scheduler),
        Resuming(store, clock, jobs),
        Gating(store),
        Following(store, clock, settings.scheduler),
        FollowingCalendars(store, clock, settings.scheduler, calendars),
        Rezoning(Tzdata(store, clock, settings.scheduler, jobs), settings.scheduler),
        Overriding(store, clock, overrides, settings.retention),
        Backfilling(store, bus, clock, settings.retention),
        Chaining(store, bus, clock, settings.scheduler),
        Sealing(store),
        Alerting(store, bus, clock, settings),
        Scan(store, clock, Rearming(store, clock, settings.scheduler, calendars)),
    ]
