"""Injects faults, one after the other, by a seed: what, on whom, for how long, and how long a rest after it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.faults.broker import BrokerFrozen, BrokerKilled
from tests.faults.cables import CablePulled
from tests.faults.cluster import Cluster
from tests.faults.database_faults import (
    BackendsTerminated,
    DatabaseKilled,
    DatabaseRestarted,
    DiskFull,
    LongTransaction,
)
from tests.faults.etcd import EtcdKilled, EtcdSilent
from tests.faults.fault import Fault
from tests.faults.history import Window
from tests.faults.pace import lasting
from tests.faults.process_faults import (
    BusyLoop,
    ClockWrong,
    EverythingKilled,
    Frozen,
    Killed,
    RollingRestart,
)
from tests.faults.wire_faults import (
    CommitCut,
    CommitHeld,
    Cut,
    Delayed,
    Flapping,
    HalfClosed,
    NoticesSpoiled,
    OneWay,
    Partitioned,
)


def everything() -> list[Fault]:
    """Every fault that this machine allows."""
    faults: list[Fault] = [
        Killed("scheduler"),
        Killed("worker"),
        Killed("api"),
        Killed("scheduler", everyone=True, seconds=8.0),
        EverythingKilled(),
        Frozen("scheduler"),
        Frozen("worker"),
        BusyLoop(),
        ClockWrong("+1 h", "+3600"),
        ClockWrong("-1 h", "-3600"),
        ClockWrong("drifting", "+0 x1.02"),
        DatabaseRestarted("fast"),
        DatabaseRestarted("immediate"),
        DatabaseKilled(),
        BackendsTerminated(),
        LongTransaction(),
        DiskFull(),
        Cut("scheduler"),
        Cut("worker"),
        CommitCut("scheduler"),
        CommitCut("worker"),
        CommitCut("api"),
        CommitHeld("scheduler"),
        CommitHeld("worker"),
        Delayed("scheduler"),
        Delayed("worker"),
        HalfClosed("worker"),
        OneWay("scheduler", is_deaf=True),
        OneWay("worker", is_deaf=True),
        OneWay("worker", is_deaf=False),
        Flapping("scheduler"),
        Flapping("worker"),
        Partitioned("scheduler"),
        Partitioned("worker"),
        Partitioned("api"),
        CablePulled(),
        NoticesSpoiled("drop"),
        NoticesSpoiled("double"),
        NoticesSpoiled("replay"),
        RollingRestart(),
        EtcdKilled(),
        EtcdSilent(),
        BrokerKilled(),
        BrokerFrozen(),
        Fault(),
    ]
    return faults


class Nemesis:
    """Goes through the faults in an order of its own: all of them once, then all of them again."""

    def __init__(
        self,
        cluster: Cluster,
        faults: Sequence[Fault],
        seed: str,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._cluster = cluster
        self._faults = list(faults)
        self.random = random.Random(seed)
        self._tell = tell
        self.windows: list[Window] = []
        self.skipped: dict[str, str] = {}

    async def run(self, seconds: float, rest: tuple[float, float] = (2.0, 5.0)) -> None:
        """Inject until the time is over; each fault is healed before the next."""
        end = self._cluster.clock() + seconds
        while self._cluster.clock() < end:
            for fault in self.random.sample(self._faults, len(self._faults)):
                if self._cluster.clock() + fault.seconds > end:
                    continue
                if (reason := fault.impossible(self._cluster)) is not None:
                    self.skipped[fault.name] = reason
                    continue
                await self.inject(fault)
                # What comes late after a fault is to be its own, not the next one's.
                await self.recovered()
                await lasting(self.random.uniform(*rest))
            if not any(fault.seconds < end - self._cluster.clock() for fault in self._faults):
                return

    async def recovered(self) -> None:
        """Wait until the cluster is whole. One that does not get there goes on as it is: the checker shows why."""
        try:
            await self._cluster.until_ready()
        except AssertionError as error:
            self._tell(str(error))

    async def inject(self, fault: Fault) -> Window:
        """One fault, from its injection to its healing."""
        began = self._cluster.clock()
        self._tell(f"{fault.name} ...")
        subject = await fault.inject(self._cluster, self.random)
        try:
            await lasting(fault.seconds)
        finally:
            await fault.heal(self._cluster)
        window = Window(fault.name, subject, began, self._cluster.clock())
        self.windows.append(window)
        return window
