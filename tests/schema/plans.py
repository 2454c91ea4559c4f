"""What PostgreSQL means to do for a statement, in a form that a test can judge."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cronwell.runtime.postgres import Connection

_DAY = re.compile(r"_\d{8}$")
_CHILD = re.compile(r"_\d+$")

BY_PLACE = "ctid"
"""Stands for an index where a row is read by its place in the table."""

# The index of a partition and the index of the whole table that it is a part of.
_PARTS = """
    select part.relname as part, whole.relname as whole
    from pg_inherits
    join pg_class as part on part.oid = pg_inherits.inhrelid and part.relkind = 'i'
    join pg_class as whole on whole.oid = pg_inherits.inhparent
"""


@dataclass(frozen=True, slots=True)
class Scan:
    """One place of a plan where rows of a table are read."""

    table: str
    partition: str
    alias: str
    how: str
    index: str | None
    condition: str
    filtered: str

    def __str__(self) -> str:
        by = f" by {self.index} on {self.condition}" if self.index else ""
        rest = f", then filtered by {self.filtered}" if self.filtered else ""
        return f"{self.how} of {self.partition} as {self.alias}{by}{rest}"


@dataclass(frozen=True, slots=True)
class Explained:
    """A plan: every scan in it, every kind of node, and what running it cost where it was run."""

    scans: list[Scan]
    kinds: set[str]
    buffers: int
    rows_read: int

    def of(self, alias: str) -> list[Scan]:
        """The scans of one table of the statement, over all partitions."""
        found = [scan for scan in self.scans if scan.alias == alias]
        assert found, f"nothing is read as {alias!r}; read are {sorted({s.alias for s in self.scans})}"
        return found

    def __str__(self) -> str:
        return "\n".join(map(str, self.scans))


async def generic_plan(connection: Connection, sql: str, args: Sequence[object]) -> Explained:
    """The plan that is made once for all arguments; which is what a hot connection runs."""
    await connection.execute(f"prepare explained as {sql}")
    try:
        given = f"({', '.join(map(literal, args))})" if args else ""
        found = await connection.fetchval(f"explain (format json) execute explained{given}")
    finally:
        await connection.execute("deallocate explained")
    return await _read(connection, found)


async def custom_plan(connection: Connection, sql: str, args: Sequence[object]) -> Explained:
    """The plan that is made for these arguments; which is what a cold connection runs."""
    return await _read(connection, await connection.fetchval(f"explain (format json) {sql}", *args))


async def run_plan(connection: Connection, sql: str, args: Sequence[object]) -> Explained:
    """Run a statement by its generic plan, and say what was read."""
    await connection.execute(f"prepare explained as {sql}")
    try:
        given = f"({', '.join(map(literal, args))})" if args else ""
        found = await connection.fetchval(
            f"explain (analyze, buffers, timing off, format json) execute explained{given}"
        )
    finally:
        await connection.execute("deallocate explained")
    return await _read(connection, found)


def literal(value: object) -> str:
    """An argument as EXECUTE takes it; PostgreSQL knows its type from the statement."""
    if value is None:
        return "null"
    if isinstance(value, list | tuple):
        items = ",".join("null" if item is None else json.dumps(_text(item)) for item in value)
        return f"'{{{items}}}'"
    return "'" + _text(value).replace("'", "''") + "'"


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


async def _read(connection: Connection, found: str) -> Explained:
    parts = {row["part"]: row["whole"] for row in await connection.fetch(_PARTS)}
    nodes = list(_nodes(json.loads(found)[0]["Plan"]))
    scans = [_scan(node, parts) for node in nodes if "Relation Name" in node and "Scan" in node["Node Type"]]
    return Explained(
        scans=scans,
        kinds={node["Node Type"] for node in nodes},
        buffers=sum(nodes[0].get(f"Shared {kind} Blocks", 0) for kind in ("Hit", "Read")),
        rows_read=sum(
            round(
                (node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0))
                * node.get("Actual Loops", 0)
            )
            for node in nodes
            if "Relation Name" in node and "Scan" in node["Node Type"]
        ),
    )


def _scan(node: dict[str, Any], parts: dict[str, str]) -> Scan:
    partition = node["Relation Name"]
    # A bitmap scan names its index further down; elsewhere what is below belongs to subqueries.
    below = [node, *_nodes_below(node)] if node["Node Type"] == "Bitmap Heap Scan" else [node]
    index = next((each["Index Name"] for each in below if "Index Name" in each), None)
    if node["Node Type"] == "Tid Scan":
        index = BY_PLACE
    return Scan(
        table=_DAY.sub("", partition),
        partition=partition,
        alias=_CHILD.sub("", node["Alias"]),
        how=node["Node Type"],
        index=parts.get(index, index) if index else None,
        condition=next(
            (each["Index Cond"] for each in below if "Index Cond" in each), node.get("TID Cond", "")
        ),
        filtered=node.get("Filter", ""),
    )


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    yield from _nodes_below(node)


def _nodes_below(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for child in node.get("Plans", []):
        yield from _nodes(child)
