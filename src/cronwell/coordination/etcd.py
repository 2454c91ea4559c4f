"""Members and duties as keys in etcd.

    <prefix>members/<id>     {"weight": …, "reaches": …, "ttl": …}, written anew at each beat
    <prefix>duties/<name>    the owner's id

A beat is one transaction that writes the member's key and reads all of them. Who lives is judged by each observer for itself
(see `sightings`), because etcd's own leases last whole seconds, and longer than its elections take. All keys of a member
hang on such a lease all the same, a long one, so that what the dead leave behind goes away by itself and who leaves takes
everything along in one step.

The first who finds a member dead deletes its key, provided that it is still as it was seen: from then on everybody knows, and
the dead can take nothing. One that only slept comes back with its next beat.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson

from cronwell import errors
from cronwell.config import EtcdSettings
from cronwell.coordination.gateway import Gateway, Json, LeaseNotFound, decode, encode, starting_with
from cronwell.coordination.port import Member, View
from cronwell.coordination.sightings import Sightings
from cronwell.runtime.service import FIRST_BACKOFF, ErrorReport, Loop, Service

# etcd allows 128 operations in one transaction if it was not told otherwise.
LARGEST_BATCH = 100
SHORTEST_LEASE = 60
A_LITTLE = 0.002
SHORTEST_SILENCE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class _Own:
    """What this process knows of a member of its own. Deadlines are monotonic."""

    lease: int
    lease_seconds: int
    renew_deadline: float
    revision: int = 0
    live_deadline: float = 0.0
    """From when on others may believe in it no more."""


class EtcdCoordination:
    """Implements `coordination.port.Coordination`."""

    def __init__(self, address: str, settings: EtcdSettings, *, on_error: ErrorReport) -> None:
        self._gateway = Gateway(address, settings)
        self._observer = Observer(settings.prefix)
        self._members, self._duties = self._observer.members, self._observer.duties
        self._on_error = on_error
        self._own: dict[UUID, _Own] = {}

    async def beat(self, member: Member, ttl: timedelta) -> View:
        self._observer.longest_ttl = max(self._observer.longest_ttl, ttl)
        own = await self._renewed(member.id, ttl)
        try:
            return await self._beat(member, ttl, own)
        except LeaseNotFound:
            # It ran out while we were away, or this etcd has lost its data.
            del self._own[member.id]
            return await self._beat(member, ttl, await self._renewed(member.id, ttl))

    async def take(self, wanted: Mapping[str, UUID | None], member: UUID) -> set[str]:
        own = self._own.get(member)
        if own is None or time.monotonic() >= own.live_deadline:
            return set()
        is_member = {
            "key": encode(f"{self._members}{member}"),
            "target": "MOD",
            "result": "EQUAL",
            "mod_revision": own.revision,
        }
        had: set[str] = set()
        for names in _batches(sorted(wanted)):
            answer = await self._txn(
                [self._taking(name, wanted[name], member, own.lease) for name in names], compare=[is_member]
            )
            if not answer.get("succeeded"):
                return had
            for name, each in zip(names, answer["responses"], strict=True):
                taken = each["response_txn"]
                # One that is ours already was taken by a request whose answer was lost on the way.
                if taken.get("succeeded") or _value(taken["responses"][0]) == str(member):
                    had.add(name)
        return had

    async def give(self, names: Iterable[str], member: UUID) -> None:
        for some in _batches(sorted(set(names))):
            await self._txn([self._giving(name, member) for name in some])

    async def leave(self, member: UUID) -> None:
        own = self._own.get(member)
        if own is None:
            return
        with contextlib.suppress(LeaseNotFound):
            await self._gateway.call("/v3/lease/revoke", {"ID": own.lease})
        del self._own[member]

    def watch(self, on_change: Callable[[], None]) -> Service:
        return EtcdWatch(self._gateway, self._observer, on_change, on_error=self._on_error)

    async def close(self) -> None:
        await self._gateway.close()

    async def _beat(self, member: Member, ttl: timedelta, own: _Own) -> View:
        dead = [each for each in self._observer.dead if each != member.id][:LARGEST_BATCH]
        burials = [self._burying(each, self._observer.dead[each]) for each in dead]
        seconds = ttl.total_seconds()
        value = orjson.dumps({"weight": member.weight, "reaches": member.reaches, "ttl": seconds}).decode()
        asked = time.monotonic()
        answer = await self._txn(
            [
                *burials,
                {
                    "request_put": {
                        "key": encode(f"{self._members}{member.id}"),
                        "value": encode(value),
                        "lease": own.lease,
                    }
                },
                {"request_range": starting_with(self._members)},
                {"request_range": starting_with(self._duties)},
            ]
        )
        members, duties = (each["response_range"].get("kvs", []) for each in answer["responses"][-2:])
        self._own[member.id] = replace(
            own, revision=int(answer["header"]["revision"]), live_deadline=asked + seconds
        )
        return View(self._observer.living(members, asked), self._observer.owners(duties))

    async def _renewed(self, member: UUID, ttl: timedelta) -> _Own:
        """A lease that lasts longer than others will believe in the member."""
        own = self._own.get(member)
        asked = time.monotonic()
        if own is not None:
            if asked < own.renew_deadline:
                return own
            answer = await self._gateway.call("/v3/lease/keepalive", {"ID": own.lease})
            if int(answer["result"].get("TTL", 0)) > 0:
                own = replace(own, renew_deadline=asked + own.lease_seconds / 3)
                self._own[member] = own
                return own
        seconds = max(SHORTEST_LEASE, math.ceil(4 * ttl.total_seconds()))
        answer = await self._gateway.call("/v3/lease/grant", {"TTL": seconds})
        self._own[member] = own = _Own(int(answer["ID"]), seconds, asked + seconds / 3)
        return own

    async def _txn(self, success: Sequence[Json], compare: Sequence[Json] = ()) -> Json:
        return await self._gateway.call("/v3/kv/txn", {"compare": list(compare), "success": list(success)})

    # Each duty has a transaction of its own inside the one that is sent, so that one which has changed hands fails alone.

    def _taking(self, name: str, seen: UUID | None, member: UUID, lease: int) -> Json:
        key = encode(f"{self._duties}{name}")
        if seen is None:
            is_as_seen: dict[str, Any] = {"target": "VERSION", "version": 0}
        else:
            is_as_seen = {"target": "VALUE", "value": encode(str(seen))}
        return {
            "request_txn": {
                "compare": [{"key": key, "result": "EQUAL", **is_as_seen}],
                "success": [{"request_put": {"key": key, "value": encode(str(member)), "lease": lease}}],
                "failure": [{"request_range": {"key": key}}],
            }
        }

    def _giving(self, name: str, member: UUID) -> Json:
        key = encode(f"{self._duties}{name}")
        is_ours = {"key": key, "target": "VALUE", "result": "EQUAL", "value": encode(str(member))}
        return {
            "request_txn": {"compare": [is_ours], "success": [{"request_delete_range": {"key": key}}]},
        }

    def _burying(self, member: UUID, revision: int) -> Json:
        key = encode(f"{self._members}{member}")
        is_as_seen = {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision}
        return {
            "request_txn": {"compare": [is_as_seen], "success": [{"request_delete_range": {"key": key}}]},
        }


class Observer:
    """What this process has seen of the keys."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.members = f"{prefix}members/"
        self.duties = f"{prefix}duties/"
        self.dead: dict[UUID, int] = {}
        """Members whose keys are still there, with their revisions."""
        self.longest_ttl = timedelta()
        self._sightings = Sightings()

    def living(self, found: Sequence[Json], asked: float) -> dict[UUID, Member]:
        """The members that live, of the keys in the answer to a question of `asked`."""
        answered = time.monotonic()
        living, dead = {}, {}
        for member, revision, ttl in filter(None, map(self._read, found)):
            self._sightings.see(member.id, revision, ttl, answered)
            if self._sightings.is_dead(member.id, asked):
                dead[member.id] = revision
            else:
                living[member.id] = member
        self.dead = dead
        self._sightings.keep(living.keys() | dead.keys())
        return living

    def owners(self, found: Sequence[Json]) -> dict[str, UUID]:
        """Who was last given each duty."""
        owners = {}
        for entry in found:
            with contextlib.suppress(ValueError, KeyError):
                owners[decode(entry["key"]).removeprefix(self.duties)] = UUID(decode(entry["value"]))
        return owners

    def hear(self, event: Json) -> bool:
        """Note a change of a key; whether it is one to look at once for. A beat is not."""
        entry = event["kv"]
        if event.get("type") == "DELETE":
            return True
        if (read := self._read(entry)) is None:
            return False
        member, revision, ttl = read
        self._sightings.hear(member.id, revision, ttl, time.monotonic())
        return bool(entry.get("create_revision") == entry["mod_revision"])

    def next_death(self) -> float | None:
        """When the time of a member is up, if nothing more is heard of it."""
        return self._sightings.next_death(time.monotonic())

    def _read(self, entry: Json) -> tuple[Member, int, float] | None:
        """A member, its revision and its ttl; None for any other key."""
        try:
            told = orjson.loads(decode(entry["value"]))
            member = UUID(decode(entry["key"]).removeprefix(self.members))
            found = Member(member, float(told["weight"]), bool(told["reaches"]))
            return found, int(entry["mod_revision"]), float(told["ttl"])
        except (ValueError, KeyError, TypeError):
            return None


class EtcdWatch(Service):
    """Follows etcd's watch, and comes back after every loss.

    It tells of members that come or go and of duties that are given back, and when a member's time is up. It also hears
    every beat, by which others are seen to live a little earlier than at the next beat of one's own.
    """

    def __init__(
        self, gateway: Gateway, observer: Observer, on_change: Callable[[], None], *, on_error: ErrorReport
    ) -> None:
        super().__init__("watch of etcd", stop_deadline=timedelta(seconds=2))
        self._gateway = gateway
        self._observer = observer
        self._on_change = on_change
        self._on_error = on_error
        self._stopping = asyncio.Event()
        # One round is the life of one stream; the loop reconnects with its usual back-off.
        self._loop = Loop(self.name, self._follow, on_error=on_error)
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: float | None = None

    async def run(self) -> None:
        """Watch until stopped."""
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._loop.run(), name=self.name)
            await self._stopping.wait()
            # Nothing is under way that an orderly end would save.
            following.cancel()
        self._set_alarm(None)

    def stop(self) -> None:
        self._stopping.set()

    async def _follow(self) -> float:
        # No revision is asked for: what was before is seen by who is told to look now, and cannot have been compacted.
        wanted = {"create_request": starting_with(self._observer.prefix)}
        # A living process hears at least its own beats.
        silence = max(SHORTEST_SILENCE, 2 * self._observer.longest_ttl)
        is_connected = False
        async with self._gateway.stream("/v3/watch", wanted, silence=silence) as answers:
            try:
                async for answer in answers:
                    self._hear(answer)
                    is_connected = True
                    self._succeeded()
            except errors.CoordinationUnavailable as error:
                if not is_connected:
                    raise
                # Not raised: it was connected, so the next back-off starts small again.
                self._on_error(self.name, error, FIRST_BACKOFF)
        return FIRST_BACKOFF

    def _hear(self, answer: Json) -> None:
        if answer.get("canceled"):
            why = answer.get("cancel_reason") or f"compacted up to {answer.get('compact_revision')}"
            raise errors.CoordinationUnavailable(f"etcd ended the watch: {why}")
        # All of them are noted, also after the first that is worth a look.
        changes = [self._observer.hear(event) for event in answer.get("events", ())]
        if answer.get("created") or any(changes):
            self._on_change()
        self._set_alarm(self._observer.next_death())

    def _set_alarm(self, at: float | None) -> None:
        if at == self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at, self._alarm = at, None
        if at is not None:
            # A little later: who asks too early learns nothing and asks again only at its next beat.
            delay = at - time.monotonic() + A_LITTLE
            self._alarm = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        self._alarm = self._alarm_at = None
        self._on_change()
        self._set_alarm(self._observer.next_death())


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(names), LARGEST_BATCH):
        yield names[first : first + LARGEST_BATCH]


def _value(response: Json) -> str | None:
    """The value in the answer to a question for one key."""
    found = response["response_range"].get("kvs", [])
    return decode(found[0]["value"]) if found else None
