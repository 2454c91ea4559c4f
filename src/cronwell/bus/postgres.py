"""The bus on PostgreSQL: LISTEN and NOTIFY. Behind a transaction pooler nothing is heard, and polling serves alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cronwell import errors
from cronwell.runtime.listener import Listener
from cronwell.runtime.postgres import Database
from cronwell.runtime.service import ErrorReport, Idle, Service

CHANNEL = "cronwell"

# One statement for many topics; equal notifications of one transaction are delivered once.
_NOTIFY = "select pg_notify($1, topic) from unnest($2::text[]) as topics (topic)"


class PostgresBus:
    """Implements `bus.port.Bus`."""

    def __init__(self, database: Database, url: str, *, can_listen: bool, on_error: ErrorReport) -> None:
        self._database = database
        self._url = url
        self._can_listen = can_listen
        self._on_error = on_error

    async def publish(self, topics: Iterable[str]) -> None:
        try:
            await self._database.execute(_NOTIFY, CHANNEL, sorted(set(topics)))
        except errors.StoreUnavailable as error:
            self._on_error("bus", error, 0.0)

    def subscribe(self, topics: Iterable[str], on_hint: Callable[[str], None]) -> Service:
        wanted = frozenset(topics)
        if not self._can_listen:
            return Idle("listener")

        def hear(_channel: str, topic: str) -> None:
            if topic in wanted:
                on_hint(topic)

        def catch_up() -> None:
            for topic in wanted:
                on_hint(topic)

        return Listener(self._url, [CHANNEL], hear, on_error=self._on_error, on_connect=catch_up)
