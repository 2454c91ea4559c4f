"""Commands about jobs that follow others."""

from __future__ import annotations

import json
from typing import Any

from tests.cli import examples
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

IDS = {name: f"00000000-0000-7000-8000-00000000000{place}" for place, name in enumerate("abcd")}


def _node(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": IDS[name], "name": name, "state": "active", "mode": None, "waiting": []} | fields


def _edge(upstream: str, dependent: str, on: str = "succeeded") -> dict[str, str]:
    return {"upstream": IDS[upstream], "dependent": IDS[dependent], "on": on}


GRAPH = {
    "job_id": IDS["d"],
    "nodes": [
        _node("d", mode="all", waiting=[{"slot": examples.moment(), "since": examples.moment()}]),
        _node(
            "a", schedule="0 3 * * *", last={"state": "succeeded", "slot": examples.moment(), "reason": None}
        ),
        _node(
            "b", mode="all", last={"state": "skipped", "slot": examples.moment(), "reason": "upstream_failed"}
        ),
        _node("c", mode="all", state="paused"),
    ],
    "edges": [_edge("a", "b"), _edge("a", "c", "failed"), _edge("b", "d"), _edge("c", "d", "finished")],
    "is_cut": True,
}


def test_a_graph_is_drawn_as_a_tree_in_which_each_job_stands_once(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/jobs/name:d/graph", GRAPH)
    result = run("job", "graph", "d")
    first, b, d, c = result.stdout.splitlines()
    assert first.startswith("a  [0 3 * * *]  succeeded ")
    assert b.startswith("├─ b  skipped: upstream_failed ")
    assert d.startswith("│  └─ d  (and after c on finished)  waits since ")
    assert d.endswith("  ←")
    assert c == "└─ c  on failed  paused"
    assert "more jobs than the 4 that are shown" in result.stderr
    assert json.loads(run("job", "graph", "d", "--json").stdout) == GRAPH


def test_a_graph_at_a_slot_is_asked_for(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/jobs/name:d/graph", GRAPH)
    run("job", "graph", "d", "--slot", "2026-05-05T03:00:00Z")
    assert api.last.query == {"slot": ["2026-05-05T03:00:00Z"]}
    assert run("job", "graph", "d", "--slot", "never").exit_code == 2


def test_an_execution_is_run_again_with_what_follows_it(run: Run, api: ScriptedApi) -> None:
    path = f"/v1/executions/{examples.EXECUTION_ID}/rerun"
    api.on("POST", path, examples.execution(state="pending"), status=202)
    result = run("execution", "rerun", examples.EXECUTION_ID, "--downstream")
    assert result.stdout == f"running {examples.EXECUTION_ID} and what follows it again\n"
    assert api.last.json == {"downstream": True}


def test_options_say_what_a_job_follows(run: Run, api: ScriptedApi) -> None:
    api.on("POST", "/v1/jobs", examples.job(schedule=None), status=201)
    run("job", "create", "load", "--after", "extract", "--after", "audit:finished", "--handler", "load")
    assert api.last.json["after"] == [{"job": "extract"}, {"job": "audit", "on": "finished"}]
    api.on("DELETE", "/v1/jobs/name:load", {"deleted": True})
    run("job", "delete", "load", "--force", "--yes")
    assert api.last.query == {"force": ["true"]}
    after = [{"job": "extract", "on": "succeeded"}, {"job": "audit", "on": "finished"}]
    api.on("GET", "/v1/jobs/name:load", examples.job(schedule=None, timezone=None, after={"any": after}))
    assert "after any of extract, audit (finished)" in run("job", "show", "load").stdout
