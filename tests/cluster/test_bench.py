"""`cronwell bench` measures real processes and says each figure beside the limit of the same run."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import temporary_directory
from tests.support.processes import cluster
from tests.support.waiting import until

SHARE = 0.1


def test_the_benchmark_reports_throughput_and_lateness_beside_the_limit(server: str, tmp_path: Path) -> None:
    report = tmp_path / "bench.json"
    with cluster(CRONWELL_DATABASE_URL=server) as processes:
        process = processes.start(
            "bench", "drain", "lateness", "--quick", "--limit-executions=400", "--set=lateness.rate=20",
            "--workers=1", f"--output={report}",
        )  # fmt: skip
        assert process.popen.wait(timeout=180) == 0, process.output
        assert "right before the row" in process.output
    found = json.loads(report.read_text())
    assert found["facts"]["postgresql"]["server_version"]
    drain, lateness = found["rows"]["drain"], found["rows"]["lateness"]
    assert drain["ratio_to_limit"] == pytest.approx(drain["per_second"] / drain["limit"])
    # Measured for each row by itself.
    assert 0 < drain["limit"] != lateness["limit"] > 0
    assert drain["title"] == "drain: 400 executions due at once"
    assert sum(ended for _, ended in drain["series"]["throughput over time"]) == 400
    for row in (drain, lateness):
        assert row["cost"]["cpu_seconds"]["worker"] > 0
        assert row["cost"]["wal_bytes"] > 0
    assert lateness["title"] == "lateness: 20/s for 3 s"
    late = lateness["detail"]["lateness_ms"]
    assert 0 <= late["p50"] <= late["p99"] <= late["p99.9"] <= late["max"]
    assert {check["what"] for check in lateness["checks"]} == {"p50", "p99", "max"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_benchmark_that_is_ended_says_what_is_kept_and_leaves_nothing_else_behind(
    number: signal.Signals,
) -> None:
    with temporary_directory() as folder, cluster(TMPDIR=str(folder)) as processes:
        process = processes.start("bench", "lateness", f"--output={folder / 'bench.json'}")
        await until(lambda: list(folder.glob("*/postgres/postmaster.pid")), within=60)
        assert process.stop(number) == 128 + number, process.output
        assert "stopped before a row was done; nothing is kept" in process.output
        assert "Traceback" not in process.output
        assert list(folder.iterdir()) == []


async def test_rows_that_were_done_are_kept_when_a_benchmark_is_ended(server: str, tmp_path: Path) -> None:
    report = tmp_path / "bench.json"
    with cluster(CRONWELL_DATABASE_URL=server) as processes:
        process = processes.start(
            "bench", "drain", "soak", "--quick", "--limit-executions=400", "--set=soak.seconds=600", "--workers=1",
            f"--output={report}",
        )  # fmt: skip
        await until(report.exists, within=120)
        assert process.stop(signal.SIGINT) == 128 + signal.SIGINT, process.output
        assert f"stopped; the rows that were done (drain) are in {report}" in process.output
    assert list(json.loads(report.read_text())["rows"]) == ["drain"]


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--output=/nowhere/at/all/bench.json", "there is no folder /nowhere/at/all"),
        ("--plots=/nowhere/at/all/plots", "there is no folder /nowhere/at/all"),
        ("--set=lateness.rate=0", "rate must be 1 or more"),
    ],
)
def test_a_benchmark_refuses_at_once_what_would_fail_at_its_end(option: str, told: str) -> None:
    with cluster() as processes:
        process = processes.start("bench", "lateness", "--quick", option)
        assert process.popen.wait(timeout=30) == 2, process.output
        assert told in process.output
        # Nothing was measured for it.
        assert "limit" not in process.output


def test_a_backlog_is_worked_off_at_a_fair_share_of_the_limit(server: str, tmp_path: Path) -> None:
    """The guard against a change that makes everything much slower: on a quiet machine the share is three times as large."""
    report = tmp_path / "bench.json"
    with cluster(CRONWELL_DATABASE_URL=server) as processes:
        process = processes.start(
            "bench", "drain", "--set=drain.executions=20000", "--limit-executions=20000", "--workers=1",
            f"--output={report}",
        )  # fmt: skip
        assert process.popen.wait(timeout=180) == 0, process.output
    assert json.loads(report.read_text())["rows"]["drain"]["ratio_to_limit"] >= SHARE


@pytest.mark.slow
def test_rows_that_call_the_api_measure_it_over_http(server: str, tmp_path: Path) -> None:
    report = tmp_path / "bench.json"
    with cluster(CRONWELL_DATABASE_URL=server) as processes:
        process = processes.start(
            "bench", "scale", "create", "--quick", "--limit-executions=400", "--workers=1", f"--output={report}",
        )  # fmt: skip
        assert process.popen.wait(timeout=280) == 0, process.output
    rows = json.loads(report.read_text())["rows"]
    rungs = rows["scale"]["detail"]["rungs"]
    assert [rung["jobs"] for rung in rungs] == [1000, 5000]
    for rung in rungs:
        assert rung["staged"]["gross_cpu_us"]["scheduler"] > 0
        assert rung["staged"]["wall_us"] > 0
        assert rung["staged"]["memory_mb"] > 10
        assert rung["bytes_per_job"] > 100
        assert all(0 < each["p50"] <= each["p99"] for each in rung["answers_ms"].values())
    assert [
        jobs for jobs, _ in rows["scale"]["series"]["staging of a slot: processor time (µs) over jobs"]
    ] == [
        1000,
        5000,
    ]
    found = rows["create"]["detail"]
    for figures in (found["one_api"], found["two_apis"]):
        assert figures["bulk_per_second"] > 0
        assert 0 < figures["single_ms"]["p50"] <= figures["single_ms"]["p99"]
        assert figures["bulk_cost_per_1000_jobs"]["cpu_seconds"]["api"] > 0


@pytest.mark.slow
def test_a_herd_and_a_soak_say_what_became_of_every_slot(server: str, tmp_path: Path) -> None:
    report, plots = tmp_path / "bench.json", tmp_path / "plots"
    with cluster(CRONWELL_DATABASE_URL=server) as processes:
        process = processes.start(
            "bench", "herd", "soak", "--quick", "--limit-executions=200", "--set=herd.registered=1000",
            "--set=herd.herd=200", "--set=soak.rate=50", "--set=soak.seconds=4", "--set=soak.snapshot_seconds=2",
            "--workers=1", f"--output={report}", f"--plots={plots}",
        )  # fmt: skip
        assert process.popen.wait(timeout=180) == 0, process.output
    found = json.loads(report.read_text())["rows"]
    herd, soak = found["herd"], found["soak"]
    assert herd["title"] == "herd: 200 of 1,000 jobs on one instant"
    assert _check(herd, "recorded of the herd") == 1
    assert _check(herd, "first start") >= 0
    assert sum(rate / 10 for _, rate in herd["series"]["throughput over time"]) == pytest.approx(200)
    # The instant itself is one of the other tenant's seconds.
    assert herd["series"]["lateness: the other tenant (ms) over time (s)"][0][0] == 0
    assert herd["detail"]["drain_per_second"] > 0
    assert _check(soak, "recorded of those due") == 1
    assert sum(ended for _, ended in soak["series"]["throughput over time"]) >= 200
    ages = [age for _, age in soak["series"]["age of the oldest snapshot (s) over time (s)"]]
    assert 1 < max(ages) < 4
    assert min(ages) < 1
    for table in ("executions", "cursors", "workers"):
        assert all(mib > 0 for _, mib in soak["series"][f"size: {table} (MiB) over time (s)"])
    assert max(dead for _, dead in soak["series"]["dead rows: executions over time (s)"]) > 0
    for row in (herd, soak):
        assert row["cost"]["cpu_seconds"]["worker"] > 0
    assert {"herd-lateness.png", "soak-lateness.png", "soak-size-over-time.png"} <= {
        path.name for path in plots.iterdir()
    }


@pytest.mark.slow
def test_webhooks_and_running_executions_are_measured_with_processes_of_their_own(
    server: str, tmp_path: Path
) -> None:
    report = tmp_path / "bench.json"
    with cluster(CRONWELL_DATABASE_URL=server, CRONWELL_WORKER_HEARTBEAT="500ms") as processes:
        process = processes.start(
            "bench", "webhooks", "running", "--quick", "--limit-executions=200", f"--output={report}",
            "--set=webhooks.deliveries=50", "--set=webhooks.slow_deliveries=50", "--set=running.executions=50",
        )  # fmt: skip
        assert process.popen.wait(timeout=180) == 0, process.output
    rows = json.loads(report.read_text())["rows"]
    webhooks, running = rows["webhooks"], rows["running"]
    measured = {check["what"]: check["measured"] for check in webhooks["checks"]}
    assert measured["arrived and recorded, of those due"] == measured["signatures that hold"] == 1.0
    assert measured["arrived twice"] == 0
    assert measured["deliveries a second"] > 0
    assert measured["of the ideal, 100 at once, 200 ms"] > 0
    assert measured["of the same without the 200 ms"] > 0
    assert len(webhooks["series"]) == 3
    assert {sum(arrived for _, arrived in points) for points in webhooks["series"].values()} == {50}
    assert webhooks["detail"]["receiver alone, a second"] > 0
    measured = {check["what"]: check["measured"] for check in running["checks"]}
    assert measured["cancelled, of those asked to"] == measured["ended as they should, of all"] == 1.0
    assert 0 < measured["oldest heartbeat"] < 60
    # The grace before a stop by force is part of it.
    assert 0.1 <= measured["slowest cancel"] < 60
    assert measured["memory of each"] > 0


def _check(row: dict[str, Any], what: str) -> float:
    return next(float(check["measured"]) for check in row["checks"] if check["what"].startswith(what))
