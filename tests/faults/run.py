"""A whole run: cluster, receiver, load and faults; then quiet; then what the three witnesses say."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from tests.faults import broker, clock_changes, etcd, mutants, witness
from tests.faults.client import Client
from tests.faults.cluster import Cluster, Shape, running
from tests.faults.fault import Fault
from tests.faults.history import End, History, Window
from tests.faults.load import Load, Size
from tests.faults.nemesis import Nemesis
from tests.faults.pace import aside, lasting
from tests.faults.receiver import Receiver, receiving
from tests.support.forked import Forked
from tests.support.redis import binary
from tests.support.waiting import until_async


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run."""

    seed: str
    seconds: float
    faults: Sequence[Fault]
    shape: Shape = field(default_factory=Shape)
    size: Size = field(default_factory=Size)
    mutant: str = ""
    night_after: float = 0.0
    """Clocks change so many seconds after the start of the run; 0: not at all."""
    rest: tuple[float, float] = (2.0, 5.0)
    settle: float = 4.0
    """How long the load goes on after the last fault, so that there are slots to see that all is well again."""
    patience: float = 90.0
    """How long to wait for what was due to end."""


@dataclass(frozen=True, slots=True)
class Stage:
    """All that runs, for a scenario that does something of its own with it."""

    cluster: Cluster
    client: Client
    load: Load
    receiver: Receiver
    nemesis: Nemesis


@dataclass(frozen=True, slots=True)
class Outcome:
    """What there was to see."""

    history: History
    skipped: dict[str, str]
    """Faults that this machine does not allow, and why."""
    logs: str


Act = Callable[[Stage], Awaitable[None]]


async def run(
    plan: Plan, folder: Path, tell: Callable[[str], None] = lambda _: None, act: Act | None = None
) -> Outcome:
    """Run it to the end. `act` takes the place of the nemesis's own schedule of faults."""
    began = time.monotonic()

    def say(what: str) -> None:
        tell(f"{time.monotonic() - began:6.1f} s  {what}")

    night = clock_changes.night(int(time.time() + plan.night_after)) if plan.night_after else []
    zones = {change.zone: change.posix for change in night}
    changed = mutants.environ(plan.mutant, zones) if plan.mutant or zones else {}
    shape = dataclasses.replace(plan.shape, extra={**plan.shape.extra, **changed})
    async with contextlib.AsyncExitStack() as opened:
        receiver = await opened.enter_async_context(aside(receiving(folder / "receiver")))
        server = None
        if shape.coordination == "etcd":
            server = await opened.enter_async_context(aside(etcd.serving()))
            shape = dataclasses.replace(shape, coordination=server.address)
        redis = None
        if plan.size.topics and binary() is not None:
            redis = await opened.enter_async_context(aside(broker.serving()))
            shape = dataclasses.replace(shape, extra={**shape.extra, **broker.settings(redis)})
        cluster = await opened.enter_async_context(running(shape))
        cluster.etcd = server
        cluster.broker = redis
        await _hand_over_secret(cluster, receiver)
        await cluster.until_ready()
        say("every shard has an owner, every worker is in")
        client = Client(cluster.of("api"), cluster.clock, folder / "client.log", f"{plan.seed}/client")
        stream = "" if redis is None else broker.STREAM
        load = Load(client, receiver.url, plan.size, plan.seed, night, stream)
        nemesis = Nemesis(cluster, plan.faults, f"{plan.seed}/nemesis", say)
        stage = Stage(cluster, client, load, receiver, nemesis)
        try:
            await load.create()
            loading = asyncio.create_task(load.run())
            opened.callback(loading.cancel)
            await (act(stage) if act is not None else nemesis.run(plan.seconds, plan.rest))
            say("healed; letting it settle")
            await nemesis.recovered()
            await lasting(plan.settle)
            client.stop.set()
            await loading
            history = await _quiet(stage, say, plan.patience)
            return Outcome(dataclasses.replace(history, zones=zones), nemesis.skipped, _logs(cluster))
        except BaseException:
            (folder / "nodes.log").write_text(_logs(cluster))
            raise
        finally:
            await client.close()


async def _hand_over_secret(cluster: Cluster, receiver: Receiver) -> None:
    connection = await cluster.connect()
    try:
        receiver.set_secret(await connection.fetchval("select signing_secret from tenants where id = 1"))
    finally:
        await connection.close()


async def _quiet(stage: Stage, say: Callable[[str], None], patience: float) -> History:
    """Wait until all that was due has ended, stop everything, and take the evidence."""
    cluster = stage.cluster
    until = cluster.clock()
    say("waiting until all that was due has ended")
    connection = await cluster.connect()

    async def has_ended() -> bool:
        left = await connection.fetchval(
            """select count(*) from executions
            where slot <= to_timestamp($1) and state in ('pending', 'running', 'retrying')""",
            until,
        )
        return bool(left == 0)

    with contextlib.suppress(AssertionError):
        # What has not ended by then is a violation, which the checker shows with its evidence.
        await until_async(has_ended, within=patience)
    await lasting(1.0)
    end, snapshot = await witness.read_end(connection)
    cluster.is_kept = False
    for node in cluster.nodes:
        node.terminate(3600)
    await asyncio.gather(*(asyncio.to_thread(_wait, node.lives[-1].popen) for node in cluster.nodes))
    say("taking the evidence")
    try:
        return await _take(stage, connection, until, end, snapshot)
    finally:
        await connection.close()


async def _take(
    stage: Stage,
    connection: asyncpg.Connection[asyncpg.Record],
    until: float,
    end: End,
    snapshot: witness.Snapshot,
) -> History:
    served = [each for link in stage.cluster.links for each in link.served]
    log = await witness.read_log(connection, served)
    redis = stage.cluster.broker
    messages = () if redis is None else await asyncio.to_thread(broker.messages, redis, end.at)
    # The log goes on after the end was read: what came later is for nobody to judge.
    return History(
        terms=stage.cluster.shape.terms(),
        until=until,
        end=end,
        requests=(*stage.client.requests, *stage.cluster.asked),
        bodies=tuple(body for body in stage.receiver.bodies() if body.arrived <= end.at),
        messages=messages,
        jobs=tuple(log.jobs),
        cursors=tuple(c for c in log.cursors if snapshot.has(c.xid)),
        executions=tuple(c for c in log.executions if snapshot.has(c.xid)),
        skips=tuple(log.skips),
        shards=tuple(log.shards),
        workers=tuple(log.workers),
        windows=tuple(stage.nemesis.windows),
        stalls=stage.receiver.stalls(),
    )


def _wait(process: subprocess.Popen[bytes] | Forked) -> None:
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _logs(cluster: Cluster) -> str:
    return "\n".join(
        f"--- {node.name}#{number}\n{life.output[-20_000:]}"
        for node in cluster.nodes
        for number, life in enumerate(node.lives, start=1)
    )


__all__ = ["Outcome", "Plan", "Stage", "Window", "run"]
