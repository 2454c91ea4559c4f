"""Signed deliveries from one worker process, with the guard against private addresses on, to a receiver on this machine.

In three ways: a backlog to a receiver that answers at once; to the same with as many requests under way as the plan says for a
slow one; and to one that takes its time. The last is told beside an ideal: requests under way divided by the delay, which no
sender can exceed, or the rate of the first way, where that is less: one process builds, signs and records no more a second by
waiting in between. And beside an ideal with the rate of the second way: what is lost to the delay, apart from what so many under
way cost by themselves. Each way has its turn twice, the second time in the opposite order, so that a machine that becomes faster
or slower meanwhile favours none.

The receiver is a process of its own, on the same cores. What it can take from a client that only sends is measured first.
The deliveries are staged before their one instant; the clock runs from that instant to the last arrival by the receiver's
clock, and what arrived is compared with what was recorded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cronwell.bench.cost import Cost
from cronwell.bench.fleet import fleet
from cronwell.bench.ground import Ground, Progress
from cronwell.bench.load import Load, register
from cronwell.bench.measure import LEAD, PATIENCE, until_done, until_up
from cronwell.bench.receiver import HOST, Receiver, bare_rate, receiving
from cronwell.bench.row import Check, Row
from cronwell.config import Settings, WorkerSettings
from cronwell.runtime.postgres import Database
from cronwell.targets import signing

PER_SECOND = 6000
SHARE_OF_IDEAL = 0.9
REGISTERED_PER_SECOND = 5000
"""Jobs that are written and staged in a second, at the least: so long before their instant they are registered."""
BARE_CONNECTIONS = 128
DAILY = timedelta(days=1)
"""Jobs that come again: with jobs for one time the scheduler would be finishing them, and looking through those that are left,
for as long as the deliveries last."""


@dataclass(frozen=True, slots=True)
class Plan:
    deliveries: int = 200_000
    """So many that the connections which a slow receiver needs by the thousand, and which are opened once, hardly count."""
    at_once: int = 256
    """Requests under way at once in the first run."""
    slow_deliveries: int = 200_000
    slow_at_once: int = 5000
    delay_ms: int = 200
    bare_seconds: int = 5


QUICK = Plan(deliveries=200, slow_deliveries=200, slow_at_once=100, bare_seconds=1)


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of one backlog."""

    due: int
    recorded: int
    seconds: float
    """From the instant to the last arrival."""
    figures: dict[str, Any]
    is_signed: bool
    cost: Cost

    @property
    def per_second(self) -> float:
        return float(self.figures["executions"] / self.seconds)


@dataclass(frozen=True, slots=True)
class Way:
    """How a backlog is sent."""

    title: str
    count: int
    at_once: int
    delay: float = 0.0


def rate(runs: Sequence[Sent]) -> float:
    """Deliveries a second of several backlogs."""
    return float(sum(run.figures["executions"] for run in runs) / sum(run.seconds for run in runs))


async def measure(ground: Ground, plan: Plan) -> Row:
    title = f"webhooks: {plan.deliveries:,} deliveries from one worker process"
    delay = plan.delay_ms / 1000
    ways = (
        Way(title, plan.deliveries, plan.at_once),
        Way(
            f"webhooks: {plan.slow_deliveries:,} with {plan.slow_at_once:,} at once",
            plan.slow_deliveries,
            plan.slow_at_once,
        ),
        Way(
            f"webhooks: {plan.slow_deliveries:,} to a receiver that takes {plan.delay_ms} ms",
            plan.slow_deliveries,
            plan.slow_at_once,
            delay,
        ),
    )
    bare = await bare_rate(BARE_CONNECTIONS, plan.bare_seconds)
    sent: dict[Way, list[Sent]] = {way: [] for way in ways}
    for way in (*ways, *reversed(ways)):
        sent[way].append(await _send(ground, way, ground.stage(way.title)))
    fast, crowded, slow = (sent[way] for way in ways)
    runs = [run for way in ways for run in sent[way]]
    ideal = ideal_rate(plan.slow_at_once, delay, rate(fast))
    return Row(
        "webhooks",
        title,
        [
            Check("deliveries a second", PER_SECOND, rate(fast), "/s", is_floor=True),
            Check(
                f"of the ideal, {plan.slow_at_once:,} at once, {plan.delay_ms} ms",
                SHARE_OF_IDEAL,
                rate(slow) / ideal,
                is_floor=True,
            ),
            Check(
                f"of the same without the {plan.delay_ms} ms",
                SHARE_OF_IDEAL,
                rate(slow) / ideal_rate(plan.slow_at_once, delay, rate(crowded)),
                is_floor=True,
            ),
            Check(
                "arrived and recorded, of those due",
                1.0,
                min(min(run.figures["executions"], run.recorded) / run.due for run in runs),
                is_floor=True,
            ),
            Check("arrived twice", 0, sum(run.figures["duplicates"] for run in runs)),
            Check("signatures that hold", 1.0, float(all(run.is_signed for run in runs)), is_floor=True),
        ],
        limit=ground.limit,
        per_second=rate(fast),
        cost=fast[0].cost,
        detail={
            "receiver alone, a second": bare,
            "share of the receiver": rate(fast) / bare,
            "slow: ideal": ideal,
            "runs": {
                way.title: [
                    {
                        "a second": run.per_second,
                        "after the instant_ms": run.figures["lateness_ms"],
                        "cost": run.cost.as_dict(),
                        "connections": run.figures["connections"],
                    }
                    for run in sent[way]
                ]
                for way in ways
            },
            "settings": {
                "egress_allow": [_ALLOWED],
                "http.per_host and http.connections": [way.at_once for way in ways],
                "worker.concurrency": [_concurrency(way.at_once) for way in ways],
            },
        },
        series={
            "throughput: answered at once (deliveries/s) over time": fast[0].figures["per_second"],
            f"throughput: answered at once, {plan.slow_at_once} at once (deliveries/s) over time": crowded[
                0
            ].figures["per_second"],
            f"throughput: answered after {plan.delay_ms} ms (deliveries/s) over time": slow[0].figures[
                "per_second"
            ],
        },
    )


def ideal_rate(at_once: int, delay_seconds: float, without_delay: float) -> float:
    """Deliveries a second that a sender could reach which loses nothing to the delay."""
    return min(at_once / delay_seconds, without_delay) if delay_seconds else without_delay


def settings_for(settings: Settings, at_once: int) -> Settings:
    """Room for so many requests under way, to the one address of the receiver; the guard stays on for all others."""
    return dataclasses.replace(
        settings,
        egress_allow=(_ALLOWED,),
        http=dataclasses.replace(settings.http, per_host=at_once, connections=at_once),
        worker=dataclasses.replace(settings.worker, concurrency=_concurrency(at_once)),
        # The last of the backlog is not a miss.
        scheduler=dataclasses.replace(settings.scheduler, late_grace=PATIENCE),
    )


_ALLOWED = f"{HOST}/32"


def _concurrency(at_once: int) -> int:
    """Attempts of a worker that has so many requests under way: some wait to be sent or for their result to be kept."""
    return max(at_once + 1000, WorkerSettings().concurrency)


async def _send(ground: Ground, way: Way, progress: Progress) -> Sent:
    count, settings = way.count, settings_for(ground.settings, way.at_once)
    async with receiving(way.delay) as receiver, ground.scratch() as (database, url):
        async with fleet(settings, url, workers=1) as processes:
            await until_up(database, 1)
            now: datetime = await database.fetchval("select now()")
            instant = now + LEAD + timedelta(seconds=count / REGISTERED_PER_SECOND)
            await register(database, Load(count, instant, every=DAILY, target=_target(receiver)))
            others = [("receiver", receiver.pid)]
            before = await ground.read_meters(database, processes, others)
            await until_done(database, count, progress)
            after = await ground.read_meters(database, processes, others)
        figures = await receiver.figures()
        recorded = await database.fetchval("select count(*) from executions where state = 'succeeded'")
        return Sent(
            count,
            recorded,
            figures["last_at"] - instant.timestamp(),
            figures,
            await _is_signed(database, figures["latest"]),
            before.until(after, count),
        )


def _target(receiver: Receiver) -> dict[str, Any]:
    return {"http": {"url": receiver.url}}


async def _is_signed(database: Database, raw: str) -> bool:
    """Whether the signature of a delivery, as it came, is the one that our tenant's secret makes of it."""
    secret: str = await database.fetchval("select signing_secret from tenants where id = 1")
    head, _, body = raw.partition("\r\n\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head.split("\r\n"))
    }
    expected = signing.sign(
        secret, headers["webhook-id"], int(headers["webhook-timestamp"]), body.encode("latin-1")
    )
    return headers["webhook-signature"] == expected
