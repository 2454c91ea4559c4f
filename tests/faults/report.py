"""What a run has shown: a table by fault, a plot of lateness with the faults shaded, and everything as JSON."""

from __future__ import annotations

import io
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from tests.faults.checks.attempts import zombies
from tests.faults.checks.cluster import first_bodies
from tests.faults.checks.facts import Facts, Violation
from tests.faults.history import History, Window
from tests.support.processes import ROOT

MISSED, DOUBLED, EARLY = {"S3"}, {"S1", "S7", "S9"}, {"S4"}
COLUMNS = (
    "fault",
    "times",
    "slots",
    "missed",
    "doubled",
    "early",
    "zombies",
    "p50 ms",
    "p99 ms",
    "max ms",
    "verdict",
)


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table: all windows of one fault, each with its recovery."""

    fault: str
    times: int
    slots: int
    missed: int
    doubled: int
    early: int
    zombies: int
    """Second bodies of an execution, each after the lease of the first: allowed, and counted."""
    lateness: tuple[float, ...]
    others: int = 0
    """Violations that are none of these."""

    @property
    def verdict(self) -> str:
        return "held" if not (self.missed or self.doubled or self.early or self.others) else "BROKEN"

    def cells(self) -> tuple[str, ...]:
        spread = [
            f"{share(self.lateness, part) * 1000:.0f}" if self.lateness else "-" for part in (0.5, 0.99, 1.0)
        ]
        counts = map(str, (self.times, self.slots, self.missed, self.doubled, self.early, self.zombies))
        return (self.fault, *counts, *spread, self.verdict)


@dataclass(frozen=True, slots=True)
class _Seen:
    """When what the table counts has happened."""

    due: Sequence[float]
    late: Sequence[tuple[float, float]]
    """Each slot with the lateness of its first delivery."""
    zombies: Sequence[float]

    @classmethod
    def of(cls, facts: Facts) -> _Seen:
        return cls(
            [key[2].timestamp() for key in facts.required],
            [(key[2].timestamp(), body.arrived - key[2].timestamp()) for key, body in first_bodies(facts)],
            [body.arrived for body in zombies(facts)],
        )


@dataclass(frozen=True, slots=True)
class Report:
    """A run, judged."""

    scenario: str
    command: str
    """What repeats it."""
    history: History
    violations: Sequence[Violation]
    skipped: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    """What a scenario has measured besides."""

    def lines(self) -> list[Line]:
        """A row for each fault, one for the calm between them, one for all together."""
        seen = _Seen.of(Facts(self.history))
        groups: dict[str, list[tuple[float, float]]] = {}
        stretches = _with_recovery(self.history)
        for window, until in stretches:
            groups.setdefault(window.fault, []).append((window.began, until))
        lines = [self._line(fault, spans, seen) for fault, spans in sorted(groups.items())]
        calm = _between([(window.began, until) for window, until in stretches], self.history)
        lines.append(self._line("between faults", calm, seen))
        everything = self._line("all", [(0.0, float("inf"))], seen, times=len(self.history.windows))
        return [*lines, everything]

    def _line(
        self, fault: str, spans: Sequence[tuple[float, float]], seen: _Seen, times: int | None = None
    ) -> Line:
        def within(moment: float | None) -> bool:
            return moment is not None and any(began <= moment < ended for began, ended in spans)

        is_all = fault == "all"
        broken = [v.promise for v in self.violations if is_all or within(v.due)]
        return Line(
            fault,
            len(spans) if times is None else times,
            sum(map(within, seen.due)),
            sum(promise in MISSED for promise in broken),
            sum(promise in DOUBLED for promise in broken),
            sum(promise in EARLY for promise in broken),
            sum(map(within, seen.zombies)),
            tuple(sorted(lateness for at, lateness in seen.late if within(at))),
            sum(promise not in MISSED | DOUBLED | EARLY for promise in broken),
        )

    def table(self) -> Table:
        table = Table(*COLUMNS, title=f"{self.scenario}: {len(self.violations)} violations")
        lines = self.lines()
        for number, line in enumerate(lines):
            table.add_row(*line.cells(), end_section=number >= len(lines) - 3)
        return table

    def text(self) -> str:
        """The table and what goes with it, as Markdown."""
        rows = [COLUMNS, ("---",) * len(COLUMNS), *(line.cells() for line in self.lines())]
        facts = [f"- {name}: {value}" for name, value in {**provenance(), **self.figures}.items()]
        facts += [f"- not injected: {fault} ({reason})" for fault, reason in self.skipped.items()]
        if self.history.messages:
            facts += [f"- messages: {len(self.history.messages)}"]
        parts = [f"# {self.scenario}", "", f"`{self.command}`", "", *facts, ""]
        parts += ["| " + " | ".join(row) + " |" for row in rows]
        parts += ["", *(f"```\n{violation}\n```" for violation in self.violations[:50])]
        return "\n".join(parts) + "\n"

    def show(self) -> str:
        """For a terminal: the table, then each violation with its evidence, then how to repeat it."""
        file = io.StringIO()
        console = Console(file=file, width=150)
        console.print(self.table())
        for name, value in {
            **self.figures,
            **{f"not injected: {k}": v for k, v in self.skipped.items()},
        }.items():
            console.print(f"{name}: {value}", markup=False)
        for violation in self.violations[:20]:
            console.print(str(violation), markup=False)
        if self.violations:
            console.print(f"{len(self.violations)} violations. To repeat it: {self.command}", markup=False)
        return file.getvalue()

    def keep(self, folder: Path, coordination: str = "postgres") -> None:
        """Write the table, the plot and the JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        name = f"faults-{self.scenario}" + ("" if coordination == "postgres" else f"-{coordination}")
        (folder / f"{name}.md").write_text(self.text())
        (folder / f"{name}.json").write_bytes(orjson.dumps(self.as_json(), option=orjson.OPT_INDENT_2))
        self.plot(folder / f"{name}.png")

    def as_json(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "command": self.command,
            **provenance(),
            "terms": self.history.terms,
            "figures": dict(self.figures),
            "not_injected": dict(self.skipped),
            "faults": [
                {
                    "fault": line.fault,
                    "times": line.times,
                    "slots": line.slots,
                    "missed": line.missed,
                    "doubled": line.doubled,
                    "early": line.early,
                    "zombies": line.zombies,
                    "others": line.others,
                    "lateness_seconds": {
                        str(part): share(line.lateness, part) for part in (0.5, 0.9, 0.99, 0.999, 1.0)
                    }
                    if line.lateness
                    else None,
                }
                for line in self.lines()
            ],
            "windows": self.history.windows,
            "violations": self.violations,
        }

    def plot(self, file: Path) -> None:
        """Lateness of each first delivery over time, with the faults shaded."""
        facts = Facts(self.history)
        points = sorted(
            (key[2].timestamp(), body.arrived - key[2].timestamp()) for key, body in first_bodies(facts)
        )
        if not points:
            return
        start = points[0][0]
        figure = Figure(figsize=(16, 6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for window in self.history.windows:
            if window.fault != "none":
                axes.axvspan(
                    window.began - start, window.healed - start, color="tab:red", alpha=0.15, linewidth=0
                )
                middle = (window.began + window.healed) / 2 - start
                axes.text(middle, 60, window.fault, rotation=90, fontsize=5, ha="center", va="top", alpha=0.7)
        axes.scatter(
            [at - start for at, _ in points], [max(late, 0.0005) for _, late in points], s=3, linewidths=0
        )
        axes.set_yscale("log")
        axes.set_ylim(0.0005, 100)
        axes.set_xlabel("seconds into the run")
        axes.set_ylabel("lateness of the first delivery, seconds")
        axes.set_title(f"{self.scenario}: {len(points)} slots, {len(self.history.windows)} faults")
        figure.savefig(file, dpi=110)


def share(ordered: Sequence[float], part: float) -> float:
    """The value below which this part of a sorted sequence lies."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def provenance() -> dict[str, str]:
    """Which code, when, and where."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "commit": commit.stdout.strip() or "unknown",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}",
    }


def _with_recovery(history: History) -> list[tuple[Window, float]]:
    """Each fault with the end of its recovery: a while after it healed, or the next fault's beginning."""
    windows = sorted(history.windows, key=lambda window: window.began)
    nexts = [*(window.began for window in windows[1:]), float("inf")]
    return [
        (window, min(window.healed + history.terms.recovery, max(begins, window.healed)))
        for window, begins in zip(windows, nexts, strict=True)
    ]


def _between(taken: Sequence[tuple[float, float]], history: History) -> list[tuple[float, float]]:
    ends = [0.0, *(until for _, until in taken)]
    begins = [*(began for began, _ in taken), history.until]
    return [(end, begin) for end, begin in zip(ends, begins, strict=True) if begin > end]
