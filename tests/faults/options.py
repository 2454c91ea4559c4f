"""What `make faults` was asked for: read from the environment, and told again as the command that repeats a run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    minutes: float
    seed: str
    coordination: str
    evidence: Path | None
    kills: int

    @classmethod
    def read(cls) -> Options:
        return cls(
            minutes=float(os.environ.get("MINUTES") or 5),
            seed=os.environ.get("SEED") or os.urandom(3).hex(),
            coordination=os.environ.get("COORDINATION") or "postgres",
            evidence=Path(os.environ["EVIDENCE"]) if os.environ.get("EVIDENCE") else None,
            kills=int(os.environ.get("KILLS") or 50),
        )

    def command(self, scenario: str) -> str:
        """What repeats a run."""
        more = f" COORDINATION={self.coordination}" if self.coordination != "postgres" else ""
        return f"make faults SCENARIO={scenario} SEED={self.seed} MINUTES={self.minutes:g}{more}"
