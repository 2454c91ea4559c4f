"""What the cluster is asked to do while faults are injected: steady jobs, awkward ones, and storms of changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.faults import oracle
from tests.faults.client import Client
from tests.faults.clock_changes import Change
from tests.faults.pace import lasting
from tests.faults.receiver import HOSTILE

ZONES = (
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Africa/Casablanca",
    "Pacific/Chatham",
)
PATIENT = {"max_attempts": 50, "backoff": "fixed", "initial_delay": "1s", "max_delay": "1s"}
"""Enough attempts that none fails for good because a fault took them."""
CREATED_AT_ONCE = 8
MISSES_NOTHING: dict[str, Any] = {"catch_up": "all", "catch_up_limit": 10_000, "catch_up_window": "1h"}
STORM_SCHEDULES = ("* * * * * *", "*/2 * * * * *", "1-59/2 * * * * *", "*/5 * * * * *", "3,17,42 * * * * *")
POISON: tuple[Mapping[str, Any], ...] = (
    {"schedule": "0 0 30 2 *"},
    {"schedule": "* * * * * * * *"},
    {"schedule": "@reboot"},
    {"schedule": {"cron": "* * * * *", "timezone": "Mars/Olympus"}},
    {"payload": "\0"},
    {"payload": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]},
    {"retry": {"max_attempts": 10**9}},
    {"timeout": "-1s"},
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much of each kind of load."""

    seconds: int = 14
    fives: int = 8
    minutes: int = 8
    longs: int = 2
    solos: int = 3
    grouped: int = 3
    limited: int = 0
    """Jobs that run one at a time, and as many of groups, that fire each second."""
    storms: int = 3
    hostile: bool = True
    storm_pause: float = 0.4
    topics: int = 3
    """Jobs that publish, where there is a broker."""

    @classmethod
    def small(cls) -> Size:
        return cls(seconds=8, fives=4, minutes=2, longs=1, solos=1, storms=2, hostile=False, topics=2)


class Load:
    """Creates the steady jobs, then changes others until told to stop."""

    def __init__(
        self, client: Client, url: str, size: Size, seed: str, night: Sequence[Change] = (), stream: str = ""
    ) -> None:
        """`stream` is where messages go; empty where there is no broker."""
        self._client = client
        self._url = url
        self._size = size
        self._seed = seed
        self._night = night
        self._stream = stream
        self._count = 0

    def jobs(self) -> list[dict[str, Any]]:
        """The steady ones."""
        size = self._size
        made = [
            self._job(
                f"second-{n:02d}",
                {"cron": "* * * * * *", "timezone": ZONES[n % len(ZONES)]},
                **MISSES_NOTHING,
            )
            for n in range(size.seconds)
        ]
        made += [
            self._job(
                f"five-{n:02d}",
                {"cron": f"{n % 5}-59/5 * * * * *", "timezone": ZONES[n % len(ZONES)]},
                path=f"/fail/{n % 3}",
                **({**MISSES_NOTHING} if n % 3 == 0 else {"catch_up": ("last", "none")[n % 2]}),
            )
            for n in range(size.fives)
        ]
        made += [
            self._job(
                f"minute-{n:02d}", {"cron": "* * * * *", "timezone": ZONES[n % len(ZONES)]}, overlap="skip"
            )
            for n in range(size.minutes)
        ]
        made += [
            self._job(f"long-{n}", f"{n}-59/10 * * * * *", path="/slow/8", **MISSES_NOTHING)
            for n in range(size.longs)
        ]
        made += [
            self._job(f"solo-{n}", f"{n}-59/3 * * * * *", path="/slow/4", overlap="skip")
            for n in range(size.solos)
        ]
        made += [
            self._job(
                f"grouped-{n}",
                f"{2 * n}-59/6 * * * * *",
                path="/slow/0.5",
                overlap="queue_one",
                group={"key": "rig", "limit": 1},
            )
            for n in range(size.grouped)
        ]
        made += self._limited()
        if self._stream:
            topic = {"target": {"publish": {"redis": {"stream": self._stream}}}}
            made += [
                self._job(f"topic-{n}", ("* * * * * *", "*/2 * * * * *")[n % 2], **MISSES_NOTHING) | topic
                for n in range(size.topics)
            ]
        made += [self._job("manual", None), self._job("manual-solo", None, path="/slow/2", overlap="skip")]
        # One attempt: it is to take down one worker, and not the next one after it.
        busy = {"target": {"handler": {"name": "rig.busy"}}, "timeout": "30s", "retry": {"max_attempts": 1}}
        made += [self._job("busy", None) | busy]
        made += [
            self._job(
                f"night/{change.zone}", {"cron": change.cron, "timezone": change.zone}, **MISSES_NOTHING
            )
            for change in self._night
        ]
        if size.hostile:
            made += [
                self._job(f"hostile-{path}", f"{n}-59/6 * * * * *", path=f"/{path}", timeout="2s")
                | {"retry": {**PATIENT, "max_attempts": 2}}
                for n, path in enumerate(HOSTILE)
            ]
        return made

    def _limited(self) -> list[dict[str, Any]]:
        """Jobs of which one runs at a time, and jobs of which three do together with others of their group.

        Together they have most of their time to do, so that what a killed worker leaves behind makes the others wait.
        """
        alone = [
            self._job(f"alone-{n}", "* * * * * *", path="/slow/0.6", overlap="queue_all", **MISSES_NOTHING)
            for n in range(self._size.limited)
        ]
        together = [
            self._job(
                f"shared-{n}",
                "* * * * * *",
                path="/slow/0.8",
                group={"key": f"shared-{n % 4}", "limit": 3},
                **MISSES_NOTHING,
            )
            for n in range(self._size.limited)
        ]
        return alone + together

    async def create(self) -> None:
        """Create the steady jobs, a few at a time: all at once, some would wait for longer than a client does."""
        left = iter(self.jobs())

        async def create() -> None:
            for job in left:
                await self._create(job)

        await asyncio.gather(*(create() for _ in range(CREATED_AT_ONCE)))

    async def create_guest(self, name: str, url: str) -> None:
        """A job that calls a host of its own each second, and gives it up between two seconds, not on the instant."""
        job = self._job(name, "* * * * * *", timeout="10500ms")
        await self._create({**job, "target": url, "retry": {"max_attempts": 1}})

    async def run(self) -> None:
        """Change things until the client is told to stop."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._size.storms):
                group.create_task(self._storm(random.Random(f"{self._seed}/storm/{number}"), number))
            group.create_task(self._trigger(random.Random(f"{self._seed}/trigger")))
            group.create_task(self._one_offs(random.Random(f"{self._seed}/once")))
            if self._size.hostile:
                group.create_task(self._poison(random.Random(f"{self._seed}/poison")))

    def _job(
        self, name: str, schedule: Any, *, path: str = "/ok", overlap: str = "allow", **fields: Any
    ) -> dict[str, Any]:
        scheduled = {} if schedule is None else {"schedule": schedule}
        return {
            "name": name,
            "target": self._url + path,
            "retry": PATIENT,
            "timeout": "60s",
            "overlap": overlap,
            **scheduled,
            **fields,
        }

    async def _create(self, job: Mapping[str, Any]) -> bool:
        request = await self._client.ask("create", job["name"], "POST", "/v1/jobs", job)
        return request.outcome == "ok"

    async def _storm(self, rng: random.Random, number: int) -> None:
        """A few jobs that are changed all the time; one request at a time, so that their order is known."""
        living: dict[str, str] = {}
        while not self._client.stop.is_set():
            await lasting(rng.uniform(0, 2 * self._size.storm_pause), self._client.stop)
            if len(living) < 3 or (len(living) < 6 and rng.random() < 0.2):
                name = f"storm-{number}-{self._next()}"
                job = self._job(
                    name,
                    {"cron": rng.choice(STORM_SCHEDULES), "timezone": rng.choice(ZONES)},
                    path=rng.choice(("/ok", "/fail/1", "/slow/1")),
                    overlap=rng.choice(("allow", "skip")),
                    catch_up=rng.choice(("last", "none")),
                )
                if await self._create(job):
                    living[name] = "active"
                continue
            name = rng.choice(sorted(living))
            verb = rng.choice(
                ("pause", "resume") if living[name] == "paused" else ("pause", "edit", "edit", "delete")
            )
            if not await self._change(rng, verb, name):
                # Nobody knows what it is now: it is left alone.
                del living[name]
            elif verb == "delete":
                del living[name]
            else:
                living[name] = {"pause": "paused", "resume": "active"}.get(verb, living[name])

    async def _change(self, rng: random.Random, verb: str, name: str) -> bool:
        path = f"/v1/jobs/name:{name}"
        match verb:
            case "edit":
                body = {"schedule": {"cron": rng.choice(STORM_SCHEDULES), "timezone": rng.choice(ZONES)}}
                request = await self._client.ask(verb, name, "PATCH", path, body)
            case "delete":
                request = await self._client.ask(verb, name, "DELETE", path)
            case _:
                request = await self._client.ask(verb, name, "POST", f"{path}/{verb}", {})
        return request.outcome == "ok" and len(request.tries) == 1

    async def _trigger(self, rng: random.Random) -> None:
        names = ("manual", "manual", "manual-solo", "second-00", "solo-0")
        while not self._client.stop.is_set():
            await lasting(rng.uniform(0.2, 1.2), self._client.stop)
            name = rng.choice(names)
            await self._client.ask("trigger", name, "POST", f"/v1/jobs/name:{name}/trigger", {})

    async def _one_offs(self, rng: random.Random) -> None:
        while not self._client.stop.is_set():
            await lasting(rng.uniform(0.5, 2.0), self._client.stop)
            ahead = rng.randint(1, 25)
            at = oracle.at(self._client._clock() + ahead)
            schedule: Any = {"at": at.isoformat()} if rng.random() < 0.6 else f"in {ahead}s"
            await self._create(self._job(f"once-{self._next()}", schedule))

    async def _poison(self, rng: random.Random) -> None:
        while not self._client.stop.is_set():
            await lasting(rng.uniform(1, 4), self._client.stop)
            job = {**self._job(f"poison-{self._next()}", "* * * * *"), **rng.choice(POISON)}
            await self._client.ask("poison", job["name"], "POST", "/v1/jobs", job)

    def _next(self) -> int:
        self._count += 1
        return self._count
