"""What one row of the table says: each target beside what was measured, the share of the limit, and the cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cronwell.bench.cost import Cost


@dataclass(frozen=True, slots=True)
class Check:
    """A target and what was measured of it."""

    what: str
    target: float
    measured: float
    unit: str = ""
    is_floor: bool = False
    """Whether at least, rather than at most, the target is wanted."""

    @property
    def is_met(self) -> bool:
        return self.measured >= self.target if self.is_floor else self.measured <= self.target

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "is_met": self.is_met}


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement, with everything that its table and its plots need."""

    name: str
    title: str
    checks: Sequence[Check]
    limit: float | None = None
    """Executions a second that the bare statements reach in the same run."""
    per_second: float | None = None
    """What the row does a second: executions, deliveries, or jobs that are created."""
    cost: Cost | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Figures that are worth keeping and have no target."""
    series: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    """Points to plot, by what they show: lateness in milliseconds against its share, throughput over seconds, ..."""

    @property
    def is_met(self) -> bool:
        return all(check.is_met for check in self.checks)

    @property
    def ratio(self) -> float | None:
        """The share of the limit, where the row has a throughput that the limit bounds."""
        return None if self.limit is None or self.per_second is None else self.per_second / self.limit

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "is_met": self.is_met,
            "checks": [check.as_dict() for check in self.checks],
            "limit": self.limit,
            "per_second": self.per_second,
            "ratio_to_limit": self.ratio,
            "cost": None if self.cost is None else self.cost.as_dict(),
            "detail": dict(self.detail),
            "series": {name: [list(point) for point in points] for name, points in self.series.items()},
        }
