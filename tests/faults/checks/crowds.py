"""Jobs and groups that limit how many of them are under way, as the receiver saw them."""

from __future__ import annotations

import bisect
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from tests.faults.checks.facts import Facts
from tests.faults.history import Body


@dataclass(frozen=True)
class Crowd:
    """What shares one limit."""

    name: str
    limit: int
    bodies: list[Body]
    """By their arrival."""

    @cached_property
    def _full(self) -> list[tuple[float, float]]:
        """When as many were under way as may be."""
        steps = sorted(
            step
            for body in self.bodies
            if body.ended is not None
            for step in ((body.arrived, 1), (body.ended, -1))
        )
        found: list[tuple[float, float]] = []
        inside, since = 0, None
        for at, step in steps:
            inside += step
            if inside >= self.limit and since is None:
                since = at
            elif inside < self.limit and since is not None:
                found.append((since, at))
                since = None
        return found

    def full_until(self, moment: float) -> float:
        """The last time before a moment at which there was no room; 0 where there always was."""
        place = bisect.bisect_left(self._full, (moment,))
        return min(self._full[place - 1][1], moment) if place else 0.0


def crowds(facts: Facts) -> list[Crowd]:
    """Each job that limits its executions, and each group, with the bodies of its jobs."""
    limits: defaultdict[str, int] = defaultdict(int)
    found: defaultdict[str, list[Body]] = defaultdict(list)
    by_job: defaultdict[str, list[Body]] = defaultdict(list)
    for body in facts.history.bodies:
        by_job[body.job].append(body)
    for name, bodies in by_job.items():
        job = facts.names.get(name)
        if job is None:
            continue
        specs = [change.spec for change in facts.jobs[job]]
        if all(spec.get("overlap") != "allow" for spec in specs):
            limits[f"job {name}"] = max(int(spec.get("max_running") or 1) for spec in specs)
            found[f"job {name}"] = bodies
        groups = {group["key"]: int(group.get("limit", 1)) for spec in specs if (group := spec.get("group"))}
        if len(groups) == 1 and all(spec.get("group") for spec in specs):
            for group, limit in groups.items():
                limits[f"group {group}"] = max(limits[f"group {group}"], limit)
                found[f"group {group}"] += bodies
    return [
        Crowd(name, limits[name], sorted(bodies, key=lambda each: each.arrived))
        for name, bodies in found.items()
    ]
