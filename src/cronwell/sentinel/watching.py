"""Look again and again, and say what is wrong.

What is due is judged by the database's clock as long as that answers; how long it has not, by our own monotonic clock. A
look that takes too long is one that was not answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import asyncpg

from cronwell import errors, logs, telemetry
from cronwell.config import Settings
from cronwell.runtime.servers import each_of, words_of
from cronwell.runtime.service import Loop, run_services
from cronwell.runtime.statements import load_statements
from cronwell.sentinel.incidents import Incidents
from cronwell.sentinel.judging import Level, Limits, Reading, Verdict, Waiting, in_words, judge
from cronwell.sentinel.lines import Line, Lines
from cronwell.sentinel.paging import Pager

_SQL = load_statements(Path(__file__).with_name("readings.sql"))
COUNTED = 1000
LINES = 100
SEEN_WITHIN = timedelta(seconds=15)
LONGEST_LOOK = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Watch:
    """How to watch."""

    limits: Limits
    every: timedelta
    patience: timedelta
    repeat: timedelta
    webhook: str | None = None


def run_sentinel(settings: Settings, watch: Watch) -> int:
    """Watch until a signal."""
    logs.configure(settings.log, role="sentinel")
    asyncio.run(_watch(settings, watch))
    return 0


def look_once(settings: Settings, watch: Watch, say: Callable[[str], None] = print) -> Level:
    """Look once and say what is wrong, one line for each thing; how bad it is comes back."""

    async def look() -> tuple[Verdict, Reading | None]:
        eye = Eye(settings, watch.limits)
        try:
            reading = await eye.look()
            return judge(reading, timedelta(), "", watch.limits), reading
        except Exception as error:  # noqa: BLE001  # whatever keeps us from reading is silence
            return judge(None, watch.limits.unanswered, words_of(error), watch.limits), None
        finally:
            await eye.close()

    verdict, reading = asyncio.run(look())
    for problem in sorted(verdict.problems, key=lambda each: -each.level):
        say(f"{problem.level.name}: {problem.words}")
    if not verdict.problems and reading is not None:
        say(f"OK: {in_words(reading)}")
    return verdict.level


class Eye:
    """One connection that cannot write; made anew whenever it fails."""

    def __init__(self, settings: Settings, limits: Limits) -> None:
        self._settings = settings
        self._limits = limits
        self._lines = Lines(limits.overdue)
        self._timeout = min(LONGEST_LOOK, limits.unanswered).total_seconds()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def look(self) -> Reading:
        """How things stand; raises where the database does not answer in time."""
        try:
            async with asyncio.timeout(self._timeout):
                if self._connection is None:
                    self._connection = await self._connect()
                return await self._read(self._connection)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _read(self, connection: asyncpg.Connection[asyncpg.Record]) -> Reading:
        async with connection.transaction(readonly=True):
            marks = await connection.fetchrow(_SQL["marks"], self._limits.unmarked)
            processes = await connection.fetchrow(_SQL["processes"], SEEN_WITHIN)
            overdue = await connection.fetch(_SQL["overdue"], self._limits.overdue, COUNTED)
            gated = await connection.fetch(_SQL["open_gates"], self._limits.overdue, LINES)
        assert marks is not None, "an aggregate always has a row"
        assert processes is not None, "so has a list of values"
        return Reading(
            now=marks["now"],
            watermark=marks["oldest"],
            unmarked=tuple(marks["unmarked"]),
            schedulers=processes["schedulers"],
            workers=processes["workers"],
            overdue=(
                *(Waiting(*row) for row in overdue),
                *self._lines.take((Line(*row) for row in gated), marks["now"]),
            ),
        )

    async def _connect(self) -> asyncpg.Connection[asyncpg.Record]:
        database = self._settings.database
        url = database.url or _embedded_url(self._settings)
        options = {"application_name": "cronwell sentinel"}
        if not database.pooler:
            options["default_transaction_read_only"] = "on"
        found: Exception | None = None
        servers = each_of(url)
        for server in servers:
            try:
                return await asyncpg.connect(
                    # A connection that cannot write would be taken for one to a standby.
                    server.replace("target_session_attrs=read-write", "target_session_attrs=primary"),
                    timeout=self._timeout / len(servers),
                    command_timeout=self._timeout,
                    server_settings=options,
                    statement_cache_size=0 if database.pooler else 100,
                )
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                found = error
        assert found is not None, "an address names a server"
        raise found


async def _watch(settings: Settings, watch: Watch) -> None:
    pager = Pager(watch.webhook)
    eye = Eye(settings, watch.limits)
    incidents = Incidents(patience=watch.patience, repeat=watch.repeat, tell=pager.tell)
    answered = time.monotonic()
    reading: Reading | None = None
    logged: set[tuple[str, Level]] = set()

    async def poll() -> timedelta:
        nonlocal answered, reading, logged
        silence, why = timedelta(), ""
        asked = time.monotonic()
        try:
            reading = await eye.look()
            answered = asked
        except Exception as error:  # noqa: BLE001  # as above
            silence, why = timedelta(seconds=time.monotonic() - answered), words_of(error)
        verdict = judge(reading, silence, why, watch.limits)
        believed = incidents.take(verdict, time.monotonic())
        for problem in believed:
            if (problem.kind, problem.level) not in logged and problem.level is Level.WARNING:
                telemetry.sentinel_warned(problem.kind, problem.words)
        logged = {(each.kind, each.level) for each in believed}
        left = watch.every.total_seconds() - (time.monotonic() - asked)
        return timedelta(seconds=max(left, 0.05))

    telemetry.started("sentinel")
    looks = Loop("looks", poll, on_error=telemetry.service_failed)
    try:
        await run_services([pager, looks], on_stop=telemetry.stopping)
    finally:
        await eye.close()
    telemetry.stopped("sentinel")


def _embedded_url(settings: Settings) -> str:
    # Here: most have a database of their own, and are spared what this needs.
    from cronwell.runtime.embedded import EmbeddedPostgres  # noqa: PLC0415

    embedded = EmbeddedPostgres(settings.data_dir)
    if not embedded.is_running:
        raise errors.StoreUnavailable(
            f"no PostgreSQL runs in {settings.data_dir}; is CRONWELL_DATABASE_URL or CRONWELL_DATA_DIR set?"
        )
    return embedded.url
