"""`cronwell cluster` and `cronwell drain`, against a scripted API."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.cli import examples
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

ID = "0f7e62e2-c1fb-4c64-be9a-7de2ebeb7c95"
OTHER = "1a7e62e2-c1fb-4c64-be9a-7de2ebeb7c95"


def node(**fields: Any) -> dict[str, Any]:
    return {
        "id": ID,
        "role": "scheduler",
        "name": "vm:1",
        "state": "active",
        "version": "0.1.0",
        "started_at": examples.moment(),
        "seen_at": examples.moment(),
        "stopped_at": None,
        "drain_requested_at": None,
        **fields,
    }


def shard(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "shard": number,
        "state": "owned",
        "owner": ID,
        "owner_name": "vm:1",
        "epoch": 7,
        "since": examples.moment(),
        "watermark": examples.moment(timedelta(minutes=1)),
        "ahead_s": 60.0 - number,
        "marked_at": examples.moment(),
        **fields,
    }


def found(**fields: Any) -> dict[str, Any]:
    return {
        "version": "0.1.0",
        "now": examples.moment(),
        "coordination": "postgres",
        "incarnation": "7/00000001",
        "versions": {"0.1.0": 2},
        "summary": {
            "oldest_watermark": examples.moment(timedelta(minutes=1)),
            "ahead_s": 58.25,
            "unowned_shards": 1,
            "overdue": 3,
            "oldest_overdue_s": 12.0,
        },
        "nodes": [node(), node(id=OTHER, role="api", name="vm:2", state="lost")],
        "workers": [],
        "pools": [],
        "shards": [shard(0), shard(1), shard(2, state="unowned", owner=OTHER, owner_name=None, ahead_s=None)],
        "findings": [{"kind": "no_slot", "found": 2, "mended": 1, "examples": [examples.JOB_ID]}],
        "scanned_at": examples.moment(),
        **fields,
    }


def _lines_up(shown: str, *titles: str) -> None:
    """Whatever stands below a title begins where the title does, or ends there."""
    lines = shown.splitlines()
    [head] = [line for line in lines if all(title in line for title in titles)]
    below = lines[lines.index(head) + 1]
    for title in titles:
        begin, end = head.index(title), head.index(title) + len(title)
        starts = begin == 0 or (below[begin - 1] == " " and below[begin : begin + 1].strip())
        ends = below[end - 1 : end].strip() and below[end : end + 1].strip() == ""
        assert starts or ends, (title, head, below)


def test_the_cluster_shows_processes_shards_by_owner_and_what_is_amiss(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/cluster", found())
    result = run("cluster")
    shown = result.stdout
    for part in ("coordination", "7/00000001", "58.2s", "unowned shards", "vm:2", "lost", "no slot"):
        assert part in shown
    _lines_up(shown, "ROLE", "NAME", "STATE", "SEEN", "VERSION", "ID")
    _lines_up(shown, "SHARDS OF", "STATE", "COUNT", "AHEAD", "MARKED")
    owned, unowned = sorted(line.split() for line in shown.splitlines() if "owned" in line.split()[1:2]) + [
        line.split() for line in shown.splitlines() if "unowned" in line.split()[1:2]
    ]
    assert owned[:4] == ["vm:1", "owned", "2", "59.0s"], "the least that holds for all"
    assert unowned[:4] == ["-", "unowned", "1", "-"]
    assert "versions" not in shown, "there is but one"
    assert "no worker runs" in result.stderr


def test_every_shard_is_listed_where_asked_for(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/cluster", found())
    shown = run("cluster", "--shards").stdout
    _lines_up(shown, "SHARD", "OWNER", "EPOCH", "AHEAD")
    assert sum("owned" in line for line in shown.splitlines()[8:]) >= 3


def test_versions_side_by_side_are_shown(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/cluster", found(versions={"0.1.0": 2, "0.2.0": 1}))
    assert "0.1.0 (2), 0.2.0 (1)" in run("cluster").stdout


def test_a_cluster_without_a_scheduler_says_how_to_start_one(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/cluster", found(nodes=[node(role="api")]))
    assert "cronwell scheduler" in run("cluster").stderr


def test_the_cluster_as_json_is_what_the_api_said(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/cluster", told := found())
    assert json.loads(run("cluster", "--json").stdout) == told


def test_drain_asks_and_says_so(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/cluster/nodes/vm:1/drain", node(state="draining"), status=202)
    assert run("drain", "vm:1").stdout == "asked scheduler vm:1 to drain\n"
    assert json.loads(run("drain", "vm:1", "--json").stdout)["state"] == "draining"


def test_drain_waits_until_the_process_has_stopped(run: Run, api: ScriptedApi) -> None:
    api.on("POST", f"/v1/cluster/nodes/{ID}/drain", node(state="draining"), status=202)
    api.on("GET", "/v1/cluster", found(nodes=[node(state="draining")]))
    api.on("GET", "/v1/cluster", found(nodes=[node(state="stopped")]))
    assert run("drain", ID, "--wait").stdout == "scheduler vm:1 has stopped\n"
    assert len(api.requests) == 3


def test_drain_gives_up_waiting_and_says_that_it_goes_on(run: Run, api: ScriptedApi) -> None:
    api.on("POST", f"/v1/cluster/nodes/{ID}/drain", node(state="draining"), status=202)
    api.on("GET", "/v1/cluster", found(nodes=[node(state="draining")]))
    result = run("drain", ID, "--wait", "--timeout", "100ms")
    assert (result.exit_code, "it goes on draining" in result.stderr) == (1, True)


@pytest.mark.parametrize(("role", "code"), [("api", 0), ("worker", 5)])
def test_only_an_api_may_take_the_answer_with_it(run: Run, api: ScriptedApi, role: str, code: int) -> None:
    api.on("POST", f"/v1/cluster/nodes/{ID}/drain", node(role=role, state="draining"), status=202)
    api.on("GET", "/v1/cluster", is_lost=True)
    result = run("drain", ID, "--wait")
    assert result.exit_code == code
    if code == 0:
        assert result.stdout == "api vm:1 has gone\n"


def test_a_refusal_is_told_with_its_code(run: Run, api: ScriptedApi) -> None:
    problem = {"title": "Not found", "status": 404, "detail": "there is no process 'x:1'"}
    api.on("POST", "/v1/cluster/nodes/x:1/drain", problem, status=404)
    result = run("drain", "x:1")
    assert (result.exit_code, "there is no process 'x:1'" in result.stderr) == (3, True)


def test_a_wrong_timeout_is_refused_with_what_is_accepted(run: Run, api: ScriptedApi) -> None:
    result = run("drain", ID, "--timeout", "soon")
    assert (result.exit_code, "a duration such as" in result.stderr, api.requests) == (2, True, [])
