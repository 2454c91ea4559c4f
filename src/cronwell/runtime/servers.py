"""The servers that a database's address names: which of them to talk to, and which incarnation answers.

An address may name several, as libpq has it: `postgresql://a,b/cronwell`. One of them takes writes; after a failover it is
another. Each connection goes to the one that was right the last time and, where that is gone or has become a standby,
to the next. asyncpg does the same within one deadline, which a machine that is silent would use up alone; here each
server has its share of it.

A server that was promoted may lack what the one before it had told us was committed. So each new connection is asked
which incarnation it leads to: the system's identifier, and the timeline, which grows with each promotion. One that
stands behind what this process has seen is a server that was replaced and came back: it is not used.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import asyncpg

# As the function of that name in the schema, which may not be there yet.
_INCARNATION = """
select (select system_identifier from pg_control_system())::text || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
"""
_ATTRIBUTES = "target_session_attrs"
_SHORTEST_TRY = 1.0

# What asyncpg raises when the trouble is not the caller's SQL. TimeoutError is an OSError.
CLIENT_ERRORS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class ReplacedServerError(OSError):
    """The server was replaced by another that was promoted, and is back without having become its standby."""


class Servers:
    """Connects to the server that takes writes, and tells when it is another incarnation than before."""

    def __init__(self, url: str) -> None:
        self._urls = each_of(url)
        self._last = 0
        self._incarnation: str | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Told, in the thread of the connection, that another incarnation has begun to answer."""
        self.answered_at = time.monotonic()
        """When a statement was last answered."""
        self.replaced_at = 0.0
        """When the incarnation before this one last answered a statement."""

    @property
    def places(self) -> str:
        """Where the servers are, without who asks."""
        return ", ".join(_place(url) for url in self._urls)

    @property
    def incarnation(self) -> str | None:
        """Which incarnation the last connection led to; None before the first."""
        return self._incarnation

    async def connect(
        self, dsn: str | None = None, *, timeout: float = 10.0, **options: Any
    ) -> asyncpg.Connection[asyncpg.Record]:
        """Connect as asyncpg does, to the first that can be used; raises what stood in the way where none can."""
        del dsn  # as given to the pool; it is the address that was cut up at the start
        share = max(timeout / len(self._urls), _SHORTEST_TRY)
        found: list[Exception] = []
        for turn in range(len(self._urls)):
            place = (self._last + turn) % len(self._urls)
            try:
                connection = await self._connect(self._urls[place], share, options)
            except CLIENT_ERRORS as error:
                found.append(error)
                continue
            self._last = place
            return connection
        raise _summary(found)

    async def _connect(
        self, url: str, timeout: float, options: dict[str, Any]
    ) -> asyncpg.Connection[asyncpg.Record]:
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
            url, timeout=timeout, **options
        )
        try:
            self._meet(await connection.fetchval(_INCARNATION, timeout=timeout))
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _meet(self, incarnation: str) -> None:
        before = self._incarnation
        if before is not None and is_behind(incarnation, before):
            raise ReplacedServerError(
                f"a server on timeline {_timeline(incarnation)} answers, and this process has seen timeline "
                f"{_timeline(before)}: it was replaced and should be shut down or made a standby. "
                "If an older copy was put in place on purpose, restart this process"
            )
        self._incarnation = incarnation
        if before is not None and incarnation != before:
            self.replaced_at = self.answered_at
            self.on_change()


def _place(url: str) -> str:
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2]
    return hosts or dict(parse_qsl(parts.query)).get("host") or "the address of the environment"


def each_of(url: str) -> list[str]:
    """An address for each server that `url` names; of several only one that takes writes will do, unless it says else."""
    parts = urlsplit(url)
    account, at, hosts = parts.netloc.rpartition("@")
    query = parse_qsl(parts.query, keep_blank_values=True)
    if "," not in hosts and not any(name == "host" and "," in value for name, value in query):
        return [url]
    if _ATTRIBUTES not in dict(query) and "PGTARGETSESSIONATTRS" not in os.environ:
        query.append((_ATTRIBUTES, "read-write"))
    if "," in hosts:
        netlocs = [f"{account}{at}{host}" for host in hosts.split(",")]
        queries = [query] * len(netlocs)
    else:
        named = dict(query)["host"].split(",")
        ports = dict(query).get("port", "").split(",")
        netlocs = [parts.netloc] * len(named)
        queries = [
            [(name, {"host": host, "port": ports[n % len(ports)]}.get(name, value)) for name, value in query]
            for n, host in enumerate(named)
        ]
    return [
        f"{parts.scheme}://{netloc}{parts.path}?{urlencode(each, safe='/', quote_via=quote)}"
        for netloc, each in zip(netlocs, queries, strict=True)
    ]


def is_behind(incarnation: str, seen: str) -> bool:
    """Whether it is an earlier timeline of the same system than the one that was seen."""
    return incarnation.partition("/")[0] == seen.partition("/")[0] and _timeline(incarnation) < _timeline(
        seen
    )


def _timeline(incarnation: str) -> int:
    with contextlib.suppress(ValueError):
        return int(incarnation.partition("/")[2], 16)
    return 0


def words_of(error: BaseException) -> str:
    """What to tell an operator of an error that may have no words of its own."""
    if isinstance(error, TimeoutError) and not str(error):
        return "it did not answer in time"
    if isinstance(error, asyncpg.exceptions.TargetServerAttributeNotMatched):
        return "it is a standby, or read-only"
    return str(error) or type(error).__name__


def _summary(found: list[Exception]) -> Exception:
    """One error for all that stood in the way; where all are of one kind, that kind."""
    if len({type(error) for error in found}) == 1:
        return found[-1]
    return OSError("; ".join(words_of(error) for error in found))
