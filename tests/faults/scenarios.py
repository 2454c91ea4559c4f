"""What a scenario does beyond the ordinary run, and what is measured of it."""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from tests.faults.broker import BrokerFrozen, BrokerKilled
from tests.faults.cables import CablePulled
from tests.faults.checks.cluster import first_bodies
from tests.faults.checks.facts import Facts
from tests.faults.database_faults import DatabaseKilled, DatabaseRestarted
from tests.faults.etcd import EtcdKilled
from tests.faults.fault import Fault
from tests.faults.history import History, ShardChange
from tests.faults.pace import aside, lasting
from tests.faults.process_faults import Killed, RollingRestart
from tests.faults.receiver import receiving
from tests.faults.report import share
from tests.faults.run import Act, Stage
from tests.faults.wire_faults import NoticesSpoiled

CALM = "none"
DEAD_HOST = "dead webhook host"
BLACKOUT_SECONDS = 30.0
LIMITED_SECONDS = 110.0


def kill_schedulers(times: int) -> Act:
    """kill -9 of one scheduler at a time, each when all of them have shards again."""

    async def act(stage: Stage) -> None:
        for _ in range(times):
            await stage.cluster.until_spread()
            await stage.nemesis.inject(Killed("scheduler", seconds=1.0))

    return act


async def black_out(stage: Stage) -> None:
    """Half a minute without any scheduler, between times with them; what is due goes on as if nothing were."""
    stage.client.stop.set()  # a change of a job is staged by the API, and would blur what schedulers do
    await lasting(20)
    for _ in range(2):
        await stage.nemesis.inject(Fault(CALM, BLACKOUT_SECONDS))
        await stage.nemesis.inject(Killed("scheduler", everyone=True, seconds=BLACKOUT_SECONDS))
        await stage.cluster.until_ready()
        # Long enough that all is staged as far ahead as before.
        await lasting(20)


async def roll(stage: Stage) -> None:
    """A deploy: every process is asked to stop and started again, one after the other, twice; with calm before."""
    await stage.nemesis.inject(Fault(CALM, 30))
    for _ in range(2):
        await stage.nemesis.inject(RollingRestart())
        await stage.cluster.until_ready()
        await lasting(5)


async def rest(stage: Stage) -> None:
    """A minute without a fault."""
    await stage.nemesis.inject(Fault(CALM, 60))


async def pull_cables(stage: Stage) -> None:
    """The cable of a scheduler pulled out three times, with calm before."""
    await stage.nemesis.inject(Fault(CALM, 30))
    for _ in range(3):
        await stage.nemesis.inject(CablePulled())
        await stage.cluster.until_spread()


async def deaden_a_host(stage: Stage) -> None:
    """A webhook host that hangs for ten jobs and drips for ten more, a hundred calls under way to each.

    In the calm before each time as many jobs call a host that answers: what is compared is the host, not the load,
    and only by the jobs that were there before. That host is a process of its own as well, and hangs up after each answer:
    a connection to one that hangs serves no second call.
    """
    folder = stage.receiver.folder.parent
    async with aside(receiving(folder / "dead")) as dead, aside(receiving(folder / "well")) as well:
        well.stand_beside(stage.receiver)
        for turn in range(3):
            for fault, urls in (
                (CALM, [f"{well.url}/curt"]),
                (DEAD_HOST, [f"{dead.url}/hang", f"{dead.url}/drip"]),
            ):
                names = [f"host-{turn}-{fault.replace(' ', '-')}-{n}" for n in range(20)]
                for n, name in enumerate(names):
                    await stage.load.create_guest(name, urls[n % len(urls)])
                await lasting(15)
                await stage.nemesis.inject(Fault(fault, 30))
                for name in names:
                    await stage.client.ask("delete", name, "DELETE", f"/v1/jobs/name:{name}")
                await lasting(15)


async def kill_workers(stage: Stage) -> None:
    """kill -9 of a worker with attempts under way, each after the last one's have been rescued."""
    for _ in range(3):
        await lasting(6)
        await stage.nemesis.inject(Killed("worker", seconds=2.0))
        await lasting(stage.cluster.shape.worker_lease + 6)


async def kill_limited(stage: Stage) -> None:
    """kill -9 of workers at random, for as long as it takes twenty limited jobs to come due two thousand times."""
    until = time.monotonic() + LIMITED_SECONDS
    while time.monotonic() < until:
        # Starting a worker takes a second of a core; with less in between there would be time for nothing else.
        await lasting(stage.nemesis.random.uniform(1, 3))
        await stage.nemesis.inject(Killed("worker", seconds=0.5))


async def restart_database(stage: Stage) -> None:
    """PostgreSQL restarted ten times under load: fast, immediate, killed."""
    faults: list[Callable[[], Fault]] = [
        lambda: DatabaseRestarted("fast"),
        lambda: DatabaseRestarted("immediate"),
        DatabaseKilled,
    ]
    for number in range(10):
        await stage.nemesis.inject(faults[number % 3]())
        await lasting(15)


async def stop_etcd(stage: Stage) -> None:
    """A minute without etcd, with calm before."""
    await stage.nemesis.inject(Fault(CALM, 30))
    await stage.nemesis.inject(EtcdKilled(60))
    await stage.cluster.until_ready()


async def lose_the_broker(stage: Stage) -> None:
    """The broker killed and frozen by turns, with calm before."""
    await stage.nemesis.inject(Fault(CALM, 30))
    for _ in range(4):
        for fault in (BrokerKilled(), BrokerFrozen()):
            await stage.nemesis.inject(fault)
            await lasting(8)


async def spoil_the_bus(stage: Stage) -> None:
    """The bus loses, doubles and replays everything, for half a minute each, with a calm before for comparison."""
    await stage.nemesis.inject(Fault(CALM, 30))
    for notices in ("drop", "double", "replay"):
        await stage.nemesis.inject(NoticesSpoiled(notices, 30))


def publications(history: History) -> dict[str, Any]:
    """How many executions were published and how often more than once, and what the faults did to other targets."""
    counts = Counter(message.execution for message in history.messages)
    told: dict[str, Any] = {
        "executions published": len(counts),
        "messages": sum(counts.values()),
        "executions with more than one message": sum(count > 1 for count in counts.values()),
    }
    for fault in ("broker kill -9", "SIGSTOP of the broker"):
        told |= compared(history, fault)
    return told


def takeovers(history: History) -> dict[str, Any]:
    """For each scheduler that was killed: how long until others had begun an epoch of each of its shards."""
    entered: defaultdict[int, list[ShardChange]] = defaultdict(list)
    for change in sorted(history.shards, key=lambda each: each.committed):
        entered[change.shard].append(change)
    times = {shard: [change.committed for change in changes] for shard, changes in entered.items()}
    found: list[float] = []
    for window in history.windows:
        if not window.fault.startswith("kill -9 of a scheduler"):
            continue
        waits = []
        for shard, changes in entered.items():
            place = bisect_right(times[shard], window.began)
            was = changes[place - 1].process if place else ""
            if was.startswith(f"{window.subject}#") and place < len(changes):
                waits.append(changes[place].committed - window.began)
        if waits:
            found.append(max(waits))
    found.sort()
    if not found:
        return {}
    return {
        "takeovers": len(found),
        **{f"takeover p{part * 100:g} s": round(share(found, part), 3) for part in (0.5, 0.9, 0.99)},
        "takeover max s": round(found[-1], 3),
    }


def deposed(history: History, fault: str) -> int:
    """In how many windows of a fault the process that it had hit lost shards to others.

    What its subject had before, in another life, does not count: it was started anew for the fault.
    """
    found = 0
    for window in history.windows:
        if window.fault != fault:
            continue
        entered: dict[int, str] = {}
        lost: set[str] = set()
        for change in sorted(history.shards, key=lambda each: each.committed):
            before = entered.get(change.shard, "")
            entered[change.shard] = change.process
            if window.began <= change.committed <= window.healed:
                lost.add(before if _subject(before) == window.subject != _subject(change.process) else "")
        lives = [each.process for each in history.shards if each.committed <= window.healed]
        latest = max((each for each in lives if _subject(each) == window.subject), key=_life, default="")
        found += latest in lost - {""}
    return found


def _subject(process: str) -> str:
    return process.partition("#")[0]


def _life(process: str) -> int:
    return int(process.partition("#")[2])


def rescues(history: History) -> dict[str, Any]:
    """For each attempt that a killed worker had under way: how long after the kill its execution was claimed again."""
    found: list[float] = []
    for changes in Facts(history).changes.values():
        for window in history.windows:
            if not window.fault.startswith("kill -9 of a worker"):
                continue
            before = [change for change in changes if change.at <= window.began]
            after = [
                change for change in changes if change.at > window.began and change.fence > change.old_fence
            ]
            if (
                before
                and after
                and before[-1].state == "running"
                and before[-1].process.startswith(f"{window.subject}#")
            ):
                found.append(after[0].at - window.began)
    found.sort()
    if not found:
        return {"rescued": 0}
    return {"rescued": len(found), "soonest s": round(found[0], 3), "latest s": round(found[-1], 3)}


def recoveries(history: History) -> dict[str, Any]:
    """For each outage of PostgreSQL: how long after it was back until everything that had been due had begun."""
    firsts = list(first_bodies(Facts(history)))
    found = []
    for window in history.windows:
        begun = [body.arrived for key, body in firsts if window.began <= key[2].timestamp() <= window.healed]
        found.append(max(0.0, max(begun, default=0.0) - window.healed))
    found.sort()
    return {
        "restarts": len(found),
        "recovery p50 s": round(share(found, 0.5), 3),
        "recovery max s": round(found[-1], 3),
    }


def compared(history: History, fault: str) -> dict[str, Any]:
    """Lateness in the windows of a fault beside that in calm ones, of slots of jobs that nothing else delays."""
    samples: dict[str, list[float]] = {CALM: [], fault: []}
    for key, body in first_bodies(Facts(history)):
        due = key[2].timestamp()
        for window in history.windows:
            if window.fault in samples and window.began <= due < window.healed and body.path == "/ok":
                samples[window.fault].append(body.arrived - due)
    told: dict[str, Any] = {}
    for name, lateness in samples.items():
        lateness.sort()
        told[f"{name}: slots"] = len(lateness)
        for part in (0.5, 0.99, 1.0):
            told[f"{name}: p{part * 100:g} ms"] = round(share(lateness, part) * 1000, 1)
    told["chance that a difference as large is chance"] = round(chance(samples[CALM], samples[fault]), 3)
    return told


def chance(one: list[float], other: list[float], rounds: int = 2000) -> float:
    """How often a random split of both samples differs in its medians by as much as they do: a permutation test."""
    rng = random.Random(0)
    seen = abs(_median(one) - _median(other))
    both = [*one, *other]
    larger = 0
    for _ in range(rounds):
        rng.shuffle(both)
        larger += abs(_median(both[: len(one)]) - _median(both[len(one) :])) >= seen
    return larger / rounds


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def limited(history: History) -> dict[str, Any]:
    """How many limited executions ended well, and how many of one job and of one group were under way at once."""
    facts = Facts(history)
    done = sum(
        row.state == "succeeded" and facts.name(key[0]).startswith(("alone", "shared"))
        for key, row in facts.rows.items()
    )
    figures = {"limited executions done": done}
    for what, name_of in (
        ("job", lambda name: name if name.startswith("alone") else None),
        ("group", lambda name: int(name[-1]) % 4 if name.startswith("shared") else None),
    ):
        steps: defaultdict[Any, list[tuple[float, int]]] = defaultdict(list)
        for body in history.bodies:
            if (crowd := name_of(body.job)) is not None and body.status == 200 and body.ended is not None:
                steps[crowd] += [(body.arrived, 1), (body.ended, -1)]
        most = 0
        for each in steps.values():
            under_way = 0
            for _, step in sorted(each):
                under_way += step
                most = max(most, under_way)
        figures[f"most of one {what} at once"] = most
    return figures
