"""How many executions may go through their gates: groups of jobs, and tenants with quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class Waiting(Protocol):
    """Executions that wait in one line, in their order."""

    @property
    def tenant_id(self) -> int: ...
    @property
    def gate(self) -> str:
        """The name of their group; nothing where they wait for their tenant's quotas alone."""
        ...

    @property
    def limit(self) -> int | None:
        """How many of the group may run for the first in line to start, that one included."""
        ...


@dataclass(frozen=True, slots=True)
class Passage:
    """What may go through of a line."""

    wanted: int
    running: int
    """How many of the group run beside them, or are let through with them from other lines."""


def let_through(
    lines: Sequence[Waiting],
    *,
    places: int,
    running: Mapping[tuple[int, str], int],
    rooms: Mapping[int, int],
    shares: Mapping[int, int],
) -> list[Passage]:
    """Divide places among lines, earliest first, each by what its group and its tenant leave.

    `running` says how many of each group run, and has only the groups that may be looked at; `rooms` how many more its
    quotas let a tenant begin, where it has any. No tenant gets more than its share as long as another wants it.
    """
    wanted = [0] * len(lines)
    inside = dict(running)
    rooms = dict(rooms)
    left = dict(shares)
    for is_shared in (True, False):
        for place, line in enumerate(lines):
            group = (line.tenant_id, line.gate)
            if line.gate and group not in inside:
                continue
            free = min(places, rooms.get(line.tenant_id, places))
            if is_shared:
                free = min(free, left.get(line.tenant_id, 0))
            if line.gate and line.limit is not None:
                free = min(free, line.limit - inside[group])
            if free <= 0:
                continue
            wanted[place] += free
            places -= free
            left[line.tenant_id] = left.get(line.tenant_id, 0) - free
            if line.gate:
                inside[group] += free
            if line.tenant_id in rooms:
                rooms[line.tenant_id] -= free
    return [
        Passage(many, inside.get((line.tenant_id, line.gate), 0) - many if line.gate else 0)
        for line, many in zip(lines, wanted, strict=True)
    ]
