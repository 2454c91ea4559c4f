"""The client when connections break."""

from __future__ import annotations

import socket

import pytest

from cronwell.cli.client import Client
from cronwell.cli.failures import Refused, Unreachable
from cronwell.cli.paths import job_path
from tests.cli import examples
from tests.cli.scripted import ScriptedApi


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (examples.JOB_ID, f"/v1/jobs/{examples.JOB_ID}"),
        ("daily", "/v1/jobs/name:daily"),
        ("name:daily", "/v1/jobs/name:daily"),
        (f"name:{examples.JOB_ID}", f"/v1/jobs/name:{examples.JOB_ID}"),
        ("team/daily", "/v1/jobs/name:team%2Fdaily"),
        ("50% ä?#", "/v1/jobs/name:50%25%20%C3%A4%3F%23"),
        ("caf\udce9", "/v1/jobs/name:caf%E9"),
    ],
)
def test_a_job_is_named_by_id_or_by_name(given: str, path: str) -> None:
    assert job_path(given) == path


def test_one_connection_serves_several_requests(api: ScriptedApi) -> None:
    api.on("GET", "/x", {})
    client = Client(api.url)
    for _ in range(3):
        client.get("/x")
    client.close()
    assert api.connections == 1


def test_a_read_is_repeated_when_the_connection_is_lost(api: ScriptedApi) -> None:
    api.on("GET", "/x", is_lost=True)
    api.on("GET", "/x", {"ok": True})
    client = Client(api.url)
    assert client.get("/x") == {"ok": True}
    client.close()
    assert len(api.requests) == 2


def test_a_change_with_a_key_is_repeated_with_the_same_key(api: ScriptedApi) -> None:
    api.on("POST", "/x", is_lost=True)
    api.on("POST", "/x", {"ok": True}, status=201)
    client = Client(api.url)
    assert client.post("/x", {"a": 1}, key="k") == {"ok": True}
    client.close()
    assert [request.headers["Idempotency-Key"] for request in api.requests] == ["k", "k"]


def test_a_change_without_a_key_is_never_repeated(api: ScriptedApi) -> None:
    api.on("POST", "/x", is_lost=True)
    client = Client(api.url)
    with pytest.raises(Unreachable, match="whether the change was made is not known") as lost:
        client.post("/x", {"a": 1})
    assert (len(api.requests), lost.value.is_sent) == (1, True)


def test_what_was_never_sent_is_known_not_to_be_made() -> None:
    client = Client("http://127.0.0.1:1")
    with pytest.raises(Unreachable) as lost:
        client.post("/x", {"a": 1})
    assert not lost.value.is_sent


def test_an_answer_that_breaks_off_is_no_answer(api: ScriptedApi) -> None:
    api.on("DELETE", "/x", {"deleted": True}, is_cut=True)
    with pytest.raises(Unreachable, match="before the answer was complete"):
        Client(api.url).delete("/x")


def test_a_slow_server_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05)
        with pytest.raises(Unreachable, match="no answer within"):
            client.get("/x")


def test_an_address_may_have_a_path_and_need_no_scheme(api: ScriptedApi) -> None:
    api.on("GET", "/below/v1/cluster", {"ok": True})
    client = Client(f"{api.url.removeprefix('http://')}/below/")
    assert client.get("/v1/cluster") == {"ok": True}
    client.close()


def test_a_redirect_is_not_followed(api: ScriptedApi) -> None:
    api.on("GET", "/x", {}, status=302, headers=(("Location", "/y"),))
    client = Client(api.url)
    with pytest.raises(Refused, match="302 Found"):
        client.get("/x")
    client.close()


def test_a_list_is_read_page_by_page_up_to_the_limit(api: ScriptedApi) -> None:
    api.on("GET", "/x", examples.page({"n": 1}, {"n": 2}, next_cursor="c1"))
    api.on("GET", "/x", examples.page({"n": 3}, next_cursor="c2"))
    client = Client(api.url)
    pages = list(client.find("/x", {"state": ["a", "b"], "pool": None}, limit=3))
    client.close()
    assert [item["n"] for page in pages for item in page.items] == [1, 2, 3]
    assert pages[-1].next_cursor == "c2"
    assert [request.query for request in api.requests] == [
        {"state": ["a", "b"], "limit": ["3"]},
        {"state": ["a", "b"], "limit": ["1"], "cursor": ["c1"]},
    ]


def test_the_servers_time_is_taken_from_its_answers(api: ScriptedApi) -> None:
    api.on("GET", "/x", {})
    client = Client(api.url)
    assert not client.has_answered
    client.get("/x")
    client.close()
    assert client.has_answered
