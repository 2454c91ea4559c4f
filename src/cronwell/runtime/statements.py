"""Files of named SQL statements."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_HEADING = re.compile(r"-- (name|part):\s*(\S+)\s*")
_STATEMENT_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PART = re.compile(r"/\* part: (\w+) \*/")


def load_statements(file: Path) -> Mapping[str, str]:
    """Read a file of named statements, each a block of `-- name: claim`, its purpose in comment lines, and SQL.

    Each statement comes back without its purpose and closing semicolon, and begins with its name in a comment, by
    which an operator finds it in pg_stat_activity and the server's log. What several statements share is a block of its own,
    `-- part: may_start`, that stands in them where they say `/* part: may_start */`. Raises ValueError for a name given twice
    or a block without purpose or SQL: a mistake in the package, found at import.
    """
    statements: dict[str, str] = {}
    parts: dict[str, str] = {}
    blocks = re.split(r"^(?=-- (?:name|part):)", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if any(line.strip() and not line.startswith("--") for line in blocks[0].splitlines()):
        raise ValueError(f"{file.name}: SQL stands before the first `-- name:`")
    for block in blocks[1:]:
        kind, name, sql = _read_block(file.name, block)
        if name in statements or name in parts:
            raise ValueError(f"{file.name}: the statement {name} is defined twice")
        if kind == "part":
            parts[name] = sql
        else:
            statements[name] = f"/* {name} */ {_PART.sub(functools.partial(_part, file.name, parts), sql)}"
    return MappingProxyType(statements)


def _read_block(file: str, block: str) -> tuple[str, str, str]:
    heading, *lines = block.splitlines()
    found = _HEADING.fullmatch(heading)
    if found is None or not _STATEMENT_NAME.fullmatch(found[2]):
        raise ValueError(f"{file}: {heading!r} does not name a statement in lower_case")
    name = found[2]
    if not lines or not lines[0].startswith("-- "):
        raise ValueError(f"{file}: the statement {name} needs a line that says its purpose")
    while lines and lines[0].startswith("--"):
        lines.pop(0)
    sql = "\n".join(lines).strip().removesuffix(";").rstrip()
    if not sql:
        raise ValueError(f"{file}: the statement {name} has no SQL")
    return found[1], name, sql


def _part(file: str, parts: Mapping[str, str], found: re.Match[str]) -> str:
    if found[1] not in parts:
        raise ValueError(f"{file}: no part {found[1]!r} stands before the statement that wants it")
    return parts[found[1]]
