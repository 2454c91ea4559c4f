"""For whom, and in whose name, transactions act: said in a way that nothing can escape from."""

from __future__ import annotations

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell.runtime import acting
from cronwell.runtime.acting import Actor
from cronwell.runtime.postgres import Database


@pytest.mark.parametrize("setting", ["on", "off"])
async def test_a_name_stays_a_name_whatever_strings_the_server_takes(setting: str, database_url: str) -> None:
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
        database_url, server_settings={"standard_conforming_strings": setting, "escape_string_warning": "off"}
    )
    try:
        for name in (
            "plain",
            "o'neill",
            "\\",
            "\\'; create table stolen (); --",
            "'; drop table x; --",
            "ü ✓",
        ):
            acting.act_as(Actor(name, "10.0.0.1", "r-1"))
            await connection.execute(acting.begin())
            assert await connection.fetchval("select current_setting('cronwell.actor')") == name
            await connection.execute("commit")
        assert await connection.fetchval("select to_regclass('stolen')") is None
    finally:
        acting.act_as(None)
        await connection.close()


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50))
def test_a_quoted_name_has_no_quote_that_ends_it(name: str) -> None:
    inner = acting._quoted(name)[2:-1]
    assert inner.replace("''", "").replace("\\\\", "").count("'") == 0


async def test_nobody_acts_unless_said(database: Database) -> None:
    assert acting.begin() == "begin"
    with acting.acting_for(7):
        assert "set_config('cronwell.tenant', E'7', true)" in acting.begin()
        assert "set_config('role', E'cronwell_tenant', true)" in acting.begin()
        with acting.judged_by_statement():
            assert "'role'" not in acting.begin()
        with acting.acting_for(None):
            assert acting.begin() == "begin"
    assert not acting.is_acting()


async def test_plans_are_kept_where_that_is_asked_for_and_nowhere_else(database: Database) -> None:
    modes = []
    for keeps_plans in (False, True, False):
        async with database.transaction(keeps_plans=keeps_plans) as connection:
            modes.append(await connection.fetchval("show plan_cache_mode"))
    assert modes == ["force_custom_plan", "force_generic_plan", "force_custom_plan"]
    modes.append(await database.fetchval("show plan_cache_mode"))
    assert modes[-1] == "force_custom_plan"
