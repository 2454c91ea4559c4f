"""PostgreSQL as every process uses it: a pool that heals itself and errors that say what is known.

Four things can be said about a statement that did not answer, and callers act differently on each:

- `StoreUnavailable`: nothing was written. No connection could be had, or it was lost before COMMIT was sent, or
  the server gave the statement up (timeout, no memory, no disk, shutting down). Try again later.
- `LockedOut`, a StoreUnavailable: nothing was written, because of another transaction: a deadlock, a lock that was not
  to be had in time, or a conflict. The server answers, and what needs nothing of that other one can go on at once.
- `CommitUnknown`: the connection was lost after something that commits had been sent: COMMIT itself, or a
  statement outside `transaction()`, which carries its own commit. Re-read before deciding anything.
- an asyncpg exception: the server refused it (a constraint, a mistake in the SQL). The adapter that
  sent it knows what that means.

Pooled connections carry no session state: nobody may SET, LISTEN or take a session lock on one. That is what makes
them safe behind a transaction pooler, and it spares the round trip that would wipe the session at each release.
JSON travels as text in both directions. What a request asks for is asked in the name of its tenant, see `acting`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

import asyncpg

from cronwell import errors
from cronwell.config import DatabaseSettings
from cronwell.runtime import acting
from cronwell.runtime.servers import CLIENT_ERRORS as _CLIENT_ERRORS
from cronwell.runtime.servers import Servers, words_of

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    _Raw = PoolConnectionProxy[asyncpg.Record] | asyncpg.Connection[asyncpg.Record]

OLDEST_SUPPORTED = 15
CONNECT_TIMEOUT = timedelta(seconds=10)
ACQUIRE_TIMEOUT = timedelta(seconds=10)
ROLLBACK_TIMEOUT = timedelta(seconds=5)
IDLE_TIMEOUT = timedelta(seconds=15)

# The client gives up only after the server should have: a server that answers late knows what it did.
CLIENT_MARGIN = timedelta(seconds=5)


# Classes of SQLSTATE by which a server says that it cannot do its work now: connection, resources, operator
# intervention (shutdown, timeout, cancel), system error; a rollback of its own; and a server that has become a
# read-only standby.
_GIVEN_UP = ("08", "40", "53", "57", "58", "25006", "25P03", "25P04")
# Serialization failure, deadlock, lock timeout.
_LOCKED_OUT = ("40001", "40P01", "55P03")
_CONNECTION_LOST = ("08", "57P", "25P03", "25P04")


class Connection:
    """One connection inside one transaction; usable until the `transaction()` block ends."""

    __slots__ = ("_raw",)

    def __init__(self, raw: _Raw) -> None:
        self._raw = raw

    async def fetch(self, sql: str, *args: object, timeout: float | None = None) -> list[asyncpg.Record]:
        """Return every row of the answer."""
        with _Translated(self._raw, errors.StoreUnavailable):
            return await self._raw.fetch(sql, *args, timeout=timeout)

    async def fetchrow(self, sql: str, *args: object, timeout: float | None = None) -> asyncpg.Record | None:
        """Return the first row of the answer, or None where there is none."""
        with _Translated(self._raw, errors.StoreUnavailable):
            return await self._raw.fetchrow(sql, *args, timeout=timeout)

    async def fetchval(self, sql: str, *args: object, timeout: float | None = None) -> Any:
        """Return the first column of the first row, or None."""
        with _Translated(self._raw, errors.StoreUnavailable):
            return await self._raw.fetchval(sql, *args, timeout=timeout)

    async def execute(self, sql: str, *args: object, timeout: float | None = None) -> str:
        """Run a statement, or without arguments a script of several, and return its command tag."""
        with _Translated(self._raw, errors.StoreUnavailable):
            return await self._raw.execute(sql, *args, timeout=timeout)

    async def copy_records_to_table(
        self,
        table: str,
        *,
        records: Iterable[Sequence[object]],
        columns: Sequence[str],
        schema: str | None = None,
        timeout: float | None = None,
    ) -> str:
        """Load rows by binary COPY, the fastest way in."""
        with _Translated(self._raw, errors.StoreUnavailable):
            return await self._raw.copy_records_to_table(
                table, records=records, columns=list(columns), schema_name=schema, timeout=timeout
            )


class Database:
    """A pool of connections to one PostgreSQL, or to the one of several that takes writes. It reconnects by itself; see
    the module for its errors."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], servers: Servers) -> None:
        self._pool = pool
        self.servers = servers

    @classmethod
    async def connect(
        cls,
        settings: DatabaseSettings,
        url: str,
        *,
        application_name: str,
        pool_size: int | None = None,
        is_hot: bool = False,
    ) -> Database:
        """Connect once, check the server's version, and open the pool. `is_hot`: see `_HOT`.

        Raises StoreUnavailable where the server does not answer, ConfigError where it never will: a wrong
        address, password or database, or a PostgreSQL that is too old.
        """
        largest = pool_size if pool_size is not None else settings.pool_size
        if largest < 1:
            raise errors.ConfigError("database.pool_size (CRONWELL_DATABASE_POOL_SIZE) must be at least 1")
        servers = Servers(url)
        pool: asyncpg.Pool[asyncpg.Record] = asyncpg.create_pool(
            url,
            connect=servers.connect,
            # No connection is kept for its own sake: after a loss the next statement connects, and says so if it cannot.
            min_size=0,
            max_size=largest,
            reset=_keep_session,
            timeout=CONNECT_TIMEOUT.total_seconds(),
            **_connection_options(settings, application_name, is_hot=is_hot),
        )
        try:
            await pool
            version = int(await pool.fetchval("select current_setting('server_version_num')")) // 10_000
        except asyncpg.InsufficientPrivilegeError as error:
            raise errors.ConfigError(
                f"the role in database.url (CRONWELL_DATABASE_URL) may not ask which server it is on: {words_of(error)}; "
                "as a superuser, `grant execute on function pg_control_system(), pg_current_wal_lsn(), "
                "pg_walfile_name(pg_lsn) to` that role"
            ) from error
        except _WRONG_SETTINGS as error:
            raise errors.ConfigError(
                f"database.url (CRONWELL_DATABASE_URL) cannot be used: {words_of(error)}"
            ) from error
        except _CLIENT_ERRORS as error:
            raise errors.StoreUnavailable(
                f"PostgreSQL at {servers.places} does not answer: {words_of(error)}"
            ) from error
        database = cls(pool, servers)
        if version < OLDEST_SUPPORTED:
            await database.close()
            raise errors.ConfigError(
                f"database.url (CRONWELL_DATABASE_URL) leads to PostgreSQL {version}; "
                f"Cronwell needs {OLDEST_SUPPORTED} or later"
            )
        return database

    async def fetch(self, sql: str, *args: object, timeout: float | None = None) -> list[asyncpg.Record]:
        """Return every row of the answer; the statement is its own transaction."""
        async with self._statement() as raw:
            return await raw.fetch(sql, *args, timeout=timeout)

    async def fetchrow(self, sql: str, *args: object, timeout: float | None = None) -> asyncpg.Record | None:
        """Return the first row of the answer, or None; the statement is its own transaction."""
        async with self._statement() as raw:
            return await raw.fetchrow(sql, *args, timeout=timeout)

    async def fetchval(self, sql: str, *args: object, timeout: float | None = None) -> Any:
        """Return the first column of the first row, or None; the statement is its own transaction."""
        async with self._statement() as raw:
            return await raw.fetchval(sql, *args, timeout=timeout)

    async def execute(self, sql: str, *args: object, timeout: float | None = None) -> str:
        """Run a statement as its own transaction and return its command tag."""
        async with self._statement() as raw:
            return await raw.execute(sql, *args, timeout=timeout)

    @contextlib.asynccontextmanager
    async def transaction(
        self, *, keeps_plans: bool = False, lock_timeout: timedelta | None = None
    ) -> AsyncIterator[Connection]:
        """Hold one connection from BEGIN to COMMIT; whatever leaves the block rolls it back.

        With `keeps_plans` its statements are planned once for a connection: for those that are run all day, find what they
        need by its key, and would take as long to plan as to run. A statement that waits longer than `lock_timeout` for
        a lock raises LockedOut. One that must run longer than the statement timeout first runs `set local
        statement_timeout` in the block, and takes a `timeout` of its own.
        """
        async with self._connection() as raw:
            connection = Connection(raw)
            try:
                await connection.execute(acting.begin(keeps_plans=keeps_plans, lock_timeout=lock_timeout))
                yield connection
            except BaseException:
                await _roll_back(raw)
                raise
            with _Translated(raw, errors.CommitUnknown):
                ended = await raw.execute("commit")
            if ended != "COMMIT":
                # The server answers COMMIT of a failed transaction with a quiet ROLLBACK.
                raise asyncpg.InFailedSQLTransactionError(
                    "an error inside the transaction was swallowed, so COMMIT rolled back; nothing was written"
                )

    async def drop_connections(self) -> None:
        """Let go of every connection when it is next given back: they may lead to a server that has been replaced."""
        await self._pool.expire_connections()

    async def close(self) -> None:
        """Close every connection, waiting a little for those that are in use."""
        with contextlib.suppress(*_CLIENT_ERRORS):
            # Cut short, asyncpg ends what is left by force.
            async with asyncio.timeout(CLIENT_MARGIN.total_seconds()):
                await self._pool.close()

    @contextlib.asynccontextmanager
    async def _statement(self) -> AsyncIterator[_Raw]:
        async with self._connection() as raw:
            with _Translated(raw, errors.CommitUnknown):
                if not acting.is_acting():
                    yield raw
                    return
                # For whom a statement is can only be said within a transaction.
                try:
                    await raw.execute(acting.begin())
                    yield raw
                    await raw.execute("commit")
                except BaseException:
                    await _roll_back(raw)
                    raise

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[PoolConnectionProxy[asyncpg.Record]]:
        try:
            raw = await self._pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds())
        except _CLIENT_ERRORS as error:
            raise errors.StoreUnavailable(f"no connection to PostgreSQL: {words_of(error)}") from error
        try:
            yield raw
            self.servers.answered_at = time.monotonic()
        finally:
            # A release that fails has ended the connection; what the statements said still stands.
            with contextlib.suppress(*_CLIENT_ERRORS):
                await self._pool.release(raw)


# What it raises when connecting can never succeed. A port that is no number is a plain ValueError.
_WRONG_SETTINGS = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.exceptions.ClientConfigurationError,
    ValueError,
)


class _Translated:
    """Turn the loss of the connection into `lost`, and a server that gave up into StoreUnavailable or LockedOut."""

    __slots__ = ("_lost", "_raw")

    def __init__(self, raw: _Raw, lost: type[errors.StoreUnavailable]) -> None:
        self._raw = raw
        self._lost = lost

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, _CLIENT_ERRORS):
            return
        if _is_loss(error, is_closed=_is_closed(self._raw)):
            raise self._lost(f"the connection to PostgreSQL was lost: {words_of(error)}") from error
        if isinstance(error, asyncpg.PostgresError) and error.sqlstate in _LOCKED_OUT:
            raise errors.LockedOut(f"another transaction was in the way: {words_of(error)}") from error
        if _is_giving_up(error):
            raise errors.StoreUnavailable(f"PostgreSQL gave up: {words_of(error)}") from error


def _is_loss(error: BaseException, *, is_closed: bool) -> bool:
    """Tell whether the connection went away, or silent, before the answer came."""
    if isinstance(error, asyncpg.PostgresError):
        # A refusal arrives whole, so what it says happened, even where the server then hung up.
        return (error.sqlstate or "").startswith(_CONNECTION_LOST)
    return isinstance(error, OSError) or is_closed


def _is_giving_up(error: BaseException) -> bool:
    if isinstance(error, (asyncpg.InvalidCachedStatementError, asyncpg.exceptions.OutdatedSchemaCacheError)):
        # The schema moved under a prepared statement: the transaction is lost, the next one is planned anew.
        return True
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "").startswith(_GIVEN_UP)


async def _roll_back(raw: _Raw) -> None:
    """End the transaction, or the connection with it: PostgreSQL rolls back for a client that is gone."""
    if _is_closed(raw):
        return
    try:
        await raw.execute("rollback", timeout=ROLLBACK_TIMEOUT.total_seconds())
    except _CLIENT_ERRORS:
        if not _is_closed(raw):
            raw.terminate()


def _is_closed(raw: _Raw) -> bool:
    try:
        return raw.is_closed()
    except asyncpg.InterfaceError:
        # The pool takes a dead connection out of our hands, and then it answers nothing any more.
        return True


async def _keep_session(raw: object) -> None:
    """Stand in for asyncpg's session reset; it still rolls back an open transaction before this."""


# For the few statements that schedulers and workers run all day. They take arrays and go by index; a plan made while a
# day's partition was still empty must not become a sequential scan, or a hash of the whole day, when it is full.
_HOT = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}

# For the statements that users cause. Their filters are optional, so one plan does not fit all of them.
_COLD = {"plan_cache_mode": "force_custom_plan"}


def _connection_options(settings: DatabaseSettings, application_name: str, *, is_hot: bool) -> dict[str, Any]:
    limit = settings.statement_timeout
    if settings.pooler:
        # A pooler refuses start-up parameters that it does not know, and a SET would stay with somebody else's
        # session; so here only the client enforces the statement timeout.
        return {
            # Statements without a name, which asyncpg prepares and runs without letting go of the server.
            "statement_cache_size": 0,
            "command_timeout": limit.total_seconds() or None,
            "server_settings": {"application_name": application_name, "timezone": "UTC"},
        }
    return {
        # A cached statement is kept for good: there are a few dozen, and asyncpg replans after a schema change.
        "max_cached_statement_lifetime": 0,
        "command_timeout": (limit + CLIENT_MARGIN).total_seconds() if limit else None,
        "server_settings": {
            "application_name": application_name,
            "timezone": "UTC",
            "jit": "off",
            "statement_timeout": str(round(limit.total_seconds() * 1000)),
            # A process that was stopped in the middle of a transaction must not keep its locks.
            "idle_in_transaction_session_timeout": str(round(IDLE_TIMEOUT.total_seconds() * 1000)),
            **(_HOT if is_hot else _COLD),
        },
    }
