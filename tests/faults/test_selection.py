"""A short selection of the fault rig for every change: three quarters of a minute, a fixed seed, a handful of faults.

It also is the proof that the mutants are caught for what they lack: the whole product, under like faults and on a night on
which clocks change, breaks nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.faults.broker import BrokerKilled
from tests.faults.checker import check
from tests.faults.cluster import Shape
from tests.faults.database_faults import DatabaseRestarted
from tests.faults.load import Size
from tests.faults.process_faults import Frozen, Killed
from tests.faults.report import Report
from tests.faults.run import Plan, run
from tests.faults.wire_faults import CommitCut, CommitHeld, NoticesSpoiled
from tests.support.redis import binary

SEED = "selection"
FAULTS = [
    Killed("worker"),
    Killed("scheduler"),
    Frozen("scheduler"),
    DatabaseRestarted("immediate"),
    CommitCut("scheduler"),
    CommitHeld("scheduler"),
    NoticesSpoiled("drop", 3.0),
    BrokerKilled(2.0),
]


async def test_a_handful_of_faults_breaks_no_promise(tmp_path: Path) -> None:
    shape = Shape(look_ahead=8.0, scheduler_lease=1.0, worker_lease=3.0, heartbeat=0.5)
    plan = Plan(SEED, 45.0, FAULTS, shape, Size.small(), night_after=35.0, rest=(1.0, 2.0))
    outcome = await run(plan, tmp_path)
    report = Report(
        "selection",
        "make unit T=tests/faults/test_selection.py",
        outcome.history,
        check(outcome.history),
        outcome.skipped,
    )
    sys.stdout.write(report.show())
    assert [str(violation) for violation in report.violations] == []
    assert len(outcome.history.windows) >= 4
    whole = report.lines()[-1]
    assert whole.slots > 200
    assert binary() is None or len(outcome.history.messages) > 20
    report.keep(tmp_path / "evidence")
    assert {file.suffix for file in (tmp_path / "evidence").iterdir()} == {".md", ".json", ".png"}
