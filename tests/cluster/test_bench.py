"""`cronwell bench` measures real processes and says each figure beside the limit of the same run."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.processes import cluster


def test_the_benchmark_reports_throughput_and_lateness_beside_the_limit(server: str, tmp_path: Path) -> None:
    report = tmp_path / "reports" / "bench.json"
    with cluster(CRONWELL_DATABASE_URL=server) as processes:
        process = processes.start(
            "bench",
            "--executions=400",
            "--rate=40",
            "--lateness-rate=20",
            "--seconds=2",
            "--workers=1",
            f"--output={report}",
        )
        assert process.popen.wait(timeout=180) == 0, process.output
        assert "limit (SQL alone)" in process.output
    found = json.loads(report.read_text())
    assert found["facts"]["postgresql"]["server_version"]
    assert found["limit"]["per_second"] > 0
    closed = found["closed"]
    assert closed["executions"] == 400
    assert abs(closed["ratio_to_limit"] - closed["per_second"] / found["limit"]["per_second"]) < 1e-9
    for part, due in (("open", 80), ("lateness", 40)):
        assert found[part]["due"] == found[part]["succeeded"] == due
        late = found[part]["lateness_ms"]
        assert 0 <= late["p50"] <= late["p99"] <= late["p99.9"] <= late["max"]
