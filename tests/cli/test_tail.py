"""Following executions."""

from __future__ import annotations

import json
from datetime import timedelta

from cronwell.cli.client import Client
from cronwell.cli.tail import Follower
from tests.cli import examples
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

LIST = "/v1/executions"


def _follower(api: ScriptedApi) -> Follower:
    follower = Follower(Client(api.url), None)
    follower.begin()
    return follower


def _changes(follower: Follower) -> list[tuple[str, str]]:
    changes = [(execution["id"], execution["state"]) for execution in follower.look()]
    follower.client.close()
    return changes


def test_only_what_happens_from_now_on_is_told(api: ScriptedApi) -> None:
    old = examples.execution(id="old")
    api.on("GET", LIST, examples.page())
    api.on("GET", LIST, examples.page(old))
    api.on("GET", LIST, examples.page(examples.execution(id="new", state="running"), old))
    api.on("GET", LIST, examples.page(examples.execution(id="new", state="succeeded"), old))
    follower = _follower(api)
    assert _changes(follower) == [("new", "running")]
    assert _changes(follower) == [("new", "succeeded")]
    assert _changes(follower) == []


def test_a_slot_that_waits_is_no_news_but_each_attempt_is(api: ScriptedApi) -> None:
    api.on("GET", LIST, examples.page())
    api.on("GET", LIST, examples.page())
    for state, fence in (("pending", 0), ("running", 1), ("running", 2), ("retrying", 2)):
        api.on("GET", LIST, examples.page(examples.execution(id="a", state=state, fence=fence)))
    follower = _follower(api)
    assert [state for _ in range(4) for _, state in _changes(follower)] == ["running", "running", "retrying"]


def test_an_execution_that_runs_long_is_followed_to_its_end(api: ScriptedApi) -> None:
    running = examples.execution(id="long", state="running", slot=examples.moment(-timedelta(hours=1)))
    api.on("GET", LIST, examples.page())
    api.on("GET", LIST, examples.page(running))
    api.on("GET", LIST, examples.page())
    api.on("GET", f"{LIST}/long", {**running, "state": "failed"})
    follower = _follower(api)
    assert _changes(follower) == [("long", "failed")]
    before = len(api.requests)
    assert _changes(follower) == []
    assert len(api.requests) == before + 1, "what has ended is asked for no more"


def test_an_execution_that_is_gone_is_forgotten(api: ScriptedApi) -> None:
    api.on("GET", LIST, examples.page())
    api.on("GET", LIST, examples.page(examples.execution(id="gone", state="running")))
    api.on("GET", LIST, examples.page())
    follower = _follower(api)
    assert _changes(follower) == []
    before = len(api.requests)
    _changes(follower)
    assert len(api.requests) == before + 1


def test_more_than_can_be_followed_is_said(run: Run, api: ScriptedApi) -> None:
    crowd = [examples.execution(id=f"{number:04}") for number in range(2000)]
    api.on("GET", LIST, examples.page())
    api.on("GET", LIST, examples.page(examples.execution(id="old")))
    api.on("GET", LIST, examples.page(*crowd, next_cursor="more"))
    result = run("execution", "tail", "--count", "1")
    assert "some are left out: narrow it with --job" in result.stderr


def test_a_long_list_that_reaches_back_to_what_is_known_is_complete(api: ScriptedApi) -> None:
    old = examples.execution(id="old")
    api.on("GET", LIST, examples.page(old))
    api.on("GET", LIST, examples.page(old))
    crowd = [examples.execution(id=f"{number:04}") for number in range(1999)]
    api.on("GET", LIST, examples.page(*crowd, old, next_cursor="more"))
    follower = _follower(api)
    assert (len(_changes(follower)), follower.is_overrun) == (1999, False)


def test_tail_stops_after_so_many_lines(run: Run, api: ScriptedApi) -> None:
    late = examples.execution(id="b", state="failed", attempt=2, error="boom", slot=examples.moment())
    old = examples.execution(id="old")
    api.on("GET", LIST, examples.page())
    api.on("GET", LIST, examples.page(old))
    api.on(
        "GET",
        LIST,
        examples.page(late, old, examples.execution(id="a"), examples.execution(id="c", state="running")),
    )
    result = run("execution", "tail", "--count", "3", "--interval", "0.05", "--job", "hello")
    assert api.last.query["job"] == ["name:hello"]
    lines = result.stdout.splitlines()
    assert [line.split()[2] for line in lines] == ["succeeded", "running", "failed"]
    assert lines[2].endswith("b  attempt 2  late 0.2ms  took 12ms  boom")


def test_tail_writes_ndjson(run: Run, api: ScriptedApi) -> None:
    api.on("GET", LIST, examples.page())
    api.on("GET", LIST, examples.page())
    api.on("GET", LIST, examples.page(examples.execution()))
    result = run("execution", "tail", "--count", "1", "--json")
    assert (result.stderr, json.loads(result.stdout)["id"]) == ("", examples.EXECUTION_ID)
