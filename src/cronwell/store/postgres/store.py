"""The store on PostgreSQL: transactions, the parts put together, and the days of history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import asyncpg

from cronwell import errors
from cronwell.runtime.postgres import Database
from cronwell.runtime.statements import load_statements
from cronwell.store.postgres.access import AccessRows
from cronwell.store.postgres.accounts import AccountReads
from cronwell.store.postgres.alert_evidence import AlertEvidence
from cronwell.store.postgres.alerts import AlertReads
from cronwell.store.postgres.audit import AuditReads
from cronwell.store.postgres.backfills import BackfillReads
from cronwell.store.postgres.calendars import CalendarRows
from cronwell.store.postgres.callbacks import CallbackRows
from cronwell.store.postgres.dependencies import DependencyRows
from cronwell.store.postgres.executions import ExecutionRows
from cronwell.store.postgres.forecast import ForecastReads
from cronwell.store.postgres.gates import GateRows
from cronwell.store.postgres.hosts import HostRows
from cronwell.store.postgres.jobs import JobReads
from cronwell.store.postgres.nodes import NodeRows
from cronwell.store.postgres.overrides import OverrideReads
from cronwell.store.postgres.pulses import PulseRows
from cronwell.store.postgres.reconcile import ReconcileReads
from cronwell.store.postgres.scan import ScanReads
from cronwell.store.postgres.secrets import SecretRows
from cronwell.store.postgres.shards import ShardRows
from cronwell.store.postgres.transaction import PostgresTransaction
from cronwell.store.postgres.tzdata import TzdataReads
from cronwell.store.postgres.workers import WorkerRows

_HERE = Path(__file__).parent
_STAGING = load_statements(_HERE / "staging.sql")
_IDEMPOTENCY = load_statements(_HERE / "idempotency.sql")
_PULSES = load_statements(_HERE / "pulses.sql")
_WORKERS = load_statements(_HERE / "workers.sql")

# Shorter than PostgreSQL's deadlock_timeout, and than the second by which nothing may be late.
LOCK_TIMEOUT = timedelta(milliseconds=300)


class PostgresStore(
    JobReads,
    AccessRows,
    AccountReads,
    AlertEvidence,
    AlertReads,
    AuditReads,
    BackfillReads,
    CalendarRows,
    CallbackRows,
    DependencyRows,
    ForecastReads,
    GateRows,
    HostRows,
    NodeRows,
    OverrideReads,
    PulseRows,
    ReconcileReads,
    ScanReads,
    SecretRows,
    ShardRows,
    TzdataReads,
    ExecutionRows,
    WorkerRows,
):
    """Implements `store.port.Store`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known_days: set[date] = set()

    @asynccontextmanager
    async def transaction(
        self, *, is_frequent: bool = False, lock_timeout: timedelta | None = None
    ) -> AsyncIterator[PostgresTransaction]:
        try:
            async with self._database.transaction(
                keeps_plans=is_frequent, lock_timeout=lock_timeout
            ) as connection:
                transaction = PostgresTransaction(connection, frozenset(self._known_days))
                yield transaction
        except asyncpg.CheckViolationError as error:
            self._known_days.clear()
            raise errors.StoreUnavailable(
                "a day of history was dropped by retention in this moment; the next try makes it anew"
            ) from error
        self._known_days |= transaction.made_days

    async def ensure_day(self, day: date) -> bool:
        made: bool = await self._database.fetchval(_STAGING["ensure_day"], day)
        self._known_days.add(day)
        return made

    async def days(self) -> list[date]:
        return [row["day"] for row in await self._database.fetch(_STAGING["days"])]

    async def drop_day(self, day: date) -> bool:
        start = datetime.combine(day, time(), UTC)
        span = (start, start + timedelta(days=1))
        suffix = f"{day:%Y%m%d}"
        if await self._database.fetchval(_STAGING["is_day_busy"], *span):
            return False
        async with self._database.transaction(lock_timeout=LOCK_TIMEOUT) as connection:
            # Dropping a partition locks the whole table too. That lock comes first, as in every other statement: the
            # other way round workers waited in a circle with us until one of them was turned away. It keeps all of
            # them waiting, so where it cannot be had at once we give way, before the server would look for a circle.
            await connection.execute("lock table only executions, only attempts in access exclusive mode")
            if await connection.fetchval("select to_regclass($1) is not null", f"executions_{suffix}"):
                if await connection.fetchval(_STAGING["is_day_busy"], *span):
                    return False
                await connection.execute(f"drop table executions_{suffix}, attempts_{suffix}")
        self._known_days.discard(day)
        return True

    async def finish_ended(self, now: datetime, limit: int) -> int:
        ended = await self._database.execute(_STAGING["finish_ended"], limit, now)
        return int(ended.rpartition(" ")[2])

    async def forget(self, *, keys_before: datetime, workers_before: datetime) -> None:
        await self._database.execute(_IDEMPOTENCY["forget"], keys_before)
        await self._database.execute(_WORKERS["forget_workers"], workers_before)
        await self._database.execute(_PULSES["forget_pulses"], workers_before)
        await self.forget_hosts(workers_before)

    def begin_anew(self) -> None:
        """Forget what was read: another incarnation of the database answers, in which it may not be true."""
        self._known_days.clear()

    async def ping(self) -> Any:
        return await self._database.fetchval("select 1")
