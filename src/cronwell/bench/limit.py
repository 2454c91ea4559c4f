"""The limit: the three statements of an execution's life alone, as fast as two clients can send them.

One process stages, another claims and completes, at the same time, with nothing in between: no schedules, no handlers, no
clock. Nothing that runs each execution through these statements can be faster on this machine, so every figure of
Cronwell is also given as a share of this one.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from uuid import UUID, uuid4

from cronwell import errors
from cronwell.bench.load import Load, register
from cronwell.bench.spawning import deaf_to_ctrl_c
from cronwell.config import DatabaseSettings
from cronwell.model.shards import SHARDS
from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.port import EVER
from cronwell.store.postgres import store as store_module
from cronwell.store.postgres.rows import micros

BATCH = 1000
_SQL_FOLDER = Path(store_module.__file__).parent


async def measure_limit(database: Database, url: str, count: int) -> float:
    """Executions per second that pass through stage, claim and complete, both sides at full speed."""
    first = await database.fetchval("select now()")
    await register(database, Load(count, first, spread=timedelta(milliseconds=1)))
    for day in (0, 1):
        await database.execute("select ensure_day($1)", (first + timedelta(days=day)).date())
    worker = uuid4()
    await database.execute(
        "insert into workers (id, name, state, version, pools, handlers, concurrency, started_at, heartbeat_at,"
        " lease_until, incarnation)"
        " values ($1, 'limit', 'active', '', '{}', '{}', 1, now(), now(), now() + interval '1 day', incarnation())",
        worker,
    )
    context = multiprocessing.get_context("spawn")
    answers: Queue[float] = context.Queue()
    until = first + timedelta(days=1)
    stager = context.Process(target=_run_stager, args=(url, until))
    finisher = context.Process(target=_run_finisher, args=(url, worker, until, count, answers))
    with deaf_to_ctrl_c():
        stager.start()
        finisher.start()
    try:
        took = await asyncio.to_thread(_answer, answers, (stager, finisher))
    finally:
        for process in (stager, finisher):
            process.terminate()
            await asyncio.to_thread(process.join)
    return count / took


def _answer(answers: Queue[float], processes: Sequence[BaseProcess]) -> float:
    """What the finisher measured; an error where one of the processes fails first."""
    while True:
        try:
            return answers.get(timeout=0.5)
        except Empty:
            failed = [process.exitcode for process in processes if process.exitcode]
            if failed:
                raise errors.CronwellError(
                    f"a process of the benchmark ended with exit code {failed[0]}; its own message is above"
                ) from None


def _run_stager(url: str, until: datetime) -> None:
    asyncio.run(_stage_all(url, until))


def _run_finisher(url: str, worker: UUID, until: datetime, count: int, answers: Queue[float]) -> None:
    answers.put(asyncio.run(_finish_all(url, worker, until, count)))


async def _stage_all(url: str, until: datetime) -> None:
    database = await Database.connect(DatabaseSettings(), url, application_name="limit stager", is_hot=True)
    sql = load_statements(_SQL_FOLDER / "staging.sql")
    shards, since, each = list(range(SHARDS)), [EVER] * SHARDS, -(-BATCH // SHARDS)
    while True:
        async with database.transaction() as connection:
            rows = await connection.fetch(sql["lock_due"], shards, until, each, since)
            if not rows:
                break
            size = len(rows)
            tenants, jobs, slots, ones = [1] * size, [r[1] for r in rows], [r[3] for r in rows], [1] * size
            nothing: list[None] = [None] * size
            instants = list(map(micros, slots))
            await connection.execute(
                sql["insert_fresh"],
                tenants,
                jobs,
                ones,
                ones,
                [0] * size,
                ["default"],
                ones,
                list(range(1, size + 1)),
                instants,
                nothing,
                [0] * size,
                [],
                [],
                [0] * size,
                [False] * size,
            )
            await connection.execute(
                sql["move_cursors"],
                tenants,
                jobs,
                ones,
                slots,
                nothing,
                nothing,
                [False] * size,
                nothing,
                None,
            )
    await database.close()


async def _finish_all(url: str, worker: UUID, until: datetime, count: int) -> float:
    database = await Database.connect(DatabaseSettings(), url, application_name="limit worker", is_hot=True)
    claims = load_statements(_SQL_FOLDER / "claims.sql")
    sql = load_statements(_SQL_FOLDER / "results.sql")
    now = await database.fetchval("select now()")
    since = now - timedelta(days=1)
    began: float | None = None
    done = 0
    while done < count:
        rows = await database.fetch(claims["claim"], "default", 1, until, worker, BATCH, now, since, since)
        if not rows:
            await asyncio.sleep(0.001)
            continue
        began = began or time.perf_counter()
        size = len(rows)
        times = [micros(now)] * size
        await database.fetchval(
            sql["succeed"],
            [1] * size,
            [r[1] for r in rows],
            "scheduled",
            [micros(r[3]) for r in rows],
            [r["fence"] for r in rows],
            times,
            times,
            worker,
            since,
        )
        done += size
    assert began is not None
    took = time.perf_counter() - began
    await database.close()
    return took
