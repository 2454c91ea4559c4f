"""What every route shares: methods, media types, sizes, ids of requests, parameters and preconditions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from tests.api.rig import HOURLY, Rig


@pytest.mark.parametrize(
    "path", ["/nothing", "/v1", "/v1/jobs/", "/v1/jobs/a/b/c", "/v1/jobs/x/explained", "/docs/nothing"]
)
async def test_what_is_not_there_is_a_problem(rig: Rig, path: str) -> None:
    reply = await rig.caller.get(path)
    assert (reply.status, reply.headers["Content-Type"]) == (404, "application/problem+json")
    assert (reply.json["instance"], reply.json["status"]) == (path, 404)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/jobs", "GET, HEAD, POST"),
        ("POST", "/v1/jobs/name:a", "DELETE, GET, HEAD, PATCH, PUT"),
        ("GET", "/v1/jobs/name:a/pause", "POST"),
        ("GET", "/v1/jobs:batch", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("TRACE", "/v1/cluster", "GET, HEAD"),
        ("PURGE", "/v1/cluster", "GET, HEAD"),
        ("POST", "/docs", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_answered_with_all_that_are_right(
    rig: Rig, method: str, path: str, allowed: str
) -> None:
    reply = await rig.caller.call(method, path)
    assert (reply.status, reply.headers["Allow"]) == (405, allowed)
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert allowed in reply.json["detail"]


async def test_what_can_be_got_can_be_asked_for_its_headers(rig: Rig) -> None:
    reply = await rig.caller.call("HEAD", "/healthz")
    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["Content-Length"]) > 0
    assert (await rig.caller.call("HEAD", "/v1/jobs/name:nobody")).status == 404
    assert (await rig.caller.call("HEAD", "/v1/jobs:batch")).status == 405


@pytest.mark.parametrize(
    "given", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx", "é"]
)
async def test_a_body_that_is_not_said_to_be_json_is_refused(rig: Rig, given: str) -> None:
    for path in ("/v1/jobs", "/v1/schedules/preview", "/v1/dead-letters/redrive"):
        reply = await rig.caller.call("POST", path, data=b"{}", headers={"Content-Type": given})
        assert (reply.status, reply.json["type"]) == (415, "urn:cronwell:unsupported-media-type")
        assert "application/json" in reply.json["detail"]


@pytest.mark.parametrize(
    "given", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"]
)
async def test_json_under_its_other_names_is_read(rig: Rig, given: str) -> None:
    reply = await rig.caller.call(
        "POST", "/v1/schedules/preview", data=b'{"schedule":"@daily"}', headers={"Content-Type": given}
    )
    assert reply.status == 200


async def test_a_page_of_another_site_can_change_nothing(rig: Rig) -> None:
    await rig.caller.create()
    for method, path in (("POST", "/v1/jobs/name:hourly/trigger"), ("DELETE", "/v1/jobs/name:hourly")):
        reply = await rig.caller.call(method, path, headers={"Sec-Fetch-Site": "cross-site"})
        assert (reply.status, reply.json["type"]) == (403, "urn:cronwell:cross-site")
    assert (await rig.caller.get("/v1/jobs/name:hourly")).json["latest_executions"] == []
    same = await rig.caller.call("DELETE", "/v1/jobs/name:hourly", headers={"Sec-Fetch-Site": "same-origin"})
    assert same.status == 200


async def test_a_request_keeps_the_id_that_it_came_with(rig: Rig) -> None:
    reply = await rig.caller.call("GET", "/v1/jobs", headers={"X-Request-Id": "trace-me.42"})
    assert reply.headers.getall("X-Request-Id") == ["trace-me.42"]


@pytest.mark.parametrize("given", ["", "has space", "x" * 129, "a\tb", "ü", '{"log": "forged"}'])
async def test_an_id_that_is_not_fit_for_a_log_is_replaced(rig: Rig, given: str) -> None:
    reply = await rig.caller.call("GET", "/v1/jobs", headers={"X-Request-Id": given})
    assert re.fullmatch("[0-9a-f]{32}", reply.headers["X-Request-Id"])


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/jobs?stat=active", "state"),
        ("/v1/jobs?limit=5&Cursor=x", "cursor"),
        ("/v1/jobs/name:a?verbose=1", "no query parameters"),
        ("/v1/executions?jobs=x", "job"),
        ("/v1/dead-letters?state=failed", "one of"),
        ("/healthz?x=1", "no query parameters"),
        ("/v1/jobs?%ff=1", "one of"),
    ],
)
async def test_an_unknown_parameter_is_refused_with_the_nearest(rig: Rig, path: str, hint: str) -> None:
    reply = await rig.caller.get(path)
    assert reply.status == 422
    [wrong] = reply.json["errors"]
    assert hint in wrong["accepted"]
    is_near = wrong["message"] == f"unknown query parameter; did you mean {wrong['accepted']!r}?"
    assert is_near or wrong["message"] == "unknown query parameter"
    assert is_near == (hint in ("state", "cursor", "job"))


async def test_an_unknown_state_is_refused_with_the_nearest(rig: Rig) -> None:
    reply = await rig.caller.get("/v1/executions?state=succeded")
    assert reply.json["detail"] == "state: 'succeded' is not a state; did you mean 'succeeded'?"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/jobs?limit=0", "limit"),
        ("/v1/jobs?limit=-1", "limit"),
        ("/v1/jobs?limit=1001", "limit"),
        ("/v1/jobs?limit=99999999999999999999", "limit"),
        ("/v1/jobs?limit=ten", "limit"),
        ("/v1/jobs?limit=", "limit"),
        ("/v1/jobs?limit=1.5", "limit"),
        ("/v1/jobs?cursor=x", "cursor"),
        ("/v1/jobs?cursor=", "cursor"),
        ("/v1/jobs?cursor=%C3%BC", "cursor"),
        ("/v1/jobs?cursor=WyJhIiwieCJd", "cursor"),
        ("/v1/jobs?cursor=" + "A" * 3000, "cursor"),
        ("/v1/executions?cursor=WyJhIiwieCJd", "cursor"),
        ("/v1/executions?cursor=WyJhIl0", "cursor"),
        # ["a\u0000b", "00000000-0000-0000-0000-000000000007"]
        ("/v1/jobs?cursor=WyJhXHUwMDAwYiIsIjAwMDAwMDAwLTAwMDAtMDAwMC0wMDAwLTAwMDAwMDAwMDAwNyJd", "cursor"),
        ("/v1/jobs?state=running", "state"),
        ("/v1/jobs?target=ftp", "target"),
        ("/v1/jobs?tag=team", "tag"),
        ("/v1/jobs?tag=:x", "tag"),
        ("/v1/jobs?tag=a:1&tag=a:2", "tag"),
        ("/v1/jobs?pool=No+Pool", "pool"),
        ("/v1/jobs?name_prefix=" + "a" * 201, "name_prefix"),
        ("/v1/executions?state=runing", "state"),
        ("/v1/executions?state=", "state"),
        ("/v1/executions?kind=auto", "kind"),
        ("/v1/executions?worker=me", "worker"),
        ("/v1/executions?from=yesterday", "from"),
        ("/v1/executions?from=2026-01-01T00:00:00", "from"),
        ("/v1/executions?to=0000-01-01T00:00:00Z", "to"),
        ("/v1/executions?to=9999-12-31T23:59:59-23:59", "to"),
        ("/v1/executions?q=", "q"),
        ("/v1/executions?q=" + "x" * 201, "q"),
    ],
)
async def test_a_wrong_parameter_is_named(rig: Rig, path: str, field: str) -> None:
    reply = await rig.caller.get(path)
    assert (reply.status, reply.fields) == (422, [field])


async def test_a_plus_in_an_address_is_explained(rig: Rig) -> None:
    reply = await rig.caller.get("/v1/executions?from=2026-01-01T00:00:00+01:00")
    assert reply.status == 422
    assert "%2B" in reply.json["detail"]
    assert (await rig.caller.get("/v1/executions?from=2026-01-01T00:00:00%2B01:00")).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs/name:a%00b",
        "/v1/jobs/%00/pause",
        "/v1/jobs?name_prefix=a%00",
        "/v1/jobs?tag=a:%00",
        "/v1/executions?q=%00",
        "/v1/executions?job=name:%00",
        "/v1/executions/%00",
        "/v1/jobs?cursor=%00",
    ],
)
async def test_a_null_character_in_an_address_is_malformed(rig: Rig, path: str) -> None:
    for method in ("GET", "POST"):
        reply = await rig.caller.call(method, path)
        assert (reply.status, reply.json["type"]) == (400, "urn:cronwell:malformed")


async def test_bytes_that_are_no_text_in_an_address_find_nothing(rig: Rig) -> None:
    assert (await rig.caller.get("/v1/jobs/name:%ff%fe")).status == 404
    assert (await rig.caller.get("/v1/jobs?name_prefix=%ff")).json["items"] == []


@pytest.mark.parametrize(
    "given", ['"x"', "one", '"1', '""', "", '"1", "2"', "-1", '"1.0"', '"99999999999"', 'W/"1"']
)
async def test_an_if_match_that_is_no_revision_is_malformed(rig: Rig, given: str) -> None:
    for method, body in (("PUT", HOURLY), ("PATCH", {}), ("DELETE", None)):
        reply = await rig.caller.call(method, "/v1/jobs/name:hourly", body, headers={"If-Match": given})
        assert (reply.status, reply.json["type"]) == (400, "urn:cronwell:malformed")
        assert "If-Match" in reply.json["detail"]


async def test_a_change_is_made_only_to_the_revision_that_it_was_meant_for(rig: Rig) -> None:
    path = "/v1/jobs/name:hourly"
    await rig.caller.create()

    async def change(method: str, body: object, if_match: str) -> int:
        return (await rig.caller.call(method, path, body, headers={"If-Match": if_match})).status

    assert await change("PUT", HOURLY, '"2"') == 412
    assert await change("PUT", HOURLY, '"1"') == 200
    assert await change("PATCH", {"description": "x"}, "1") == 412
    assert await change("PATCH", {"description": "x"}, "2") == 200
    assert await change("PATCH", {"description": "y"}, "*") == 200
    assert await change("DELETE", None, '"3"') == 412
    assert (await rig.caller.get(path)).json["revision"] == 4
    assert await change("DELETE", None, '"4"') == 200


@pytest.mark.parametrize("given", ["", "x" * 256, "tab\tkey", "ümlaut"])
async def test_an_idempotency_key_is_short_and_printable(rig: Rig, given: str) -> None:
    reply = await rig.caller.call("POST", "/v1/jobs", HOURLY, headers={"Idempotency-Key": given})
    assert (reply.status, reply.fields) == (422, ["Idempotency-Key"])
    assert (await rig.caller.get("/v1/jobs")).json["items"] == []


async def test_a_key_gives_the_first_answer_again_and_refuses_another_request(rig: Rig) -> None:
    first = await rig.caller.post("/v1/jobs", HOURLY, Idempotency_Key="key one")
    reordered = dict(reversed(HOURLY.items()))
    again = await rig.caller.post("/v1/jobs", reordered, Idempotency_Key="key one")
    other = await rig.caller.post("/v1/jobs", {**HOURLY, "name": "other"}, Idempotency_Key="key one")
    assert (first.status, again.status) == (201, 201)
    assert again.body == first.body
    assert (first.headers.get("Idempotency-Replayed"), again.headers["Idempotency-Replayed"]) == (
        None,
        "true",
    )
    assert (again.headers["Location"], again.headers["ETag"]) == (first.headers["Location"], '"1"')
    assert (other.status, other.json["type"]) == (409, "urn:cronwell:key-in-use")
    runs = [
        await rig.caller.post("/v1/jobs/name:hourly/trigger", body, Idempotency_Key="key two")
        for body in (None, {}, {"payload": 1})
    ]
    assert [each.status for each in runs] == [201, 201, 409]
    assert runs[0].body == runs[1].body


async def test_a_refused_request_does_not_use_up_its_key(rig: Rig) -> None:
    refused = await rig.caller.post("/v1/jobs", {**HOURLY, "schedule": "x"}, Idempotency_Key="key three")
    made = await rig.caller.post("/v1/jobs", HOURLY, Idempotency_Key="key three")
    assert (refused.status, made.status) == (422, 201)


async def endless(sent: list[int]) -> AsyncIterator[bytes]:
    for _ in range(10_000):
        sent.append(65_536)
        yield b" " * 65_536


async def test_a_body_without_end_is_cut_off_at_the_limit(rig: Rig) -> None:
    sent: list[int] = []
    headers = {"Content-Type": "application/json"}
    reply = await rig.caller.call("POST", "/v1/jobs", data=endless(sent), headers=headers)
    assert (reply.status, reply.json["type"]) == (413, "urn:cronwell:too-large")
    assert sum(sent) < 100_000_000


async def test_a_body_that_says_it_is_too_long_is_refused_unread(rig: Rig) -> None:
    address = urlsplit(rig.caller.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n"
    )
    assert (await reader.readline()).split()[1] == b"413"
    writer.close()
