"""Hosts that keep failing are left alone and let come back; what a target bears is kept; low priority is not starved."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web

from cronwell import errors
from cronwell.control.hosts import Hosts
from cronwell.model.execution import ExecutionKey, State
from cronwell.settings import HttpSettings
from cronwell.store.port import Execution, ExecutionFilter
from cronwell.targets.egress import Egress
from cronwell.targets.handler import Context
from cronwell.targets.http import HttpRunner
from tests.support.house import TENANT, House
from tests.support.waiting import until, until_async

BEAT = timedelta(milliseconds=100)
MOMENT = timedelta(milliseconds=200)
# What is held is claimed again no earlier than it is ready, so that a test sees it wait.
ILL = {
    "breaker": 3,
    "breaker_wait": MOMENT,
    "breaker_longest": 2 * MOMENT,
    "heartbeat": BEAT,
    "pre_claim": timedelta(milliseconds=10),
}


@dataclass
class Site:
    """A host of ours, which is well or ill."""

    port: int = 0
    status: int = 200
    calls: list[tuple[float, str]] = field(default_factory=list)
    """When, and for which execution."""
    now: int = 0
    most: int = 0
    takes: float = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/run"

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    def count(self) -> Counter[str]:
        return Counter(execution for _, execution in self.calls)


async def _busy(seconds: float) -> None:
    """Take a while."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


@asynccontextmanager
async def a_site(**fields: Any) -> AsyncIterator[Site]:
    site = Site(**fields)

    async def take(request: web.Request) -> web.Response:
        site.calls.append((time.monotonic(), request.headers["webhook-id"]))
        site.now += 1
        site.most = max(site.most, site.now)
        await _busy(site.takes)
        site.now -= 1
        return web.Response(status=site.status)

    app = web.Application()
    app.router.add_post("/run", take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    listener = web.TCPSite(runner, "127.0.0.1", 0)
    await listener.start()
    site.port = runner.addresses[0][1]
    try:
        yield site
    finally:
        await runner.cleanup()


@asynccontextmanager
async def working(house: House, **settings: Any) -> AsyncIterator[None]:
    """A worker that calls hosts of this machine."""
    http = HttpRunner(house.settings.http, Egress(("127.0.0.0/8",)), house.clock, 1000)
    async with house.working({"http": http}, **{"heartbeat": BEAT, **settings}):
        yield
    await http.close()


async def _jobs(house: House, site: Site, count: int, name: str = "job", **fields: Any) -> list[UUID]:
    target = {"http": {"url": site.url}}
    retry = {"max_attempts": 2, "initial_delay": "50ms", "max_delay": "50ms", "jitter": 0}
    fields = {"target": target, "overlap": "allow", "retry": retry, **fields}
    return [await house.create(f"{name}-{number}", **fields) for number in range(count)]


async def _trigger(house: House, count: int, name: str = "job") -> list[ExecutionKey]:
    return [await house.trigger(f"{name}-{number}") for number in range(count)]


async def _states(house: House) -> Counter[State]:
    return Counter(each.state for each in await house.history())


async def _until_all(house: House, state: State, count: int, within: float = 30.0) -> None:
    async def reached() -> bool:
        return (await _states(house))[state] == count

    await until_async(reached, within=within)


async def test_an_ill_host_gets_few_calls_and_all_that_waited_once_it_is_well(house: House) -> None:
    hosts = Hosts(house.store, house.clock)
    async with a_site(status=503) as ill, a_site() as well:
        # As many attempts as there can be trials: on a slow machine one execution may be the trial several times.
        await _jobs(house, ill, 40, retry={"max_attempts": 50, "initial_delay": "10ms", "max_delay": "10ms"})
        await _jobs(house, well, 10, "other")
        async with working(house, **ILL):
            keys = await _trigger(house, 40)
            await until_async(lambda: _is(hosts, ill, "open"))
            began = len(ill.calls)
            others = await _trigger(house, 10, "other")
            for key in others:
                done = await house.until_state(key, State.SUCCEEDED)
                assert done.attempt == 1
            shown = await hosts.get_host(TENANT, ill.name)
            assert shown.failures >= 3
            assert shown.held > 10
            assert shown.error is not None
            assert "503" in shown.error
            # Several waits have passed; each lets one call through.
            trials = len(ill.calls)
            await until(lambda: len(ill.calls) >= trials + 3)
            assert len(ill.calls) < began + 20
            ill.status = 200
            await _until_all(house, State.SUCCEEDED, 50)
            await until_async(lambda: _is(hosts, ill, "closed"))
    counted = ill.count()
    assert set(counted) == {str(key) for key in keys}
    # What is held uses up no attempt.
    for key in keys:
        assert (await house.get(key)).attempt == counted[str(key)]


async def _is(hosts: Hosts, site: Site, state: str) -> bool:
    try:
        return (await hosts.get_host(TENANT, site.name)).state == state
    except errors.NotFound:
        return False


async def test_what_is_held_is_explained_cancelled_paused_and_survives_a_drain(house: House) -> None:
    hosts = Hosts(house.store, house.clock)
    async with a_site(status=500) as ill:
        await _jobs(house, ill, 3, "first", retry={"max_attempts": 1})
        explained, cancelled, paused, kept = await _jobs(house, ill, 4, schedule="in 2s")
        async with working(
            house, **ILL | {"breaker_wait": timedelta(minutes=1), "breaker_longest": timedelta(minutes=1)}
        ):
            await _trigger(house, 3, "first")
            await _until_all(house, State.FAILED, 3)
            keys = {job: (await house.history(job))[0].key for job in (explained, cancelled, paused, kept)}

            async def are_held() -> bool:
                return all([(await house.get(key)).is_held for key in keys.values()])

            await until_async(are_held)
            assert len(ill.calls) == 3
            slot = keys[explained].slot.isoformat()
            told = await house.explain.explain(TENANT, str(explained), slot)
            assert (told.verdict, told.reason) == ("staged", "held")
            assert f"Held: host {ill.name} has been failing since 20" in told.sentence
            assert ", next probe at 20" in told.sentence
            assert told.execution is not None
            assert told.execution.held_by == f"host:{ill.name}"
            assert told.execution.attempt == 0
            await house.executions.cancel(TENANT, str(keys[cancelled]))
            assert (await house.get(keys[cancelled])).state is State.CANCELLED
            await house.jobs.pause(TENANT, str(paused))
            assert (await house.get(keys[paused])).state is State.SKIPPED
        # The worker is gone; what it held back waits for another, which first hears that the host is ill.
        assert (await house.get(keys[kept])).state is State.PENDING
        ill.status = 200
        async with working(house, **ILL):
            assert (await house.get(keys[kept])).is_held
            assert len(ill.calls) == 3
            assert (await hosts.close(TENANT, ill.name)).state == "closed"
            done = await house.until_state(keys[kept], State.SUCCEEDED)
            assert done.attempt == 1
            await house.until_state(keys[explained], State.SUCCEEDED)
        assert len(ill.calls) == 5
        with pytest.raises(errors.IllegalState, match="nothing to close"):
            await hosts.close(TENANT, ill.name)
        with pytest.raises(errors.NotFound, match="not kept failing"):
            await hosts.close(TENANT, "example.com")


async def test_two_workers_keep_one_rate_together(house: House) -> None:
    hosts = Hosts(house.store, house.clock)
    count, rate = 40, 20
    async with a_site() as site, a_site() as other:
        await hosts.put_limit(TENANT, f"host:{site.name}", rate=f"{rate}/s", concurrency=None, breaker=True)
        await _jobs(house, site, count)
        await _jobs(house, other, 10, "other")
        await _trigger(house, count)
        async with working(house), working(house):
            keys = await _trigger(house, 10, "other")
            for key in keys:
                await house.until_state(key, State.SUCCEEDED)
            assert await until_async(lambda: _one_held(house)) == f"host:{site.name}"
            await _until_all(house, State.SUCCEEDED, count + 10)
    assert set(site.count().values()) == {1}
    times = sorted(at for at, _ in site.calls)
    busiest = max(sum(first <= at < first + 1.0 for at in times) for first in times)
    assert busiest <= rate * 1.1 + 6, "of each worker one may be early, and one was under way"
    assert times[-1] - times[0] <= 1.5 * count / rate + 4


async def _one_held(house: House) -> str | None:
    held = await house.store.list_executions(TENANT, ExecutionFilter(states=(State.PENDING,)), None, 100)
    return next((each.held_by for each in held if each.is_held), None)


async def test_no_more_run_at_once_than_a_handler_bears_and_a_new_limit_counts_at_once(house: House) -> None:
    hosts = Hosts(house.store, house.clock)
    now = most = 0

    async def work(_: Context) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await _busy(0.05)
        now -= 1

    house.registry.add(work, "work")
    await hosts.put_limit(TENANT, "handler:work", rate=None, concurrency=3, breaker=True)
    for number in range(20):
        await house.create(f"job-{number}")
    await _trigger(house, 20)
    async with house.working(heartbeat=BEAT):
        await _until_all(house, State.SUCCEEDED, 20)
        assert most == 3
        # One an hour: nearly all of them wait for long, until that is taken back.
        await hosts.put_limit(TENANT, "handler:work", rate="1/h", concurrency=None, breaker=True)
        held = await until_async(lambda: _triggered_until_held(house))
        assert held is not None
        assert held.ready_at > house.clock.now() + timedelta(minutes=10)
        await hosts.drop_limit(TENANT, "handler:work")
        assert (await house.until_state(held.key, State.SUCCEEDED)).attempt == 1


async def _triggered_until_held(house: House) -> Execution | None:
    """Trigger a job: workers hear of a limit with their next heartbeat, and hold it back from then on."""
    key = await house.trigger("job-0")

    async def ended_or_held() -> Execution | None:
        found = await house.get(key)
        return found if found.is_held or found.state is State.SUCCEEDED else None

    found = await until_async(ended_or_held)
    return found if found is not None and found.is_held else None


async def test_a_dead_host_does_not_fill_a_worker(house: House) -> None:
    async with a_site(takes=60) as dead, a_site() as well:
        await _jobs(house, dead, 30, timeout="1m", retry={"max_attempts": 1})
        await _jobs(house, well, 5, "other")
        house.settings = dataclasses.replace(house.settings, http=HttpSettings(per_host=2))
        async with working(house, concurrency=10, drain=MOMENT, cancel_grace=MOMENT):
            await _trigger(house, 30)
            await until(lambda: len(dead.calls) == 2)
            for key in await _trigger(house, 5, "other"):
                # Long before any of the dead ones has timed out.
                await house.until_state(key, State.SUCCEEDED, within=30.0)
            assert len(dead.calls) == 2


@pytest.mark.parametrize("ageing", [timedelta(minutes=1), timedelta()])
async def test_low_priority_goes_on_under_a_flood_of_high(house: House, ageing: timedelta) -> None:
    started: list[str] = []
    house.registry.add(lambda ctx: started.append(ctx.job), "work")
    for tier in ("high", "low"):
        await house.create(tier, priority=tier, overlap="allow")
    highs, lows = 100, 5
    for _ in range(lows):
        await house.trigger("low")
    await house.database.execute("update executions set ready_at = ready_at - interval '5 minutes'")
    for _ in range(highs):
        await house.trigger("high")
    async with house.working(concurrency=2, ageing=ageing):
        await until(lambda: len(started) == highs + lows, within=60.0)
    places = [place for place, tier in enumerate(started, start=1) if tier == "low"]
    if not ageing:
        assert places == list(range(highs + 1, highs + lows + 1))
        return
    assert places[-1] < highs, "before the last of the high ones"
    for number, place in enumerate(places, start=1):
        # Give or take which of the two that are under way was first to start.
        assert number <= 2 + place / 10, "no more than a tenth of the places"


async def test_what_waits_at_a_gate_goes_on_under_a_flood_of_what_does_not(house: House) -> None:
    started: list[str] = []
    house.registry.add(lambda ctx: started.append(ctx.job), "work")
    await house.create("free", overlap="allow")
    await house.create("gated", overlap="allow", group={"key": "db", "limit": 2})
    for name, count in (("free", 100), ("gated", 3)):
        for _ in range(count):
            await house.trigger(name)
    async with house.working(concurrency=2):
        await until(lambda: len(started) == 103, within=60.0)
    assert started.index("gated") < 90


@pytest.mark.parametrize(
    ("target", "fields", "told"),
    [
        ("nobody", {"rate": "1/s"}, "target"),
        ("host:", {"rate": "1/s"}, "target"),
        ("host:a b", {"rate": "1/s"}, "target"),
        ("host:example.com", {"rate": "fast"}, "rate"),
        ("host:example.com", {"rate": "0/s"}, "rate"),
        ("host:example.com", {}, "nothing is limited"),
        ("handler:work", {"breaker": False}, "only hosts"),
    ],
)
async def test_a_limit_that_makes_no_sense_is_refused(
    still_house: House, target: str, fields: dict[str, Any], told: str
) -> None:
    hosts = Hosts(still_house.store, still_house.clock)
    with pytest.raises(errors.Invalid, match=told):
        await hosts.put_limit(
            TENANT, target, **{"rate": None, "concurrency": None, "breaker": True, **fields}
        )
