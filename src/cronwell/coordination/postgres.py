"""Members and duties as rows in PostgreSQL, judged by the server's own clock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from cronwell import errors
from cronwell.coordination.port import Member, View
from cronwell.runtime.listener import Listener
from cronwell.runtime.postgres import Database
from cronwell.runtime.service import ErrorReport, Idle, Service
from cronwell.runtime.statements import load_statements

_SQL = load_statements(Path(__file__).with_suffix(".sql"))

CHANNEL = "cronwell_duties"


class PostgresCoordination:
    """Implements `coordination.port.Coordination`."""

    def __init__(self, database: Database, url: str, *, can_listen: bool, on_error: ErrorReport) -> None:
        self._database = database
        self._url = url
        self._can_listen = can_listen
        self._on_error = on_error

    async def beat(self, member: Member, ttl: timedelta) -> View:
        with _translated():
            await self._database.execute(
                _SQL["beat"], member.id, member.weight, member.reaches, ttl.total_seconds(), CHANNEL
            )
            members = await self._database.fetch(_SQL["members"])
            owners = await self._database.fetch(_SQL["owners"])
        return View(
            {row["id"]: Member(*row) for row in members}, {row["name"]: row["owner"] for row in owners}
        )

    async def take(self, wanted: Mapping[str, UUID | None], member: UUID) -> set[str]:
        names = sorted(wanted)
        seen = [wanted[name] for name in names]
        with _translated():
            return {row["name"] for row in await self._database.fetch(_SQL["take"], names, seen, member)}

    async def give(self, names: Iterable[str], member: UUID) -> None:
        with _translated():
            await self._database.execute(_SQL["give"], sorted(set(names)), member, CHANNEL)

    async def leave(self, member: UUID) -> None:
        with _translated():
            await self._database.execute(_SQL["leave"], member, CHANNEL)
            await self._database.execute(_SQL["forget"])

    def watch(self, on_change: Callable[[], None]) -> Service:
        if not self._can_listen:
            return Idle("watch of duties")
        return Listener(
            self._url,
            [CHANNEL],
            lambda _channel, _payload: on_change(),
            on_error=self._on_error,
            on_connect=on_change,
        )

    async def close(self) -> None:
        """Nothing of its own is open."""


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except errors.StoreUnavailable as error:
        raise errors.CoordinationUnavailable(str(error)) from error
