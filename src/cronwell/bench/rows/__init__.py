"""The rows of the table of performance, each in a file of its own.

A row has a `Plan`, whose defaults are the full size, a `QUICK` plan that takes seconds, and `measure`, which runs a plan on
a ground and says what came of it beside the targets.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Mapping
from typing import Any

from cronwell import errors
from cronwell.bench.ground import Ground
from cronwell.bench.row import Row

ROWS: Mapping[str, str] = {
    "drain": "executions that are all due at once, as fast as they go",
    "steady": "a steady rate of executions that do nothing, end to end",
    "lateness": "how late attempts start at a moderate rate",
    "scale": "what more registered jobs cost: staging, memory, reads, lists, new jobs",
    "create": "jobs created over HTTP, many at once and one by one",
    "herd": "many jobs on one instant among many more, and another tenant meanwhile",
    "soak": "a steady rate for long, beside a transaction that stays open",
    "webhooks": "signed deliveries from one worker process, to a receiver that answers at once and to a slow one",
    "running": "executions that all run at once and wait: heartbeats, cancels and memory",
}
"""Each row's name and what it measures, in the order of the table."""
MAY_BE_NOTHING = frozenset({"share", "warm_up", "held_seconds", "delay_ms"})
"""Fields whose 0 means something: no share asked, no call beforehand, let go at once, answered at once. Of everything else
nothing is measured by 0, and rates and shares would be divided by it."""


def plan_of(name: str, *, is_quick: bool, changes: Mapping[str, str]) -> Any:
    """A row's plan: the full one or the quick one, with single fields of it changed."""
    module: Any = importlib.import_module(f"cronwell.bench.rows.{name}")
    return changed(module.QUICK if is_quick else module.Plan(), changes)


async def measure(name: str, ground: Ground, plan: Any) -> Row:
    """Measure one row by its plan."""
    row: Row = await importlib.import_module(f"cronwell.bench.rows.{name}").measure(ground, plan)
    return row


def changed(plan: Any, changes: Mapping[str, str]) -> Any:
    """The plan with some of its fields replaced by what their texts say."""
    known = {field.name: type(getattr(plan, field.name)) for field in dataclasses.fields(plan)}
    read: dict[str, Any] = {}
    for name, text in changes.items():
        if name not in known:
            raise errors.ConfigError(f"no field {name!r} in this plan; there are {', '.join(known)}")
        kind = known[name]
        try:
            read[name] = kind(text)
        except ValueError:
            number = "a whole number" if kind is int else "a number"
            raise errors.ConfigError(f"{name} must be {number}, not {text!r}") from None
        least, bound = (1, "1 or more") if kind is int else (math.ulp(0), "more than 0")
        if name in MAY_BE_NOTHING:
            least, bound = 0, "0 or more"
        if not least <= read[name] < math.inf:
            raise errors.ConfigError(f"{name} must be {bound}, and not {text!r}")
    return dataclasses.replace(plan, **read)
