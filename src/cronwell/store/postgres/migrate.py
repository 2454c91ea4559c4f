"""Bring the schema up to date: plain numbered SQL files, each in one transaction, one process at a time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import asyncpg

from cronwell import errors
from cronwell.runtime.clock import Clock
from cronwell.runtime.postgres import Connection, Database

MIGRATIONS = Path(__file__).parent / "migrations"

_LEDGER = """
create table if not exists schema_migrations (
    version integer primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default now()
)
"""
# Any number that is ours alone: every process that migrates takes the same lock.
_LOCK = 0x43524F4E
BELIEVED_FOR = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str

    def __str__(self) -> str:
        return f"{self.version:04d} ({self.name})"

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations(folder: Path = MIGRATIONS) -> list[Migration]:
    """Every migration in order; the numbers have no gap and no double."""
    found = []
    for place, file in enumerate(sorted(folder.glob("*.sql")), start=1):
        number, _, name = file.stem.partition("_")
        if int(number) != place:
            raise errors.ConfigError(f"{file.name} should be number {place:04d}")
        found.append(Migration(place, name, file.read_text(encoding="utf-8")))
    return found


async def migrate(database: Database, folder: Path = MIGRATIONS) -> list[Migration]:
    """Apply what is missing and return it. Safe to run from many processes at once, and again."""
    known = migrations(folder)
    applied: list[Migration] = []
    while True:
        async with database.transaction() as connection:
            missing = await _missing(connection, known)
            if not missing:
                return applied
            step = missing[0]
            try:
                await connection.execute(step.sql, timeout=3600)
            except asyncpg.RaiseError as error:
                # What a migration says itself is meant for whoever applies it.
                raise errors.ConfigError(f"migration {step} waits for you: {error}; {error.hint}") from None
            await connection.execute(
                "insert into schema_migrations (version, name, checksum) values ($1, $2, $3)",
                step.version,
                step.name,
                step.checksum,
            )
        applied.append(step)


async def pending(database: Database, folder: Path = MIGRATIONS) -> list[Migration]:
    """What `migrate` would apply."""
    async with database.transaction() as connection:
        return await _missing(connection, migrations(folder))


async def check_roles(database: Database) -> None:
    """Refuse to go on as a role that row-level security lets see nothing; raises ConfigError."""
    row = await database.fetchrow(
        "select current_user as name, pg_has_role(current_user, 'cronwell_service', 'usage')"
        " and pg_has_role(current_user, 'cronwell_tenant', 'member') as is_enough"
    )
    if row is None or not row["is_enough"]:
        name = "the database's user" if row is None else row["name"]
        raise errors.ConfigError(
            f"{name} would see no job: as a superuser, `grant cronwell_service, cronwell_tenant to {name}`, "
            "and let it inherit them"
        )


class SchemaWatch:
    """Tells whether the database still has every migration that this release knows.

    A database may be put back to an older state under a running process. That it is complete is believed for a few
    seconds, so that a probe may ask as often as it likes; that something is missing is not.
    """

    def __init__(self, database: Database, clock: Clock, folder: Path = MIGRATIONS) -> None:
        self._database = database
        self._clock = clock
        self._known = migrations(folder)
        self._believed_deadline = clock.monotonic()

    async def missing(self) -> Migration | None:
        """The first migration that the database lacks. Takes no lock, and so does not wait for one that is under way."""
        if self._clock.monotonic() < self._believed_deadline:
            return None
        asked_at = self._clock.monotonic()
        try:
            rows = await self._database.fetch("select version from schema_migrations")
        except asyncpg.UndefinedTableError:
            rows = []
        applied = {row["version"] for row in rows}
        missing = next((each for each in self._known if each.version not in applied), None)
        if missing is None:
            self._believed_deadline = asked_at + BELIEVED_FOR.total_seconds()
        return missing


async def _missing(connection: Connection, known: list[Migration]) -> list[Migration]:
    await connection.execute("set local statement_timeout = 0")
    await connection.execute("select pg_advisory_xact_lock($1)", _LOCK, timeout=3600)
    await connection.execute(_LEDGER)
    rows = await connection.fetch("select version, name, checksum from schema_migrations order by version")
    for row in rows[: len(known)]:
        here = known[row["version"] - 1]
        if here.checksum != row["checksum"]:
            raise errors.ConfigError(
                f"migration {row['version']:04d} ({row['name']}) was applied in another form than this "
                "release has it; the database belongs to a different build of Cronwell"
            )
    # A database that is ahead of this release is fine: migrations are safe for the release before them.
    return known[len(rows) :]
