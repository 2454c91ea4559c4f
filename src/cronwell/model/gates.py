"""How many executions may go through their gates: groups of jobs, and tenants with quotas."""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass(slots=True)
class Free:
    """What there is room for."""

    places: int
    running: dict[tuple[int, str], int]
    """How many of each group run; it has only the groups that may be looked at."""
    rooms: dict[int, int]
    """How many more its quotas let a tenant begin, where it has any."""
    shares: dict[int, int]
    """No tenant gets more than its share as long as another wants it."""

    def take(self, tenant_id: int, gate: str, many: int) -> None:
        """So many of a tenant, and of its group, went through."""
        self.places -= many
        self.shares[tenant_id] = self.shares.get(tenant_id, 0) - many
        if gate:
            self.running[tenant_id, gate] += many
        if tenant_id in self.rooms:
            self.rooms[tenant_id] -= many


def let_through(lines: Sequence[Waiting], free: Free) -> list[Passage]:
    """Divide places among lines, earliest first, each by what its group and its tenant leave."""
    wanted = [0] * len(lines)
    left = Free(free.places, dict(free.running), dict(free.rooms), dict(free.shares))
    for is_shared in (True, False):
        for place, line in enumerate(lines):
            group = (line.tenant_id, line.gate)
            if line.gate and group not in left.running:
                continue
            many = min(left.places, left.rooms.get(line.tenant_id, left.places))
            if is_shared:
                many = min(many, left.shares.get(line.tenant_id, 0))
            if line.gate and line.limit is not None:
                many = min(many, line.limit - left.running[group])
            if many > 0:
                wanted[place] += many
                left.take(line.tenant_id, line.gate, many)
    return [
        Passage(many, left.running.get((line.tenant_id, line.gate), 0) - many if line.gate else 0)
        for line, many in zip(lines, wanted, strict=True)
    ]
