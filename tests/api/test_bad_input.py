"""What cannot be a job is refused with a 4xx that names the field and says what to write; nothing is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.rig import HOURLY, Reply, Rig

JSON = {"Content-Type": "application/json"}


async def refused(rig: Rig, data: bytes, path: str = "/v1/jobs", method: str = "POST") -> Reply:
    """Send a body as it is, and see that it is refused as a problem and leaves nothing behind."""
    reply = await rig.caller.call(method, path, data=data, headers=JSON)
    assert 400 <= reply.status < 500, reply.body
    assert reply.headers["Content-Type"] == "application/problem+json"
    problem = reply.json
    assert problem["status"] == reply.status
    assert problem["type"].startswith("urn:cronwell:")
    assert problem["title"]
    assert problem["detail"]
    assert problem["instance"] == path
    assert problem["request_id"] == reply.headers["X-Request-Id"]
    assert (await rig.caller.get("/v1/jobs")).json["items"] == []
    return reply


def job(**fields: object) -> bytes:
    return json.dumps({**HOURLY, **fields}).encode()


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"schedule": "0 25 * * *"}, "schedule", "0-23"),
        ({"schedule": "0 3 * *"}, "schedule", "fields"),
        ({"schedule": "* * * * * * * *"}, "schedule", "fields"),
        ({"schedule": ""}, "schedule", ""),
        ({"schedule": "@fortnightly"}, "schedule", ""),
        ({"schedule": {"cron": "61 * * * *"}}, "schedule.cron", "0-59"),
        ({"schedule": {"crn": "0 3 * * *"}}, "schedule.crn", "cron"),
        ({"schedule": {"cron": "0 3 * * *", "every": "5m"}}, "schedule", "one"),
        ({"schedule": 5}, "schedule", ""),
        ({"schedule": ["0 3 * * *"]}, "schedule", ""),
        ({"schedule": "0 0 30 2 *"}, "schedule", "never fires"),
        ({"schedule": "at 2020-01-01T00:00:00Z"}, "schedule", "past"),
        ({"schedule": "at 2099-01-01T00:00:00"}, "schedule", "offset"),
        ({"schedule": "at 0000-01-01T00:00:00Z"}, "schedule", ""),
        ({"schedule": "at 9999-12-31T23:59:59-23:59"}, "schedule", "years"),
        ({"schedule": "at 2099-01-01T00:00:00+99:99"}, "schedule", ""),
        ({"schedule": "in 0s"}, "schedule", ""),
        ({"schedule": "in 200y"}, "schedule", ""),
        ({"schedule": "in 36500d"}, "schedule", ""),
        ({"schedule": "every 1ms"}, "schedule", "1s"),
        ({"timezone": "Europe/Berln"}, "timezone", "Europe/Berlin"),
        ({"timezone": "../../etc/passwd"}, "timezone", ""),
        ({"schedule": None, "timezone": "UTC"}, "timezone", "schedule"),
        ({"window": "soon"}, "window", ""),
        ({"name": ""}, "name", ""),
        ({"name": "has space"}, "name", ""),
        ({"name": "n" * 201}, "name", ""),
        ({"name": None}, "name", ""),
        ({"name": 5}, "name", ""),
        ({"target": "ftp://example.com"}, "target", "URL"),
        ({"target": "https://"}, "target", ""),
        ({"target": "https://u:p@example.com/"}, "target", "headers"),
        ({"target": "https://example.com:99999/"}, "target", ""),
        ({"target": "https://exa mple.com/"}, "target", ""),
        ({"target": {}}, "target", "exactly one"),
        (
            {"target": {"http": {"url": "https://a.example"}, "handler": {"name": "f"}}},
            "target",
            "exactly one",
        ),
        ({"target": {"htp": {"url": "https://a.example"}}}, "target.htp", "http"),
        ({"target": {"http": {"url": "https://a.example", "metod": "POST"}}}, "target.http.metod", "method"),
        (
            {"target": {"http": {"url": "https://a.example", "headers": {"Host": "x"}}}},
            "target.http.headers",
            "",
        ),
        (
            {"target": {"http": {"url": "https://a.example", "headers": {"X": "a\nb"}}}},
            "target.http.headers",
            "",
        ),
        ({"target": {"shell": {"command": "true"}}}, "target.shell", "CRONWELL_SHELL_ENABLED"),
        (
            {"target": {"publish": {"redis": {"stream": "x"}}}},
            "target.publish.broker",
            "CRONWELL_BROKERS_DEFAULT",
        ),
        (
            {"target": {"publish": {"broker": "eu", "redis": {"stream": "x"}}}},
            "target.publish.broker",
            "CRONWELL_BROKERS_EU",
        ),
        ({"target": {"publish": {"redis": {"streem": "x"}}}}, "target.publish.redis.stre", "stream"),
        ({"target": {"publish": {"redis": {"stream": "a b"}}}}, "target.publish.redis.stream", ""),
        (
            {"target": {"publish": {"redis": {"stream": "x", "maxlen": 0}}}},
            "target.publish.redis.maxlen",
            "1",
        ),
        (
            {"target": {"publish": {"redis": {"stream": "x", "maxlen": 2**63}}}},
            "target.publish.redis.maxlen",
            "",
        ),
        ({"target": {"publish": {}}}, "target.publish", "redis"),
        ({"target": {"publish": "orders"}}, "target.publish", ""),
        ({"timeout": "0s"}, "timeout", "1ms"),
        ({"timeout": "8d"}, "timeout", "7d"),
        ({"timeout": 30}, "timeout", "30s"),
        ({"timeout": "soon"}, "timeout", "30s"),
        ({"retry": {"max_attempts": 0}}, "retry.max_attempts", "1"),
        ({"retry": {"max_attempts": 2**63}}, "retry.max_attempts", "100"),
        ({"retry": {"max_attempts": 2.5}}, "retry.max_attempts", ""),
        ({"retry": {"max_atempts": 2}}, "retry.max_atempts", "max_attempts"),
        ({"retry": {"jitter": 2}}, "retry.jitter", ""),
        ({"retry": {"jitter": "0.5"}}, "retry.jitter", ""),
        ({"retry": {"outcomes": {"failed": {"retry": 0}}}}, "retry.outcomes.failed.retry", ""),
        ({"retry": {"initial_delay": "2h", "max_delay": "1h"}}, "retry", "max_delay"),
        ({"priority": "urgent"}, "priority", "high"),
        ({"pool": "Has Space"}, "pool", ""),
        ({"overlap": "allow", "max_running": 2}, "body", "overlap"),
        ({"max_running": True}, "max_running", ""),
        ({"max_running": 10**18}, "max_running", ""),
        ({"catch_up": "some"}, "catch_up", "last"),
        ({"tags": {"bad key": "x"}}, "tags", ""),
        ({"tags": {"k": 1}}, "tags.k", ""),
        ({"tags": {f"k{n}": "x" for n in range(33)}}, "tags", "32"),
        ({"tags": ["a"]}, "tags", ""),
        ({"description": "d" * 2001}, "description", "2000"),
        ({"schedul": "@daily"}, "schedul", "schedule"),
        ({"shedule": "@daily", "prioritty": "high"}, "prioritty", "priority"),
        ({"payload": "x\0y"}, "payload", "null character"),
        ({"payload": {"k\0": 1}}, "payload", "null character"),
        ({"tags": {"k": "\0"}}, "tags.k", "null character"),
        ({"description": "\0"}, "description", "null character"),
        ({"schedule": "0 3 * * *\0"}, "schedule", "null character"),
        ({"schedule": {"cron\0": "0 3 * * *"}}, "schedule", "null character"),
        ({"name": "a\0"}, "name", "null character"),
    ],
)
async def test_a_wrong_field_is_named_with_what_is_accepted(
    rig: Rig, fields: dict[str, Any], field: str, said: str
) -> None:
    reply = await refused(rig, job(**fields))
    assert reply.status == 422
    assert reply.fields[0].startswith(field)
    assert said in json.dumps(reply.json["errors"])


async def test_a_bad_cron_text_is_refused_with_its_column(rig: Rig) -> None:
    reply = await refused(rig, job(schedule="0 3 * * MOON"))
    assert [each["column"] for each in reply.json["errors"]] == [9]


async def test_all_wrong_fields_are_named_at_once(rig: Rig) -> None:
    reply = await refused(rig, job(priority="urgent", pool="No", timeout="x"))
    assert reply.fields == ["pool", "priority", "timeout"]


async def test_what_is_required_is_asked_for(rig: Rig) -> None:
    reply = await refused(rig, b"{}")
    assert reply.fields == ["name", "target"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no body"),
        (b"   ", "not JSON"),
        (b"{", "not JSON"),
        (b"nonsense", "not JSON"),
        (b'{"name": "a",}', "not JSON"),
        (b"[]", "not an object"),
        (b"null", "not an object"),
        (b'"text"', "not an object"),
        (b"5", "not an object"),
        (b'{"payload": NaN}', "not JSON"),
        (b'{"payload": Infinity}', "not JSON"),
        (b'{"payload": 1e400}', "not JSON"),
        (b'{"payload": "\xff\xfe"}', "not JSON"),
        (b'\xef\xbb\xbf{"name": "bom"}', "not JSON"),
        (b'{"payload": "\\ud800"}', "not JSON"),
        (b'{"\\udfff": 1}', "not JSON"),
        (b'{"payload": "\x00"}', "not JSON"),
        (b'{"payload": 18446744073709551616}', "64 bits"),
        (b'{"payload": -9223372036854775809}', "64 bits"),
        (b'{"payload": {"a": [1234567890123456789012345678901234567890]}}', "64 bits"),
        (b'{"payload": ' + b"9" * 300 + b"}", "64 bits"),
        (b"[" * 100_000, "not JSON"),
        (b'{"payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not JSON"),
        (b'{"payload": ' + b"[" * 900 + b"]" * 900 + b"}", "deeper"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "deeper"),
        (b'{"payload": ' + b"[" * 50 + b"]" * 50 + b"}", "deeper"),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_what_is_not_a_fit_json_object_is_malformed(rig: Rig, data: bytes, said: str) -> None:
    for path, method in (("/v1/jobs", "POST"), ("/v1/schedules/preview", "POST")):
        reply = await refused(rig, data, path, method)
        assert (reply.status, reply.json["type"]) == (400, "urn:cronwell:malformed")
        assert said in reply.json["detail"]


async def test_a_payload_nested_too_deep_is_refused_by_name(rig: Rig) -> None:
    data = b'{"name":"a","target":"https://a.example","payload":' + b"[" * 34 + b"]" * 34 + b"}"
    reply = await refused(rig, data)
    assert (reply.status, reply.fields) == (422, ["payload"])


async def test_a_payload_beyond_the_limit_is_too_large(rig: Rig) -> None:
    reply = await refused(rig, job(payload="x" * 262_144))
    assert (reply.status, reply.json["type"]) == (413, "urn:cronwell:too-large")
    assert "payload" in reply.json["detail"]


async def test_numbers_that_fit_into_64_bits_and_long_digits_in_text_are_kept(rig: Rig) -> None:
    payload = {"most": 2**64 - 1, "least": -(2**63), "text": "9" * 40, "float": 1e30, "escaped": "\\u0000"}
    reply = await rig.caller.post("/v1/jobs", {**HOURLY, "payload": payload})
    assert (reply.status, reply.json["payload"]) == (201, payload)


async def test_the_last_of_two_equal_keys_counts(rig: Rig) -> None:
    data = b'{"name": "first", "target": "https://a.example", "name": "second"}'
    reply = await rig.caller.call("POST", "/v1/jobs", data=data, headers=JSON)
    assert (reply.status, reply.json["name"]) == (201, "second")


async def test_a_taken_name_is_a_conflict_that_says_where_the_job_is(rig: Rig) -> None:
    await rig.caller.post("/v1/jobs", {**HOURLY, "name": "a/b"})
    second = await rig.caller.post("/v1/jobs", {**HOURLY, "name": "a/b"})
    await rig.caller.post("/v1/jobs", {**HOURLY, "name": "c"})
    renamed = await rig.caller.call("PATCH", "/v1/jobs/name:c", {"name": "a/b"})
    assert (second.status, second.json["type"]) == (409, "urn:cronwell:name-taken")
    assert "/v1/jobs/name:a%2Fb" in second.json["detail"]
    assert (renamed.status, renamed.json["type"]) == (409, "urn:cronwell:name-taken")


@pytest.mark.parametrize(
    ("path", "body", "field", "hint"),
    [
        ("pause", {"not": "x"}, "not", "note"),
        ("pause", {"note": 5}, "note", ""),
        ("pause", {"note": "x" * 2001}, "note", "2000"),
        ("pause", {"note": "\0"}, "note", "null character"),
        ("pause", {"until": "tomorrow"}, "until", "2027"),
        ("pause", {"until": "2099-01-01T00:00:00"}, "until", "offset"),
        ("pause", {"until": "9999-12-31T23:59:59Z"}, "until", "years"),
        ("resume", {"fire_mised": "all"}, "fire_mised", "fire_missed"),
        ("resume", {"fire_missed": "some"}, "fire_missed", "'last'"),
        ("trigger", {"paylod": 1}, "paylod", "payload"),
        ("trigger", {"overlap": "skip"}, "overlap", "allow"),
        (
            "trigger",
            {"payload": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]},
            "payload",
            "deep",
        ),
    ],
)
async def test_a_wrong_order_to_a_job_is_refused_and_changes_nothing(
    rig: Rig, path: str, body: object, field: str, hint: str
) -> None:
    made = await rig.caller.create()
    reply = await rig.caller.post(f"/v1/jobs/{made['id']}/{path}", body)
    assert (reply.status, reply.fields) == (422, [field])
    assert hint in json.dumps(reply.json["errors"])
    after = (await rig.caller.get(f"/v1/jobs/{made['id']}")).json
    assert (after["state"], after["latest_executions"]) == ("active", [])


async def test_a_triggers_payload_has_the_limit_of_a_jobs(rig: Rig) -> None:
    made = await rig.caller.create()
    reply = await rig.caller.post(f"/v1/jobs/{made['id']}/trigger", {"payload": "x" * 262_144})
    assert reply.status == 413


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schedule": "nonsense"}, "schedule"),
        ({"retry": {"max_attempts": 0}}, "retry.max_attempts"),
        ({"name": None}, "name"),
        ({"retry": {"a": {"b": {"c": 1}}}}, "retry.a"),
    ],
)
async def test_a_wrong_change_leaves_the_job_as_it_was(rig: Rig, change: object, field: str) -> None:
    made = await rig.caller.create()
    reply = await rig.caller.call("PATCH", f"/v1/jobs/{made['id']}", change)
    assert (reply.status, reply.fields) == (422, [field])
    after = (await rig.caller.get(f"/v1/jobs/{made['id']}")).json
    assert (after["revision"], after["schedule"]) == (1, HOURLY["schedule"])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "schedule"),
        ({"schedule": None}, "schedule"),
        ({"schedule": "0 25 * * *"}, "schedule"),
        ({"schedule": "@daily", "count": 0}, "count"),
        ({"schedule": "@daily", "count": 1001}, "count"),
        ({"schedule": "@daily", "count": "5"}, "count"),
        ({"schedule": "@daily", "after": "0001-01-01T00:00:00+14:00"}, "after"),
        ({"schedule": "@daily", "after": 5}, "after"),
        ({"schedule": "@daily", "timezone": "Mars/Olympus"}, "timezone"),
        ({"schedule": "@daily", "time_zone": "UTC"}, "time_zone"),
    ],
)
async def test_a_preview_of_nonsense_is_refused(rig: Rig, body: dict[str, Any], field: str) -> None:
    reply = await refused(rig, json.dumps(body).encode(), "/v1/schedules/preview")
    assert (reply.status, reply.fields[0].split(".")[0]) == (422, field)


@pytest.mark.parametrize(
    "fields",
    [
        {f"field-{n}": 1 for n in range(40_000)},
        {"schedule": {f"field-{n}": "x" for n in range(40_000)}},
        {"tags": {f"bad key {n}": 1 for n in range(20_000)}},
        {"x" * 1_000_000: 1},
    ],
    ids=["fields", "schedule", "tags", "one long name"],
)
async def test_a_body_full_of_mistakes_is_answered_with_the_first_of_them(
    rig: Rig, fields: dict[str, Any]
) -> None:
    reply = await refused(rig, job(**fields))
    assert reply.status == 422
    assert len(reply.fields) <= 51
    assert len(reply.body) < 100_000
