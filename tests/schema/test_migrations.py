"""Migrations: replayed they make the declared schema; from many processes, changed, broken or ahead they do no harm."""

from __future__ import annotations

import asyncio
import difflib
import shutil
from collections.abc import AsyncIterator
from datetime import date, timedelta
from pathlib import Path

import asyncpg
import pytest

from cronwell import errors
from cronwell.config import DatabaseSettings
from cronwell.runtime.clock import ManualClock
from cronwell.runtime.postgres import Database
from cronwell.store.postgres.migrate import (
    BELIEVED_FOR,
    MIGRATIONS,
    SchemaWatch,
    migrate,
    migrations,
    pending,
)
from tests.schema import catalog
from tests.support import postgres

DAY = date(2026, 5, 5)


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    opened: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(database_url)
    yield opened
    await opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the migrations, to add to."""
    return Path(shutil.copytree(MIGRATIONS, tmp_path / "migrations"))


def following(folder: Path, name: str, sql: str) -> None:
    """Add the next migration to a folder."""
    (folder / f"{len(migrations(folder)) + 1:04d}_{name}.sql").write_text(sql)


def rewrite(folder: Path, name: str, sql: str) -> None:
    """Give a migration of a folder another text."""
    next(folder.glob(f"*_{name}.sql")).write_text(sql)


async def test_replayed_migrations_make_the_declared_schema(
    server: str, database: Database, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    declared_url = await postgres.create_database(server)
    declared: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(declared_url)
    try:
        # First: the roles that both speak of belong to the whole server, and migrations make them.
        await migrate(database)
        await declared.execute(catalog.declared())
        for each in (declared, connection):
            await each.execute("select ensure_day($1)", DAY)
        wanted, found = await catalog.lines(declared), await catalog.lines(connection)
    finally:
        await declared.close()
        await postgres.drop_database(server, declared_url)
    assert len(wanted) > 100
    differences = difflib.unified_diff(
        wanted, found, "declared in schema/", "made by migrations", "", "", 0, ""
    )
    assert not (told := "\n".join(differences)), f"the two differ:\n{told}"


@pytest.mark.parametrize(
    "change",
    [
        "alter table cursors reset (fillfactor)",
        "alter table jobs alter column pause_note set not null",
        "alter table jobs alter column revision set default 1",
        'alter table jobs alter column name type text collate "default"',
        "alter table executions add column extra integer",
        "alter table tenants drop constraint tenants_weight_check",
        "alter type job_state add value 'archived'",
        "drop index executions_dead",
        "create index extra on jobs (pool)",
        "create or replace function ensure_day(day date) returns boolean language sql as 'select true'",
        "create view extra as select 1 as one",
        "create sequence extra",
        "alter table executions_20260505 set (fillfactor = 90)",
    ],
)
async def test_the_comparison_sees_a_change(migrated_url: str, change: str) -> None:
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(migrated_url)
    try:
        await connection.execute("select ensure_day($1)", DAY)
        before = await catalog.lines(connection)
        await connection.execute(change)
        assert await catalog.lines(connection) != before
    finally:
        await connection.close()


async def test_migrating_again_changes_nothing(
    database: Database, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    applied = await migrate(database)
    assert applied == migrations()
    before = await catalog.lines(connection)
    secret = await database.fetchval("select signing_secret from tenants")
    assert await migrate(database) == []
    assert await pending(database) == []
    assert await catalog.lines(connection) == before
    assert await database.fetchval("select signing_secret from tenants") == secret


async def test_eight_at_once_apply_each_migration_once(database_url: str, folder: Path) -> None:
    following(folder, "next", "create table next (id integer); insert into next values (1);")
    pools = [
        await Database.connect(DatabaseSettings(), database_url, application_name=f"test {n}")
        for n in range(8)
    ]
    try:
        applied = await asyncio.gather(*(migrate(pool, folder) for pool in pools))
        assert sorted((step.version, step.name) for steps in applied for step in steps) == [
            (step.version, step.name) for step in migrations(folder)
        ]
        assert await pools[0].fetchval("select count(*) from next") == 1
        assert await pools[0].fetchval("select count(*) from schema_migrations") == len(migrations(folder))
    finally:
        for pool in pools:
            await pool.close()


async def test_a_migration_that_was_changed_after_it_was_applied_is_refused(
    database: Database, folder: Path
) -> None:
    await migrate(database)
    first = folder / "0001_core.sql"
    first.write_text(first.read_text() + "\n-- harmless, but not what was applied\n")
    with pytest.raises(errors.ConfigError, match=r"migration 0001 \(core\) was applied in another form"):
        await migrate(database, folder)
    with pytest.raises(errors.ConfigError, match="another form"):
        await pending(database, folder)


async def test_a_database_that_is_ahead_is_left_as_it_is(
    database: Database, folder: Path, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    following(folder, "newer", "create table newer (id integer);")
    following(folder, "newest", "create table newest (id integer);")
    await migrate(database, folder)
    before = await catalog.lines(connection)
    assert await migrate(database) == []
    assert await pending(database) == []
    assert await catalog.lines(connection) == before


async def test_a_migration_that_fails_leaves_nothing_behind(
    database: Database, folder: Path, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    await migrate(database)
    before = await catalog.lines(connection)
    broken = "create table half (id integer); insert into tenants values (2, 'x', 1, 'y'); select 1 / 0;"
    following(folder, "broken", broken)
    following(folder, "after", "create table after (id integer);")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(database, folder)
    assert await catalog.lines(connection) == before
    assert await database.fetchval("select count(*) from tenants") == 1
    assert [step.name for step in await pending(database, folder)] == ["broken", "after"]

    rewrite(folder, "broken", "create table half (id integer);")
    assert [step.name for step in await migrate(database, folder)] == ["broken", "after"]


async def test_what_came_before_a_failing_migration_stays(database: Database, folder: Path) -> None:
    following(folder, "broken", "select 1 / 0;")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(database, folder)
    assert [step.name for step in await pending(database, folder)] == ["broken"]


async def test_a_migration_cut_off_half_way_is_done_again(
    database: Database, database_url: str, folder: Path
) -> None:
    following(folder, "cut", "create table cut (id integer); select pg_terminate_backend(pg_backend_pid());")
    with pytest.raises(errors.StoreUnavailable):
        await migrate(database, folder)
    rewrite(folder, "cut", "create table cut (id integer);")
    assert [step.name for step in await migrate(database, folder)] == ["cut"]


async def test_a_long_migration_is_not_cut_by_the_statement_timeout(database_url: str, folder: Path) -> None:
    following(folder, "slow", "select pg_sleep(0.5);")
    impatient = DatabaseSettings(statement_timeout=timedelta(milliseconds=200))
    database = await Database.connect(impatient, database_url, application_name="test")
    try:
        assert len(await migrate(database, folder)) == len(migrations(folder))
    finally:
        await database.close()


def test_a_gap_or_a_double_in_the_numbers_is_refused(folder: Path) -> None:
    missing = len(migrations(folder)) + 1
    (folder / "0099_too_far.sql").write_text("select 1;")
    with pytest.raises(errors.ConfigError, match=rf"0099_too_far\.sql should be number {missing:04d}"):
        migrations(folder)
    (folder / "0099_too_far.sql").rename(folder / "0001_double.sql")
    with pytest.raises(errors.ConfigError, match="should be number 0002"):
        migrations(folder)


async def test_each_installation_gets_a_signing_secret_of_its_own(server: str, migrated_url: str) -> None:
    other = await postgres.create_database(server)
    secrets = []
    for url in (migrated_url, other):
        database = await Database.connect(DatabaseSettings(), url, application_name="test")
        await migrate(database)
        secrets.append(await database.fetchval("select signing_secret from tenants where id = 1"))
        await database.close()
    await postgres.drop_database(server, other)
    assert secrets[0] != secrets[1]
    assert all(secret.startswith("whsec_") and len(secret) == 50 for secret in secrets)


async def test_a_watch_names_the_first_migration_that_the_database_lacks(
    database: Database, folder: Path
) -> None:
    following(folder, "second", "select 1")
    following(folder, "third", "select 1")
    watch = SchemaWatch(database, ManualClock(), folder)
    assert str(await watch.missing()) == "0001 (core)", "the database is empty"
    await migrate(database)
    assert str(await watch.missing()) == f"{len(migrations()) + 1:04d} (second)"
    await migrate(database, folder)
    assert await watch.missing() is None


async def test_a_watch_believes_a_complete_schema_for_a_few_seconds_and_no_longer(database: Database) -> None:
    await migrate(database)
    clock = ManualClock()
    watch = SchemaWatch(database, clock)
    assert await watch.missing() is None
    await database.execute("drop table schema_migrations")
    clock.advance(BELIEVED_FOR - timedelta(milliseconds=1))
    assert await watch.missing() is None
    clock.advance(timedelta(milliseconds=1))
    assert str(await watch.missing()) == "0001 (core)"


async def test_a_watch_does_not_wait_for_a_migration_that_is_under_way(
    database: Database, folder: Path, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    await migrate(database)
    following(folder, "long", "select 1")
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock($1)", 0x43524F4E)
        async with asyncio.timeout(5):
            assert (
                str(await SchemaWatch(database, ManualClock(), folder).missing())
                == f"{len(migrations()) + 1:04d} (long)"
            )


async def test_a_database_that_is_ahead_lacks_nothing(database: Database, folder: Path) -> None:
    following(folder, "next", "select 1")
    await migrate(database, folder)
    assert await SchemaWatch(database, ManualClock()).missing() is None
