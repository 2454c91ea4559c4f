"""The peers, as their own files describe them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.protocol import WORKS

FOLDER = Path(__file__).parent
ORDER = (
    "pgqueuer",
    "procrastinate",
    "graphile-worker",
    "pg-boss",
    "river",
    "db-scheduler",
    "apscheduler",
    "celery",
    "quartz",
)


@dataclass(frozen=True, slots=True)
class Peer:
    """One system to run the same work with."""

    name: str
    title: str
    version: str
    toolchain: str
    folder: Path
    per_core: bool
    """One worker process for each core; else one that uses them all by threads."""
    works: Mapping[str, Mapping[str, object]]
    """What it can do, each with its configuration and, where it differs, `period`, `left` and `beside`."""
    needs: Sequence[str] = field(default_factory=tuple)

    def can(self, work: str) -> bool:
        return work in self.works

    def configuration(self, work: str) -> str:
        return str(self.works[work].get("configuration", ""))

    def period(self, work: str) -> float:
        """Seconds from slot to slot: the finest that it has, but not below a second."""
        return float(str(self.works[work].get("period", 1)))

    def left(self, work: str) -> str | None:
        """The statement that tells whether any job is not recorded as done yet."""
        statement = self.works[work].get("left")
        return None if statement is None else str(statement)

    def beside(self, work: str) -> list[str]:
        """Verbs of processes that run beside the workers."""
        verbs = self.works[work].get("beside", [])
        assert isinstance(verbs, list)
        return [str(verb) for verb in verbs]

    def processes(self, work: str, cores: int) -> int:
        """How many worker processes."""
        if "processes" in self.works[work]:
            return int(str(self.works[work]["processes"]))
        return cores if self.per_core else 1


def read(file: Path) -> Peer:
    """The peer that a `peer.toml` describes."""
    found = tomllib.loads(file.read_text())
    works = {work: found[work] for work in WORKS if work in found}
    return Peer(
        name=file.parent.name,
        title=found["title"],
        version=found["version"],
        toolchain=found["toolchain"],
        folder=file.parent,
        per_core=found["per_core"],
        works=works,
        needs=tuple(found.get("needs", ())),
    )


def peers() -> list[Peer]:
    """Every peer that is there, in the order of the table."""
    files = {file.parent.name: file for file in FOLDER.glob("*/peer.toml")}
    return [read(files[name]) for name in (*ORDER, *sorted(set(files) - set(ORDER))) if name in files]
