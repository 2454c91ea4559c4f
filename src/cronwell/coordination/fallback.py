"""Two coordinators: one that is preferred, and PostgreSQL for whenever not everybody can go by it.

Every member beats in both, always. What all of them go by is settled in PostgreSQL, without which nothing is staged anyway:
each member tells there whether it is ready to go by the preferred one, and that is gone by only while all of them are. So
nobody idles because its own way to the preferred coordinator is cut, no two halves go by different books for longer than
a beat, and a member that is cut off from PostgreSQL does not sit on duties that it could not do.

A member is ready while it reaches the preferred coordinator and both show the same members. Another installation under the
same prefix, or schedulers with other settings (as in the middle of a deploy), make the two differ, and then everybody goes
by PostgreSQL until they agree. Who was not ready becomes so after all has been well for a ttl, so that one that flaps
does not take all others along each time.

A change from one to the other moves nothing: each takes along what it holds. And should any of this be wrong, epochs are
numbered by PostgreSQL: two that stage one shard lose time and nothing else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from uuid import UUID

from cronwell import errors, telemetry
from cronwell.coordination.port import Coordination, Member, View
from cronwell.runtime.service import Service


class Fallback:
    """Implements `coordination.port.Coordination`, for one member."""

    def __init__(self, preferred: Coordination, reserve: Coordination) -> None:
        self._preferred = preferred
        self._reserve = reserve
        self._in_use = preferred
        self._is_ready = True
        self._apart_since: float | None = None
        self._well_since: float | None = None
        self._fellows: set[UUID] = set()
        """Who shared with this member at its last beat."""
        self._held: set[str] = set()
        self._held_deadline = 0.0
        self._asking: asyncio.Task[View] | None = None
        self._trouble = ""
        """What was last wrong with the preferred one, for the log."""

    async def beat(self, member: Member, ttl: timedelta) -> View:
        asked = time.monotonic()
        seconds = ttl.total_seconds()
        # Trust lasts 0.8 ttl and a beat is due each quarter: with these limits an answer of one of the two still comes in
        # time when the other one is silent.
        if self._is_ready:
            first = await self._ask_preferred(member, ttl, seconds / 4)
            self._is_ready = first is not None
            second = await self._ask_reserve(member, ttl, seconds / 2)
        else:
            first, second = await asyncio.gather(
                self._ask_preferred(member, ttl, seconds / 8), self._ask_reserve(member, ttl, seconds / 2)
            )
        if isinstance(second, Exception):
            if first is None:
                raise errors.CoordinationUnavailable(f"{self._trouble}; {second}") from second
            view = await self._go_by(self._preferred, first, member.id)
        else:
            self._judge(first, second, seconds)
            if first is not None and self._is_ready and all(each.reaches for each in second.members.values()):
                view = await self._go_by(self._preferred, first, member.id)
            else:
                view = await self._go_by(self._reserve, second, member.id)
        self._fellows = set(view.members)
        self._held = view.held_by(member.id)
        self._held_deadline = asked + seconds
        return view

    async def take(self, wanted: Mapping[str, UUID | None], member: UUID) -> set[str]:
        had = await self._in_use.take(wanted, member)
        self._held |= had
        return had

    async def give(self, names: Iterable[str], member: UUID) -> None:
        names = set(names)
        self._held -= names
        await self._in_use.give(names, member)

    async def leave(self, member: UUID) -> None:
        await self._stop_asking()
        self._held = set()
        both = [self._in_use, self._preferred if self._in_use is self._reserve else self._reserve]
        first, _ = await asyncio.gather(*(each.leave(member) for each in both), return_exceptions=True)
        # In the one that is not gone by, the others need not be told: there our membership may run out.
        if isinstance(first, BaseException):
            raise first

    def watch(self, on_change: Callable[[], None]) -> Service:
        return _Both(self._preferred.watch(on_change), self._reserve.watch(on_change))

    async def close(self) -> None:
        await self._stop_asking()
        await self._preferred.close()
        await self._reserve.close()

    def _judge(self, first: View | None, second: View, seconds: float) -> None:
        """Whether this member is ready to go by the preferred coordinator, from its next beat on."""
        now = time.monotonic()
        agree = first is not None and first.members.keys() == second.members.keys()
        # Who comes or goes does so in one of them before the other.
        self._apart_since = None if agree else self._apart_since or now
        if self._is_ready:
            self._well_since = None
            if first is None:
                self._is_ready = False
            elif self._apart_since is not None and now - self._apart_since > seconds:
                self._is_ready = False
                self._trouble = _difference(first, second)
        elif agree:
            self._well_since = self._well_since or now
            self._is_ready = now - self._well_since >= seconds
        else:
            self._well_since = None
        silent = sorted(str(each.id) for each in second.members.values() if not each.reaches)
        if silent and self._is_ready:
            self._trouble = f"schedulers {', '.join(silent)} do not go by it"

    async def _go_by(self, coordinator: Coordination, view: View, member: UUID) -> View:
        if coordinator is self._in_use:
            return view
        view = await self._take_along(coordinator, view, member)
        self._in_use = coordinator
        if coordinator is self._preferred:
            telemetry.coordination_restored()
        else:
            telemetry.coordination_fell_back(self._trouble)
        return view

    async def _take_along(self, coordinator: Coordination, view: View, member: UUID) -> View:
        """Have the same duties there as here. What is known no more is not taken along."""
        if time.monotonic() >= self._held_deadline or member not in view.members:
            return view
        there = view.held_by(member)
        if extra := there - self._held:
            await coordinator.give(extra, member)
        missing = {name: view.owners.get(name) for name in self._held - there}
        # A fellow whose name stands there takes along something else. Others, who went by this one all the time, keep theirs.
        others = view.members.keys() - self._fellows
        missing = {name: owner for name, owner in missing.items() if owner not in others}
        had = await coordinator.take(missing, member) if missing else set()
        if left := missing.keys() - had:
            # A fellow has given them back since they were seen under its name.
            had |= await coordinator.take(dict.fromkeys(left), member)
        owners = {name: owner for name, owner in view.owners.items() if name not in extra}
        return View(view.members, owners | dict.fromkeys(had, member))

    async def _ask_preferred(self, member: Member, ttl: timedelta, limit: float) -> View | None:
        """Beat in the preferred coordinator; None where it did not answer within `limit` seconds.

        A request that takes longer goes on: a connection and a login that are slow to make are there the next time.
        """
        if self._asking is not None and not self._asking.done():
            await asyncio.wait({self._asking}, timeout=limit)
            if not self._asking.done():
                return None
        # What an earlier one had to say is too old to be trusted.
        self._asking = asyncio.create_task(self._preferred.beat(member, ttl), name="beat")
        self._asking.add_done_callback(_see_to_it)
        await asyncio.wait({self._asking}, timeout=limit)
        if not self._asking.done():
            self._trouble = f"no answer within {limit:g} s"
            return None
        try:
            return self._asking.result()
        except errors.CoordinationUnavailable as error:
            self._trouble = str(error)
            return None

    async def _ask_reserve(self, member: Member, ttl: timedelta, limit: float) -> View | Exception:
        try:
            async with asyncio.timeout(limit):
                return await self._reserve.beat(dataclasses.replace(member, reaches=self._is_ready), ttl)
        except TimeoutError:
            return errors.CoordinationUnavailable(f"PostgreSQL: no answer within {limit:g} s")
        except errors.CoordinationUnavailable as error:
            return error

    async def _stop_asking(self) -> None:
        """Let no beat that is under way come after what follows."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})


class _Both(Service):
    """Runs two watches as one."""

    def __init__(self, *watches: Service) -> None:
        super().__init__("watch of duties", stop_deadline=max(each.stop_deadline for each in watches))
        self._watches = watches

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for each in self._watches:
                group.create_task(each.run(), name=each.name)

    def stop(self) -> None:
        for each in self._watches:
            each.stop()


def _see_to_it(task: asyncio.Task[View]) -> None:
    """Take note of its error, so that one that nobody asks for any more is not reported as forgotten."""
    if not task.cancelled():
        task.exception()


def _difference(first: View, second: View) -> str:
    parts = []
    for name, members in (
        ("in etcd", first.members.keys() - second.members.keys()),
        ("in PostgreSQL", second.members.keys() - first.members.keys()),
    ):
        if members:
            parts.append(f"schedulers {', '.join(sorted(map(str, members)))} are only {name}")
    return (
        f"{' and '.join(parts)}; all schedulers of an installation, and no others, "
        "must have the same CRONWELL_COORDINATION and CRONWELL_ETCD_PREFIX"
    )
