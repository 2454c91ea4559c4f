"""Every statement of the package PREPAREs on a fresh schema, and is used."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from cronwell.bus import postgres as bus
from cronwell.runtime.statements import load_statements
from tests.shape.tree import SOURCE, files, shown
from tests.support import postgres

FILES = [path for path in files(SOURCE, "*.sql") if path.parent.name not in ("migrations", "schema")]
STATEMENTS = {
    f"{shown(path.with_suffix('')).removeprefix('src/cronwell/')}:{name}": sql
    for path in FILES
    for name, sql in load_statements(path).items()
}
STATEMENTS["bus/postgres:notify"] = bus._NOTIFY


@pytest.fixture(scope="module")
def fresh_url(server: str, migrated: str) -> str:
    return asyncio.run(postgres.create_database(server, template=migrated))


@pytest.fixture
async def connection(fresh_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    opened: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(fresh_url)
    yield opened
    await opened.close()


def test_the_statements_of_every_module_are_found() -> None:
    assert len(STATEMENTS) > 50
    assert {name.partition(":")[0] for name in STATEMENTS} >= {
        "store/postgres/staging",
        "coordination/postgres",
    }


@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_statement_prepares_on_a_fresh_schema(
    name: str, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    await connection.prepare(STATEMENTS[name])


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_no_statement_is_left_over(path: Path) -> None:
    used = {
        name
        for module in files(SOURCE, "*.py")
        if path.name in (text := module.read_text()) or module.stem == path.stem
        for name in re.findall(r'_?[A-Z]+\["(\w+)"\]', text)
    }
    assert set(load_statements(path)) - used == set()
