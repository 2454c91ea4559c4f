"""What other programs watch: liveness, readiness, metrics, the cluster; and what is answered when things break."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cronwell import errors
from cronwell.api.ops import create_ops_app
from cronwell.config import DatabaseSettings, Settings
from cronwell.model.execution import State
from cronwell.runtime.clock import ManualClock, SystemClock
from cronwell.runtime.postgres import Database
from cronwell.store.postgres.store import PostgresStore
from tests.api.rig import HOURLY, Caller, Rig, listening, serving
from tests.support import postgres


async def metrics(api: Caller) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    reply = await api.get("/metrics")
    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    }


async def test_a_living_process_says_so(api: Caller) -> None:
    reply = await api.get("/healthz")
    assert (reply.status, reply.json) == (200, {"status": "alive"})


async def test_readiness_tells_every_reason_against_it(rig: Rig) -> None:
    ready = await rig.caller.get("/readyz")
    assert (ready.status, ready.json) == (200, {"ready": True, "reasons": []})
    rig.reasons.append("migration 0002 is missing")
    reply = await rig.caller.get("/readyz")
    assert (reply.status, reply.json["reasons"]) == (503, ["migration 0002 is missing"])


async def test_a_readiness_check_that_hits_a_lost_database_is_not_ready(api_database: Database) -> None:
    async def is_ready() -> list[str]:
        raise errors.StoreUnavailable("it is gone")

    app = create_ops_app(is_ready, PostgresStore(api_database), SystemClock())
    async with listening(app) as api:
        reply = await api.get("/readyz")
        assert (reply.status, reply.json) == (503, {"ready": False, "reasons": ["it is gone"]})
        assert (await api.get("/healthz")).status == 200
        assert b"cronwell_queue_depth" in (await api.get("/metrics")).body
        assert (await api.get("/v1/jobs")).status == 404


async def test_an_unforeseen_failure_is_told_by_its_id_and_without_its_innards(
    api_database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    async def is_ready() -> list[str]:
        raise RuntimeError("password=hunter2")

    app = create_ops_app(is_ready, PostgresStore(api_database), SystemClock())
    async with listening(app) as api:
        reply = await api.call("GET", "/readyz", headers={"X-Request-Id": "find-me"})
        again = await api.get("/healthz")
    assert (reply.status, reply.headers["Content-Type"]) == (500, "application/problem+json")
    assert reply.json["request_id"] == "find-me"
    assert b"hunter2" not in reply.body
    logged = capsys.readouterr()
    assert "find-me" in logged.out + logged.err
    assert again.status == 200


async def test_the_cluster_shows_workers_and_what_waits_in_each_pool(rig: Rig) -> None:
    worker = await rig.register(pools=["default", "idle"], handlers=["f"])
    await rig.caller.create(schedule=None, pool="unserved")
    made = (await rig.caller.post("/v1/jobs/name:hourly/trigger")).json
    reply = (await rig.caller.get("/v1/cluster")).json
    assert [UUID(each["id"]) for each in reply["workers"]] == [worker]
    assert reply["workers"][0]["handlers"] == ["f"]
    assert reply["pools"] == [
        {"name": "default", "workers": 1, "depth": 0, "oldest_due_at": None},
        {"name": "idle", "workers": 1, "depth": 0, "oldest_due_at": None},
        {"name": "unserved", "workers": 0, "depth": 1, "oldest_due_at": made["ready_at"]},
    ]
    assert reply["version"]


async def test_metrics_tell_what_waits_and_forget_it_once_it_is_done(
    api_database: Database, api_url: str
) -> None:
    clock = ManualClock()
    async with serving(api_database, api_url, clock, Settings()) as rig:
        await rig.caller.create(schedule=None, pool="waiting")
        await rig.caller.post("/v1/jobs/name:hourly/trigger")
        worker = await rig.register(pools=["waiting"])
        clock.advance(timedelta(seconds=7))
        depth, oldest = (f"cronwell_queue_{name}" for name in ("depth", "oldest_seconds"))
        found = await metrics(rig.caller)
        assert found[depth, (("pool", "waiting"),)] == 1
        assert found[oldest, (("pool", "waiting"),)] == 7
        assert found["cronwell_heartbeat_age_seconds", ()] == 7
        now = clock.now()
        claims = await rig.store.claim(worker, "waiting", 1, ready_by=now, limit=5, now=now)
        await rig.end(claims, State.SUCCEEDED)
        assert (await metrics(rig.caller))[depth, (("pool", "waiting"),)] == 1, "asked at most every 5 s"
        clock.advance(timedelta(seconds=5))
        found = await metrics(rig.caller)
        assert (found[depth, (("pool", "waiting"),)], found[oldest, (("pool", "waiting"),)]) == (0, 0)


async def test_requests_are_counted_by_the_route_and_not_by_the_path(api: Caller) -> None:
    def of(method: str, route: str, status: str) -> tuple[str, tuple[tuple[str, str], ...]]:
        labels = (("method", method), ("route", route), ("status", status))
        return "cronwell_http_request_seconds_count", labels

    before = await metrics(api)
    for n in range(3):
        await api.get(f"/v1/jobs/name:nobody-{n}/status")
        await api.call("GET", f"/nowhere-{n}")
        await api.call("PURGE", "/nowhere")
    await api.call("DELETE", "/v1/jobs")
    after = await metrics(api)
    for key, count in (
        (of("GET", "/v1/jobs/{id}/status", "404"), 3),
        (of("GET", "none", "404"), 3),
        (of("other", "none", "404"), 3),
    ):
        assert after[key] - before.get(key, 0) == count
    assert not [key for key in after if "nobody" in str(key) or "PURGE" in str(key)]


async def test_when_the_database_goes_away_requests_are_told_to_come_back_and_metrics_go_on() -> None:
    with postgres.temporary_server() as server:
        database = await Database.connect(DatabaseSettings(), server.url, application_name="test")
        try:
            async with serving(database, server.url, ManualClock(), Settings()) as rig:
                url = server.url
                server.stop("immediate")
                reply = await rig.caller.post("/v1/jobs", HOURLY)
                assert (reply.status, reply.json["type"]) == (503, "urn:cronwell:unavailable")
                assert int(reply.headers["Retry-After"]) > 0
                assert url not in reply.body.decode()
                listed = await rig.caller.get("/v1/jobs")
                assert listed.status == 503
                assert (await rig.caller.get("/metrics")).status == 200
                assert (await rig.caller.get("/healthz")).status == 200
                batch = await rig.caller.call(
                    "POST", "/v1/jobs:batch", data=b'{"name":"a","target":"https://a.example"}\n',
                    headers={"Content-Type": "application/x-ndjson"},
                )  # fmt: skip
                assert (batch.status, batch.json["index"], batch.json["problem"]["status"]) == (200, 0, 503)
        finally:
            await database.close()


def test_metrics_of_several_processes_are_told_by_any_of_them(tmp_path: Path) -> None:
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    count = "from cronwell import telemetry\ntelemetry.rescued(%d)"
    for amount in (2, 3):
        subprocess.run([sys.executable, "-c", count % amount], env=environ, check=True, capture_output=True)
    scrape = """
import asyncio
from cronwell.api.metrics import Scrapes
from cronwell.runtime.clock import SystemClock

class Broken:
    async def backlog(self, now):
        raise OSError("no store")

print(asyncio.run(Scrapes(Broken(), SystemClock()).text()).decode())
"""
    told = subprocess.run(
        [sys.executable, "-c", scrape], env=environ, check=True, capture_output=True, text=True
    )
    assert "cronwell_rescued_total 5.0" in told.stdout
