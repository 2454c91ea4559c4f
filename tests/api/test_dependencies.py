"""Jobs that follow others over HTTP: made, refused, drawn as a graph, deleted, and run again from a node."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from cronwell.bus.postgres import PostgresBus
from cronwell.model.execution import State
from cronwell.scheduler.chores.chaining import Chaining
from tests.api.conftest import Served
from tests.api.rig import Caller, Rig


async def _chain(api: Caller) -> dict[str, Any]:
    """Two jobs that one follows, and one after that; by their names."""
    made = [
        await api.create(name="extract", schedule=None),
        await api.create(name="audit", schedule=None),
        await api.create(name="load", schedule=None, after=["extract", {"job": "audit", "on": "finished"}]),
        await api.create(
            name="report", schedule=None, after={"any": ["load"], "delay": "5m", "timeout": "2h"}
        ),
    ]
    return {each["name"]: each for each in made}


async def test_a_job_answers_with_what_it_follows_and_no_schedule(rig: Rig) -> None:
    jobs = await _chain(rig.caller)
    assert jobs["load"]["after"] == [
        {"job": "extract", "on": "succeeded"},
        {"job": "audit", "on": "finished"},
    ]
    shown = (await rig.caller.get("/v1/jobs/name:report")).json
    assert shown["after"]["any"] == [{"job": "load", "on": "succeeded"}]
    assert (shown["after"]["delay"], shown["after"]["timeout"]) == ("5m", "2h")
    assert (shown["schedule"], shown["next_fire_at"], shown["state"]) == (None, None, "active")
    upcoming = (await rig.caller.get("/v1/jobs/name:load/upcoming")).json
    assert upcoming["note"].startswith("it follows extract, audit (finished)")


async def test_a_graph_shows_the_jobs_around_one(rig: Rig) -> None:
    jobs = await _chain(rig.caller)
    await rig.caller.create(name="elsewhere")
    names = {each["id"]: each["name"] for each in jobs.values()}
    for asked in jobs:
        graph = (await rig.caller.get(f"/v1/jobs/name:{asked}/graph")).json
        assert graph["job_id"] == jobs[asked]["id"]
        assert {node["name"]: node["mode"] for node in graph["nodes"]} == {
            "extract": None,
            "audit": None,
            "load": "all",
            "report": "any",
        }
        edges = {(names[e["upstream"]], names[e["dependent"]], e["on"]) for e in graph["edges"]}
        assert edges == {
            ("extract", "load", "succeeded"),
            ("audit", "load", "finished"),
            ("load", "report", "succeeded"),
        }
    reply = await rig.caller.get("/v1/jobs/name:load/graph?slot=yesterday")
    assert (reply.status, reply.fields) == (422, ["slot"])
    assert (await rig.caller.get("/v1/jobs/name:nobody/graph")).status == 404


@pytest.mark.parametrize(
    ("after", "fields", "words"),
    [
        ([{"job": "extrct"}], ["after.0.job"], "did you mean 'extract'?"),
        ({"any": ["load"], "all": ["load"]}, ["after"], "either `all` or `any`"),
        (["extract", "extract"], ["after"], "list each job once"),
        ("extract", ["after"], "write a list such as"),
        ([{"job": "extract\0"}], ["after.0.job"], "null character"),
    ],
)
async def test_what_cannot_be_followed_is_refused(
    rig: Rig, after: object, fields: list[str], words: str
) -> None:
    await _chain(rig.caller)
    body = {"name": "new", "target": "https://example.com/run", "after": after}
    reply = await rig.caller.post("/v1/jobs", body)
    assert (reply.status, reply.fields) == (422, fields), reply.body
    assert words in reply.body.decode()
    for method in ("PUT", "PATCH"):
        changed = await rig.caller.call(method, "/v1/jobs/name:audit", {**body, "name": "audit"})
        assert (changed.status, changed.fields) == (422, fields)


async def test_a_cycle_is_refused_with_its_path(rig: Rig) -> None:
    await _chain(rig.caller)
    reply = await rig.caller.call("PATCH", "/v1/jobs/name:extract", {"after": ["report"]})
    assert reply.status == 422
    assert "extract → load → report → extract" in reply.json["errors"][0]["message"]


async def test_what_others_follow_is_deleted_only_by_force(rig: Rig) -> None:
    await _chain(rig.caller)
    refused = await rig.caller.call("DELETE", "/v1/jobs/name:load")
    assert (refused.status, "other jobs follow 'load': report" in refused.json["detail"]) == (409, True)
    assert (await rig.caller.call("DELETE", "/v1/jobs/name:load?force=maybe")).status == 422
    assert (await rig.caller.call("DELETE", "/v1/jobs/name:load?force=true")).status == 200
    graph = (await rig.caller.get("/v1/jobs/name:report/graph")).json
    assert {node["name"]: node["state"] for node in graph["nodes"]} == {"report": "active", "load": "deleted"}


async def test_a_slot_is_run_again_from_a_node(rig: Rig, served: Served) -> None:
    api = rig.caller
    await api.create(name="extract", schedule=None)
    await api.create(name="load", schedule=None, after=["extract"])
    triggered = (await api.post("/v1/jobs/name:extract/trigger")).json
    open_ = await api.post(f"/v1/executions/{triggered['id']}/rerun")
    assert (open_.status, "wait for its end" in open_.json["detail"]) == (409, True)
    bus = PostgresBus(served.database, served.url, can_listen=False, on_error=_fail)
    chaining = Chaining(rig.store, bus, rig.clock, rig.settings.scheduler)
    worker = await rig.register()
    for _ in range(2):
        await rig.end(await rig.claim(worker), State.SUCCEEDED)
        await chaining.run_once()
    [load] = (await api.get("/v1/executions?job=name:load")).json["items"]
    assert (load["state"], load["kind"], load["slot"]) == ("succeeded", "dependency", triggered["slot"])
    explained = (await api.get(f"/v1/jobs/name:load/explain?at={triggered['slot']}")).json
    assert (explained["verdict"], explained["upstreams"][0]["state"]) == ("executed", "succeeded")
    bad = await api.post(f"/v1/executions/{triggered['id']}/rerun", {"downstream": "yes"})
    assert (bad.status, bad.fields) == (422, ["downstream"])
    reply = await api.post(f"/v1/executions/{triggered['id']}/rerun", {"downstream": True})
    assert (reply.status, reply.json["state"], reply.json["reason"]) == (202, "pending", "rerun")
    graph = (await api.get(f"/v1/jobs/name:load/graph?slot={triggered['slot']}")).json
    states = {node["name"]: (node["last"]["state"], node["last"]["reason"]) for node in graph["nodes"]}
    assert states == {"extract": ("pending", "rerun"), "load": ("skipped", "upstream_rerun")}
    missing = triggered["id"].replace(triggered["id"][:8], "00000000")
    assert (await api.post(f"/v1/executions/{missing}/rerun")).status == 404
    [entry] = (await api.get("/v1/audit?action=rerun")).json["items"]
    assert (entry["object"], entry["after"]) == (f"execution:{triggered['id']}", {"downstream": 1})
    assert datetime.fromisoformat(entry["at"]) <= rig.clock.now()


def _fail(name: str, error: Exception, _: float) -> None:
    raise AssertionError(f"{name} failed") from error
