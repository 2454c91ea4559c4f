"""What a user can do about targets: say what they bear, see which hosts keep failing, and why an execution waits for one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from cronwell import errors, telemetry
from cronwell.control.paging import read_cursor, write_cursor
from cronwell.control.views import Moment, Page, View
from cronwell.model import instants, throttle
from cronwell.model.throttle import HOST_PREFIX
from cronwell.runtime.clock import Clock
from cronwell.store.port import Execution, HostState, Store, TargetLimit

MOST_LIMITS = 1000
"""Of one tenant. Each worker knows those of all tenants."""
COUNTED = 10_000
"""Executions that wait for a target are counted up to this many."""

HostHealth = Literal["open", "recovering", "closed"]


class LimitView(View):
    """What a target bears, of the whole installation."""

    target: str
    """`host:NAME`, `host:NAME:PORT`, `handler:NAME` or `shell`."""
    rate: str | None
    """How many may start, such as `100/s`."""
    concurrency: int | None
    """How many may be under way at once."""
    breaker: bool
    """False: the host is called although it keeps failing."""
    held: int
    """How many executions wait for it now, counted up to 10,000."""
    created_at: Moment
    updated_at: Moment


class HostView(View):
    """A host that keeps failing, or did so lately."""

    host: str
    state: HostHealth
    """`open`: it is left alone; `recovering`: calls come back step by step; `closed`: it is called as any other."""
    since: Moment
    """When it began to be left alone."""
    failures: int
    """Calls in a row that failed, as the worker saw it that told."""
    failed_probes: int
    """Of the calls that tried it since."""
    next_probe_at: Moment | None
    """While it is open: when one call tries it."""
    error: str | None
    """How one of the calls failed."""
    held: int
    """How many executions wait for it now, counted up to 10,000."""
    changed_at: Moment


class Hosts:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def put_limit(
        self, tenant_id: int, text: str, *, rate: str | None, concurrency: int | None, breaker: bool
    ) -> tuple[LimitView, bool]:
        """Say what a target bears; True where nothing was said before. Workers keep to it within a heartbeat."""
        target = _target(text)
        if rate is not None:
            try:
                throttle.read_rate(rate)
            except ValueError as error:
                raise errors.Invalid.field("rate", str(error), accepted=throttle.ACCEPTED_RATE) from None
        if not breaker and not target.startswith(HOST_PREFIX):
            raise errors.Invalid.field("breaker", "only hosts have one", accepted="true, or none")
        if rate is None and concurrency is None and breaker:
            raise errors.Invalid.field(
                "body", "nothing is limited", accepted="rate, concurrency, or breaker: false"
            )
        await self._check_room(tenant_id, target)
        now = self._clock.now()
        kept, is_new = await self._store.put_limit(
            TargetLimit(tenant_id, target, rate, concurrency, breaker, now, now)
        )
        telemetry.limit_changed(target, rate=rate, concurrency=concurrency)
        [shown] = await self._limit_views(tenant_id, [kept])
        return shown, is_new

    async def get_limit(self, tenant_id: int, text: str) -> LimitView:
        found = await self._store.get_limit(tenant_id, _known_target(text))
        if found is None:
            raise _unlimited(text)
        [shown] = await self._limit_views(tenant_id, [found])
        return shown

    async def page_limits(self, tenant_id: int, *, cursor: str | None, limit: int) -> Page[LimitView]:
        """Limits by target."""
        place = read_cursor(cursor, 1)
        found = await self._store.list_limits(tenant_id, None if place is None else place[0], limit + 1)
        shown = await self._limit_views(tenant_id, found[:limit])
        following = write_cursor(shown[-1].target) if len(found) > limit else None
        return Page(items=shown, next_cursor=following)

    async def drop_limit(self, tenant_id: int, text: str) -> None:
        target = _known_target(text)
        if not await self._store.drop_limit(tenant_id, target):
            raise _unlimited(text)
        telemetry.limit_changed(target, rate=None, concurrency=None)

    async def get_host(self, tenant_id: int, text: str) -> HostView:
        host = _host(text)
        found = await self._store.get_host(tenant_id, host)
        if found is None:
            raise _unknown(host)
        [shown] = await self._host_views(tenant_id, [found])
        return shown

    async def page_hosts(
        self, tenant_id: int, *, state: HostHealth | None, cursor: str | None, limit: int
    ) -> Page[HostView]:
        """Hosts by name."""
        place = read_cursor(cursor, 1)
        after = None if place is None else place[0]
        found = await self._store.list_hosts(tenant_id, state, after, limit + 1)
        shown = await self._host_views(tenant_id, found[:limit])
        following = write_cursor(shown[-1].host) if len(found) > limit else None
        return Page(items=shown, next_cursor=following)

    async def close(self, tenant_id: int, text: str) -> HostView:
        """Say that a host is well: what waits for it comes again within a heartbeat."""
        host = _host(text)
        if not await self._store.close_host(tenant_id, host, self._clock.now()):
            found = await self.get_host(tenant_id, host)
            raise errors.IllegalState(f"{found.host} is called as any other: there is nothing to close")
        return await self.get_host(tenant_id, host)

    async def _check_room(self, tenant_id: int, target: str) -> None:
        """Refuse a limit too many."""
        if await self._store.get_limit(tenant_id, target) is not None:
            return
        if len(await self._store.list_limits(tenant_id, None, MOST_LIMITS)) == MOST_LIMITS:
            raise errors.Conflict(
                f"your tenant has {MOST_LIMITS} limits, and may not have more; delete some first"
            )

    async def _limit_views(self, tenant_id: int, limits: list[TargetLimit]) -> list[LimitView]:
        held = await self._held(tenant_id, (each.target for each in limits))
        return [
            LimitView(
                target=each.target,
                rate=each.rate,
                concurrency=each.concurrency,
                breaker=each.breaker,
                held=held.get(each.target, 0),
                created_at=each.created_at,
                updated_at=each.updated_at,
            )
            for each in limits
        ]

    async def _host_views(self, tenant_id: int, hosts: list[HostState]) -> list[HostView]:
        held = await self._held(tenant_id, (HOST_PREFIX + each.host for each in hosts))
        return [
            HostView(
                host=each.host,
                state=each.state,
                since=each.since,
                failures=each.failures,
                failed_probes=max(each.waits - 1, 0),
                next_probe_at=each.next_probe_at if each.state == "open" else None,
                error=each.error,
                held=held.get(HOST_PREFIX + each.host, 0),
                changed_at=each.changed_at,
            )
            for each in hosts
        ]

    async def _held(self, tenant_id: int, targets: Iterable[str]) -> dict[str, int]:
        return await self._store.count_held(tenant_id, list(targets), COUNTED)


async def why_held(store: Store, execution: Execution) -> dict[str, Any]:
    """What an explanation says of an execution that waits for its target; nothing of any other."""
    target = execution.held_by
    if not execution.is_held or target is None:
        return {}
    host = target.removeprefix(HOST_PREFIX)
    found = await store.get_host(execution.tenant_id, host) if target.startswith(HOST_PREFIX) else None
    again = f"It comes again at {_short(execution.ready_at)}, with all its attempts"
    if found is not None and found.state == "open":
        since, probe = _short(found.since), _short(found.next_probe_at)
        why = f"Held: host {host} has been failing since {since}, next probe at {probe}"
    elif found is not None and found.state == "recovering":
        why = (
            f"Held: host {host} answers again after failing since {_short(found.since)}, "
            "and calls come back step by step"
        )
    else:
        limit = await store.get_limit(execution.tenant_id, target)
        why = f"Held: {target} {_bears(limit)}"
    return {"verdict": "staged", "reason": "held", "sentence": f"{why}. {again}."}


def _bears(limit: TargetLimit | None) -> str:
    if limit is None or (limit.rate is None and limit.concurrency is None):
        return "could not take it when it was due"
    parts = [] if limit.rate is None else [limit.rate]
    if limit.concurrency is not None:
        parts.append(f"{limit.concurrency} at once")
    return f"is limited to {' and '.join(parts)}"


def _short(at: datetime) -> str:
    return instants.write(at.replace(microsecond=at.microsecond // 1000 * 1000))


def _target(text: str) -> str:
    try:
        return throttle.read_target(text)
    except ValueError as error:
        raise errors.Invalid.field("target", str(error), accepted=throttle.ACCEPTED_TARGET) from None


def _known_target(text: str) -> str:
    """The name of a target that may have a limit; what cannot be one has none."""
    try:
        return throttle.read_target(text)
    except ValueError:
        raise _unlimited(text) from None


def _host(text: str) -> str:
    """A host that may have failed; what cannot be one has not."""
    try:
        return throttle.read_host(text)
    except ValueError:
        raise _unknown(text) from None


def _unlimited(target: str) -> errors.NotFound:
    return errors.NotFound(f"nothing limits {target[:100]!r}; a target is {throttle.ACCEPTED_TARGET}")


def _unknown(host: str) -> errors.NotFound:
    return errors.NotFound(f"{host[:100]!r} has not kept failing: nothing is known of it")
