"""What the runner and a peer tell each other: environment variables in, JSON lines out.

A peer is a program with two verbs. `prepare` makes its schema and enqueues the work, and ends. `work` runs one worker: it
says `{"ready": true}` once it takes jobs, `{"done": n}` at most every 50 ms while n grows, and when its standard input is
closed it stops in order and ends with one line that has every start it saw: `{"starts": [...], "dues": [...], "keys": [...]}`.
Moments are seconds since 1970 on the clock of the machine. `dues` has the moment that each job was due, `keys` the number
of its schedule; either may be left out by those who are not told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

WORKS = ("drain", "steady", "recurring")


class Misspoken(Exception):
    """A peer said what is not in the protocol."""


@dataclass(frozen=True, slots=True)
class Task:
    """One kind of work in one size."""

    work: str
    jobs: int = 0
    """How many one-off jobs: to drain, or to run at the steady rate."""
    rate: int = 0
    """Jobs that are due in a second."""
    seconds: float = 0
    schedules: int = 0
    period: float = 1
    """Seconds from one slot of a schedule to its next."""
    start: float = 0
    """When the first is due."""
    cores: int = 1

    def environ(self, database_url: str, redis_url: str = "") -> dict[str, str]:
        """What a peer finds in its environment."""
        parts = urlsplit(database_url)
        return {
            "PEER_WORK": self.work,
            "PEER_JOBS": str(self.jobs),
            "PEER_RATE": str(self.rate),
            "PEER_SECONDS": str(self.seconds),
            "PEER_SCHEDULES": str(self.schedules),
            "PEER_PERIOD": str(self.period),
            "PEER_START": repr(self.start),
            "PEER_CORES": str(self.cores),
            "PEER_DATABASE_URL": database_url,
            "PEER_REDIS_URL": redis_url,
            "PGHOST": parts.hostname or "",
            "PGPORT": str(parts.port or 5432),
            "PGUSER": unquote(parts.username or ""),
            "PGPASSWORD": unquote(parts.password or ""),
            "PGDATABASE": parts.path.lstrip("/"),
            # Runtimes that would take every core of the machine.
            "GOMAXPROCS": str(self.cores),
            "JDK_JAVA_OPTIONS": f"-XX:ActiveProcessorCount={self.cores}",
        }


@dataclass(frozen=True, slots=True)
class Report:
    """Every start that one or more workers saw."""

    starts: Sequence[float]
    dues: Sequence[float] | None = None
    keys: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker takes jobs from now on."""


@dataclass(frozen=True, slots=True)
class Done:
    """So many jobs the worker has started by now."""

    count: int


def parse(line: str) -> Ready | Done | Report:
    """What a worker says in one line."""
    try:
        said = json.loads(line)
    except ValueError:
        raise Misspoken(f"not JSON: {line[:200]!r}") from None
    match said:
        case {"ready": True}:
            return Ready()
        case {"done": int(count)}:
            return Done(count)
        case {"starts": list(starts)}:
            dues, keys = said.get("dues"), said.get("keys")
            for beside in (dues, keys):
                if beside is not None and len(beside) != len(starts):
                    raise Misspoken(f"{len(starts)} starts, but {len(beside)} beside them")
            return Report(starts, dues, keys)
    raise Misspoken(f"no word of the protocol: {line[:200]!r}")


def merge(reports: Sequence[Report]) -> Report:
    """The reports of all workers as if they were one; dues and keys only where everybody has them."""
    told = [report for report in reports if report.starts]
    dues = [due for report in told for due in report.dues or ()]
    keys = [key for report in told for key in report.keys or ()]
    return Report(
        [start for report in told for start in report.starts],
        dues if all(report.dues is not None for report in told) else None,
        keys if all(report.keys is not None for report in told) else None,
    )
