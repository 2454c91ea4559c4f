"""Problem documents in words, and the exit codes that scripts rely on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell.cli.failures import Refused, explain
from tests.cli import examples
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi
from tests.support.ports import free_port


def test_a_wrong_column_gets_a_caret_under_it() -> None:
    wrong = {"field": "schedule", "message": "'61' is not an hour", "accepted": "0-23", "column": 3}
    said = explain(
        examples.problem(422, "Some fields are not valid", errors=[wrong]), {"schedule": "0 61 * * *"}
    )
    assert said.splitlines() == [
        "Some fields are not valid",
        "  schedule: '61' is not an hour (accepted: 0-23)",
        "      0 61 * * *",
        "        ^",
    ]


def test_what_a_message_says_already_is_not_said_again() -> None:
    wrong = {"field": "schedul", "message": "unknown field; did you mean 'schedule'?", "accepted": "schedule"}
    said = explain(examples.problem(422, "Some fields are not valid", errors=[wrong]))
    assert said.splitlines()[1:] == ["  schedul: unknown field; did you mean 'schedule'?"]


def test_the_caret_finds_a_text_inside_an_object() -> None:
    wrong = {"field": "schedule.cron", "message": "too few fields", "column": 8}
    said = explain({"title": "No", "errors": [wrong]}, {"schedule": {"cron": "0 3 * *"}})
    assert said.endswith("      0 3 * *\n             ^")


@given(
    column=st.integers() | st.none(), sent=st.none() | st.dictionaries(st.text(), st.integers() | st.text())
)
def test_a_caret_that_has_no_place_is_left_out(column: int | None, sent: object) -> None:
    said = explain({"title": "No", "errors": [{"field": "x.y", "message": "bad", "column": column}]}, sent)
    assert said == "No\n  x.y: bad"


@pytest.mark.parametrize("column", [0, -1, 5, None, "2", 1.5])
def test_a_caret_does_not_stand_beside_its_text(column: object) -> None:
    said = explain(
        {"title": "No", "errors": [{"field": "x", "message": "bad", "column": column}]}, {"x": "abc"}
    )
    assert said == "No\n  x: bad"


def test_the_detail_is_not_repeated_beside_the_fields() -> None:
    wrong = [{"field": "x", "message": "bad"}]
    assert explain(examples.problem(422, "No", "x: bad", errors=wrong)) == "No\n  x: bad"


def test_without_fields_the_detail_says_it() -> None:
    assert explain(examples.problem(409, "That name is taken", "another job is named 'x'")) == (
        "That name is taken: another job is named 'x'"
    )


@pytest.mark.parametrize(
    ("status", "code"), [(400, 1), (404, 3), (409, 4), (412, 4), (413, 1), (422, 1), (503, 1)]
)
def test_each_refusal_has_its_exit_code(run: Run, api: ScriptedApi, status: int, code: int) -> None:
    api.on("GET", "/v1/jobs/name:x", examples.problem(status, "No", "because"), status=status)
    result = run("job", "show", "x")
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", "Error: No: because\n")


def test_with_json_a_failure_is_json_on_stderr(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/jobs/name:x", examples.problem(404, "Not found", "no such job"), status=404)
    result = run("job", "show", "x", "--json")
    told = json.loads(result.stderr)
    assert (result.exit_code, told["title"], told["exit_code"]) == (3, "Not found", 3)


def test_an_unreachable_server_is_named_with_the_way_to_start_one(run: Run) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    result = run("job", "list", "--url", address)
    assert result.exit_code == 5
    assert f"no Cronwell answers at {address}: connection refused" in result.stderr
    assert "cronwell up" in result.stderr


def test_an_unknown_host_is_unreachable(run: Run) -> None:
    result = run("--url", "http://no-such-host.invalid", "cluster")
    assert (result.exit_code, "host is not known" in result.stderr) == (5, True)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:99999"])
def test_an_address_that_is_none_is_a_usage_error(run: Run, url: str) -> None:
    assert run("job", "list", "--url", url).exit_code == 2


def test_an_answer_without_a_problem_document_is_shown_as_it_is(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/cluster", b"<h1>Bad gateway</h1>", status=502, content_type="text/html")
    result = run("cluster")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: The server answered 502 Bad Gateway: <h1>Bad gateway</h1>\n",
    )


def test_a_server_that_is_not_ours_is_recognised(run: Run, api: ScriptedApi) -> None:
    api.on("GET", "/v1/cluster", b"hello", content_type="text/plain")
    result = run("cluster")
    assert (result.exit_code, "is not Cronwell's API" in result.stderr) == (1, True)


def test_a_refusal_keeps_the_whole_document() -> None:
    refused = Refused(409, examples.problem(409, "Taken", request_id="abc"))
    assert refused.document()["request_id"] == "abc"
