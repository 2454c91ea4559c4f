"""The tables of a run: one for each kind of work, Cronwell first, and its multiple of each peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

from bench.peers.figures import Figures, multiple
from bench.peers.protocol import Task

OWN = "Cronwell"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: figures, or why there are none."""

    who: str
    version: str
    figures: Figures | None
    why_not: str = ""
    task: Task | None = None
    configuration: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "who": self.who,
            "version": self.version,
            "figures": None if self.figures is None else self.figures.as_dict(),
            "why_not": self.why_not,
            "period": None if self.task is None else self.task.period,
            "configuration": self.configuration,
        }


def table_of(work: str, title: str, entries: Sequence[Entry]) -> Table:
    """The table of one kind of work."""
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("", no_wrap=True)
    heads = ("a second",) if work == "drain" else ("p50 ms", "p99 ms", "max ms")
    for head in (*heads, "started", "missed", f"{OWN} is"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    own = next((entry.figures for entry in entries if entry.who == OWN), None)
    for entry in entries:
        table.add_row(*_cells(work, entry, own, len(heads)))
    return table


def _cells(work: str, entry: Entry, own: Figures | None, width: int) -> list[str]:
    name = f"{entry.who} {entry.version}".strip()
    found = entry.figures
    if found is None:
        return [name, *["-"] * (width + 3), entry.why_not]
    if work == "drain":
        figures = ["-" if found.per_second is None else f"{found.per_second:,.0f}"]
    else:
        figures = [
            f"{found.lateness_ms[at]:,.1f}" if found.lateness_ms else "-" for at in ("p50", "p99", "max")
        ]
    times = None if own is None or entry.who == OWN else multiple(own, found)
    remarks = [f"of {', '.join(f'{each:,.0f}' for each in found.rounds)}"] if found.rounds else []
    remarks += [found.note] if found.note else []
    if found.again:
        remarks.append(f"{found.again:,} started again")
    if entry.task is not None and work == "recurring" and entry.task.period != 1:
        remarks.append(f"every {entry.task.period:g} s, its finest")
    return [
        name,
        *figures,
        f"{found.started:,}",
        f"{found.missed:,}",
        "" if times is None else f"{times:,.1f} x",
        "; ".join(remarks),
    ]


def report_of(
    facts: Mapping[str, Any],
    limit: float | None,
    tasks: Mapping[str, Task],
    found: Mapping[str, Sequence[Entry]],
) -> dict[str, Any]:
    """Everything that a run has to say, for a file."""
    works: dict[str, Any] = {}
    for work, entries in found.items():
        own = next((entry.figures for entry in entries if entry.who == OWN), None)
        task = tasks[work]
        works[work] = {
            "jobs": task.jobs,
            "rate": task.rate,
            "seconds": task.seconds,
            "schedules": task.schedules,
            "entries": [
                {
                    **entry.as_dict(),
                    "cronwell_multiple": None
                    if own is None or entry.figures is None or entry.who == OWN
                    else multiple(own, entry.figures),
                }
                for entry in entries
            ],
        }
    return {"facts": dict(facts), "limit": limit, "works": works}
