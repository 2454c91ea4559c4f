"""Mutants: the product with one of its safeguards taken out, to see that the checker notices.

They are applied to the real processes, from outside (`tests/faults/site`). Where another safeguard would hide the missing
one, that one is taken out too, and the mutant says so: promises are kept by more than one line.

The same way gives processes zones of the rig's own, whose clocks change while a run lasts, and has them work all the time in
a way in which they work now and then.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import itertools
import json
import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

from cronwell import config, errors
from cronwell.model import zones as zones_of_the_product
from cronwell.model.cron import Expression
from cronwell.scheduler import front
from cronwell.store.port import Claimed
from cronwell.store.postgres import results, staging
from cronwell.store.postgres.executions import ExecutionRows
from cronwell.store.postgres.shards import ShardChanges
from cronwell.store.postgres.transaction import PostgresTransaction
from cronwell.targets.brokers.redis import RedisBroker
from cronwell.targets.port import Call, Signals
from cronwell.targets.publish import PublishRunner
from cronwell.worker import reach
from cronwell.worker.attempt import Attempt
from cronwell.worker.catalog import Catalog, KnownJob
from tests.support.rules import zone

MUTANT, ZONES = "RIG_MUTANT", "RIG_ZONES"
SITE = Path(__file__).with_name("site")


def environ(mutant: str = "", zones: dict[str, str] | None = None) -> dict[str, str]:
    """What the processes have in their environment, to be changed; nothing where none is to be."""
    if not mutant and not zones:
        return {}
    path = os.pathsep.join([str(SITE), str(SITE.parents[2]), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": path, MUTANT: mutant, ZONES: json.dumps(zones or {})}


def apply() -> None:
    """Change this process as its environment says."""
    if zones := json.loads(os.environ.get(ZONES) or "{}"):
        _keep_zones(zones)
    if mutant := os.environ.get(MUTANT):
        (MUTANTS | VARIANTS)[mutant]()


def no_epoch_check() -> None:
    """Whoever believes to own a shard stages in it."""

    async def hold_shards(self: ShardChanges, owner: Any, epochs: Any) -> None:
        del self, owner, epochs

    _replace(ShardChanges, "hold_shards", hold_shards)


def cursor_first() -> None:
    """The cursor moves, and is committed, before what it passes is written."""
    record, stage = PostgresTransaction.record, PostgresTransaction.stage

    async def nothing(self: PostgresTransaction, moves: Any, now: datetime) -> None:
        del self, moves, now

    class Moving(PostgresTransaction):
        pass

    _replace(Moving, "record", nothing)

    async def stage_later(self: PostgresTransaction, moves: Sequence[Any], now: datetime) -> None:
        moving = copy.copy(self)
        moving.__class__ = Moving
        await stage(moving, moves, now)
        await self._connection.execute("commit")
        await self._connection.execute("begin")
        await record(self, moves, now)

    _replace(PostgresTransaction, "stage", stage_later)


def no_compare_and_set() -> None:
    """A cursor moves from wherever it stands. Without the row's lock, too, which would keep others from moving it."""

    _cut(staging, "_SQL", "lock_due", "    for update skip locked\n")
    _cut(staging, "_SQL", "move_cursors", "    and cursors.revision = moved.revision\n")
    _cut(staging, "_SQL", "move_cursors", "    and cursors.next_slot = moved.from_slot")
    stage = PostgresTransaction.stage

    async def stage_slowly(self: PostgresTransaction, moves: Sequence[Any], now: datetime) -> None:
        await _a_while(0.2)
        await stage(self, moves, now)

    _replace(PostgresTransaction, "stage", stage_slowly)


def no_fence() -> None:
    """A result is written down whoever brings it. Without the worker's name, too, which is compared beside the fence."""

    by_whom = "and coalesce(e.worker, e.callback_worker) ="
    for margin in ("        ", "    "):
        _cut(results, "_SQL", "complete", f"{margin}and e.fence = r.fence\n{margin}{by_whom} r.worker\n")
    _cut(
        results,
        "_SQL",
        "succeed",
        f"        and e.fence = r.fence\n        {by_whom} $8\n",
        "        and $8::uuid is not null\n",
    )


def random_ids() -> None:
    """Each attempt has an id of its own, in place of its execution's."""

    call = Attempt.call

    def elsewhere(self: Attempt) -> Call:
        made = call(self)
        return dataclasses.replace(made, key=dataclasses.replace(made.key, job_id=uuid4()))

    _replace(Attempt, "call", elsewhere)


def double_fire() -> None:
    """Cron arithmetic that takes a time of day which a clock shows twice for two slots."""

    _replace(Expression, "has_fixed_times", property(lambda self: False))


def unpublished() -> None:
    """A message counts as published although nobody has sent it."""

    async def publish(self: RedisBroker, target: Any, message: Any) -> str:
        del self, target, message
        return "0-0"

    _replace(RedisBroker, "publish", publish)


def published_first() -> None:
    """A message goes out with the claim, before that is committed; of three such claims one is rolled back."""
    claim = ExecutionRows.claim
    turns = itertools.count()

    async def claim_and_publish(self: Any, *given: Any, **terms: Any) -> list[Claimed]:
        async with self._database.transaction() as connection:
            inside = copy.copy(self)
            inside._database = connection
            claims = await claim(inside, *given, **terms)
            if await _publish(self, claims) and next(turns) % 3 == 2:
                raise errors.StoreUnavailable("the mutant rolls back")
        return claims

    _replace(ExecutionRows, "claim", claim_and_publish)


def always_short() -> None:
    """Claims never look back to the beginning, and staging as seldom as it may, as when a transaction is open for long."""
    _replace(reach, "LOOKS", 1)
    _replace(reach, "SLOW", -1.0)
    _replace(front, "SLOW", -1000.0)
    _replace(front, "rest_after", lambda seconds, least=0.0: least or 1000.0)


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__: mutant
    for mutant in (
        no_epoch_check,
        cursor_first,
        no_compare_and_set,
        no_fence,
        random_ids,
        double_fire,
        unpublished,
        published_first,
    )
}


VARIANTS: dict[str, Callable[[], None]] = {variant.__name__: variant for variant in (always_short,)}
"""Ways in which the product works only now and then, and which have to keep every promise."""


async def _publish(store: Any, claims: Sequence[Claimed]) -> bool:
    """Publish the messages of what was just claimed; whether there were any."""
    settings = config.read()
    runner = PublishRunner(settings.brokers, settings.publish)
    jobs = await Catalog(store).look_up(claims)
    calls = [
        Attempt(each, job, 0.0).call()
        for each, job in zip(claims, jobs, strict=True)
        if isinstance(job, KnownJob) and job.terms.target.publish is not None
    ]
    for call in calls:
        await runner.run(call, Signals(deadline=time.monotonic() + 5))
    await runner.close()
    return bool(calls)


def _keep_zones(zones: dict[str, str]) -> None:

    made = {name: zone(name, posix) for name, posix in zones.items()}
    original = zones_of_the_product._load
    _replace(zones_of_the_product, "_load", lambda name: made.get(name) or original(name))


def _replace(owner: Any, name: str, value: Any) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} any more: mend the mutant"
    setattr(owner, name, value)


def _cut(module: ModuleType, statements: str, name: str, text: str, instead: str = "") -> None:
    """Take a part out of a statement."""
    known = dict(getattr(module, statements))
    assert text in known[name], f"{name} has no {text!r} any more: mend the mutant"
    setattr(module, statements, {**known, name: known[name].replace(text, instead)})


async def _a_while(seconds: float) -> None:
    await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=seconds)
