"""SQL keeps its shape: named statements with a purpose, lower case, migrations in an unbroken row."""

from __future__ import annotations

import re

from tests.shape import rules
from tests.shape.tree import SOURCE, files, shown

ALL = files(SOURCE, "*.sql")
MIGRATIONS = [path for path in ALL if path.parent.name == "migrations"]
# Migrations and a declared schema are scripts; every other file is a set of named statements.
SCRIPTS = [*MIGRATIONS, *(path for path in ALL if path.parent.name == "schema")]
STATEMENTS = [path for path in ALL if path not in SCRIPTS]


def test_every_statement_has_a_name_and_a_purpose() -> None:
    assert {
        shown(path): wrong for path in STATEMENTS if (wrong := rules.unnamed_statements(path.read_text()))
    } == {}


def test_every_script_says_what_it_is_for() -> None:
    assert [shown(path) for path in SCRIPTS if not re.match(r"-- \w+", path.read_text())] == []


def test_sql_is_in_lower_case() -> None:
    assert {shown(path): shouted for path in ALL if (shouted := rules.shouted_sql(path.read_text()))} == {}


def test_migrations_are_numbered_without_a_gap() -> None:
    numbers = [path.name[:4] for path in MIGRATIONS]
    assert numbers == [f"{number:04d}" for number in range(1, len(MIGRATIONS) + 1)]
    assert all(re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", path.name) for path in MIGRATIONS)
