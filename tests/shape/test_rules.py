"""A rule that cannot be broken guards nothing: each one is shown a text that breaks it and one that does not."""

from __future__ import annotations

import pytest

from tests.shape import rules


def test_a_module_with_code_needs_a_docstring() -> None:
    assert rules.lacks_docstring("import os\n")
    assert not rules.lacks_docstring('"""Promise something."""\nimport os\n')
    assert not rules.lacks_docstring("")


@pytest.mark.parametrize("call", ["asyncio.sleep(0.1)", "time.sleep(n)", "sleep(1)", "anyio.sleep(delay=2)"])
def test_a_sleep_is_found_wherever_it_hides(call: str) -> None:
    source = f"async def test_it():\n    if True:\n        x = lambda: {call}\n"
    assert rules.waits_for_a_while(source) == [3]


@pytest.mark.parametrize("call", ["asyncio.sleep(0)", "clock.sleep(5)", "event.wait()"])
def test_giving_way_and_a_manual_clock_are_no_sleeps(call: str) -> None:
    assert rules.waits_for_a_while(f"def test_it():\n    {call}\n") == []


def test_only_the_exempt_function_may_sleep() -> None:
    source = "def poll():\n    time.sleep(1)\ndef other():\n    time.sleep(1)\n"
    assert rules.waits_for_a_while(source, exempt=frozenset({"poll"})) == [4]


def test_an_ignore_needs_a_code_and_a_reason() -> None:
    mark = "# type" + ": ignore"  # in halves, because this file is checked too
    assert rules.unreasoned_ignores(
        f"x = 1  {mark}\ny = 2  {mark}[arg-type]\nz = 3  {mark}  # why not\n"
    ) == [1, 2, 3]
    assert rules.unreasoned_ignores(f"x = 1  {mark}[arg-type]  # the stubs lack this overload\n") == []


def test_work_put_off_is_found() -> None:
    assert rules.postponed_work("x = 1\n# TO" + "DO: more\n") == [2]
    assert rules.postponed_work("x = 1  # what to do: nothing\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "see /hom" + "e/ann/src",
        "cd /roo" + "t/x",
        "https://pypi" + ".org/simple",
        "--index" + "-url https://x.example",
    ],
)
def test_places_of_one_machine_are_found(text: str) -> None:
    assert rules.places_of_one_machine(f"fine\n{text}\n") == [2]


def test_ordinary_paths_are_no_places_of_one_machine() -> None:
    assert (
        rules.places_of_one_machine("/usr/bin/env /tmp/x https://billing.internal/run the root/ folder") == []
    )


def test_sql_is_written_in_lower_case_but_may_quote_capitals() -> None:
    assert rules.shouted_sql("SELECT 1 from t where a = 'AND'") == ["SELECT"]
    assert (
        rules.shouted_sql(
            """select a -- NOT shouted\nfrom "T" where b = 'it''s OK' /* NOR\nthis */ limit $1"""
        )
        == []
    )


def test_a_named_statement_with_its_purpose_is_right() -> None:
    assert (
        rules.unnamed_statements("-- About this file.\n\n-- name: one\n-- Count things; all.\nselect ';';\n")
        == []
    )


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("select 1", "before the first name"),
        ("-- only words", "no statement is named"),
        ("-- name: one\nselect 1", "no purpose"),
        ("-- name: One\n-- Count things.\nselect 1", "lower case"),
        ("-- name: one\n-- Count things.\nselect 1; select 2", "more than one"),
        ("-- name: one\n-- Count things.\n", "holds no statement"),
        ("-- name: a\n-- Do this.\nselect 1\n-- name: a\n-- Do that.\nselect 2", "twice"),
    ],
)
def test_what_is_wrong_with_a_statement_is_said(sql: str, complaint: str) -> None:
    assert any(complaint in wrong for wrong in rules.unnamed_statements(sql))
