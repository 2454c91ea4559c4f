"""Secrets: set, seen to be there, named by jobs, deleted; and no answer, entry or log tells a value."""

from __future__ import annotations

import base64
import dataclasses
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from cronwell.config import SecretSettings, Settings, ShellSettings
from cronwell.runtime.postgres import Database
from tests.api.conftest import Served
from tests.api.rig import HOURLY, Caller, Reply, Rig, calling, serving
from tests.api.test_callbacks import wait_for_callback

VALUE = "hunter2-5f0e8a91c7d34b26"
AUTHORIZATION = {"Authorization": {"secret": "billing-token", "prefix": "Bearer "}}


def http(headers: object) -> dict[str, Any]:
    return {"http": {"url": "https://example.com/run", "headers": headers}}


def new_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def put_first(file: Path, keys: str = "") -> str:
    """Put a new key before those of a file, or these in their place; what it held before."""
    before = file.read_text()
    file.write_text(keys or f"{new_key()}\n{before}")
    return before


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(new_key())
    return file


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def unlocked(served: Served, key_file: Path) -> AsyncIterator[Rig]:
    """An interface that has a key for secrets."""
    settings = dataclasses.replace(
        Settings(), secrets=SecretSettings(key_file=str(key_file)), shell=ShellSettings(enabled=True)
    )
    async with serving(served.database, served.url, served.rig.clock, settings) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def safe(unlocked: Rig, rig: Rig) -> AsyncIterator[Caller]:
    """Calls it; what is made is gone afterwards, as is what `rig` makes."""
    assert rig is not None
    async with calling(unlocked.caller.url) as caller:
        yield caller


async def put(api: Caller, name: str = "billing-token", value: str = VALUE) -> Reply:
    return await api.call("PUT", f"/v1/secrets/{name}", {"value": value})


async def test_a_secret_is_set_seen_set_anew_and_deleted_and_its_value_is_never_told(safe: Caller) -> None:
    made = await put(safe)
    again = await put(safe, value=VALUE + "-new")
    shown = await safe.get("/v1/secrets/billing-token")
    listed = await safe.get("/v1/secrets")
    assert (made.status, again.status, made.json["revision"], again.json["revision"]) == (201, 200, 1, 2)
    assert set(made.json) == {"name", "revision", "key_id", "created_at", "updated_at"}
    assert (shown.json["revision"], shown.json["jobs"], shown.json["named_by"]) == (2, 0, [])
    assert [each["name"] for each in listed.json["items"]] == ["billing-token"]
    for reply in (made, again, shown, listed):
        assert VALUE.encode() not in reply.body
    assert (await safe.call("DELETE", "/v1/secrets/billing-token")).json == {"deleted": True}
    assert (await safe.get("/v1/secrets/billing-token")).status == 404
    assert (await safe.call("DELETE", "/v1/secrets/billing-token")).status == 404


async def test_secrets_are_paged_by_name(safe: Caller) -> None:
    for name in ("c", "a", "b"):
        await put(safe, name)
    first = (await safe.get("/v1/secrets?limit=2")).json
    second = (await safe.get(f"/v1/secrets?limit=2&cursor={first['next_cursor']}")).json
    assert [each["name"] for each in first["items"] + second["items"]] == ["a", "b", "c"]
    assert second["next_cursor"] is None


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("t", {}, 422),
        ("t", {"value": ""}, 422),
        ("t", {"value": None}, 422),
        ("t", {"value": 5}, 422),
        ("t", {"value": {"secret": VALUE}}, 422),
        ("t", {"value": VALUE + "\0"}, 422),
        ("t", {"value": VALUE, "vlaue": VALUE}, 422),
        ("t", {"value": VALUE * 5000}, 422),
        ("t", {"value": "é" * 40_000}, 413),
        ("bad%20name", {"value": VALUE}, 422),
        ("-t", {"value": VALUE}, 422),
        ("n" * 201, {"value": VALUE}, 422),
    ],
)
async def test_what_cannot_be_a_secret_is_refused_without_telling_it(
    name: str, body: dict[str, Any], status: int, safe: Caller
) -> None:
    reply = await safe.call("PUT", f"/v1/secrets/{name}", body)
    assert (reply.status, VALUE.encode() in reply.body) == (status, False), reply.body
    assert (await safe.get("/v1/secrets")).json["items"] == []


async def test_without_a_key_it_is_said_what_to_set(api: Caller) -> None:
    for reply in (
        await put(api),
        await api.get("/v1/secret-keys"),
        await api.post("/v1/secret-keys/rotate"),
    ):
        assert reply.status == 409
        assert "CRONWELL_SECRETS_KEY_FILE" in reply.json["detail"]
    assert (await api.get("/v1/secrets")).json["items"] == []


async def test_a_job_that_names_a_secret_keeps_the_name(safe: Caller) -> None:
    await put(safe)
    job = await safe.create(target=http(AUTHORIZATION), payload={"deep": [{"secret": "billing-token"}]})
    shown = await safe.get(f"/v1/jobs/{job['id']}")
    assert shown.json["target"]["http"]["headers"] == AUTHORIZATION
    assert shown.json["payload"] == {"deep": [{"secret": "billing-token"}]}
    assert (await safe.get("/v1/secrets/billing-token")).json["named_by"] == ["hourly"]


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        (
            {"target": http(AUTHORIZATION)},
            "target.http.headers.Authorization",
            "did you mean 'billing-tokens'?",
        ),
        (
            {"payload": {"a": [{"secret": "nothing-like-it"}]}},
            "payload.a.0",
            "`cronwell secret set nothing-like-it`",
        ),
        (
            {"target": {"shell": {"command": "env", "env": {"T": {"secret": "x"}}}}},
            "target.shell.env.T",
            "no secret 'x'",
        ),
        ({"payload": {"secret": "hunter2 is no name"}}, "payload", "not a name"),
        ({"payload": {"secret": ""}}, "payload", "not a name"),
        ({"target": http({"X": {"secret": "a b"}})}, "target.http.headers.X.secret", "digits and . _"),
        ({"target": http({"X": {"secret": 5}})}, "target.http.headers.X.secret", "string"),
        ({"target": http({"X": {"secrte": "a"}})}, "target.http.headers.X.secret", "required"),
        (
            {"target": http({"X": {"secret": "billing-tokens", "prefix": "a\nb"}})},
            "target.http.headers",
            "carry",
        ),
        ({"target": http({"X": 5})}, "target.http.headers.X", "string"),
        ({"target": http({"Host": {"secret": "billing-tokens"}})}, "target.http.headers", "set by Cronwell"),
        ({"payload": [{"secret": f"s{n}"} for n in range(33)]}, "payload.32", "32 secrets"),
    ],
)
async def test_a_job_that_cannot_have_its_secrets_is_refused(
    fields: dict[str, Any], field: str, said: str, safe: Caller
) -> None:
    await put(safe, "billing-tokens")
    made = await safe.create(name="present")
    for method, path, body in (
        ("POST", "/v1/jobs", {**HOURLY, **fields}),
        ("PATCH", f"/v1/jobs/{made['id']}", fields if "shell" not in str(fields) else {**HOURLY, **fields}),
    ):
        if method == "PATCH" and "shell" in str(fields):
            continue
        reply = await safe.call(method, path, body)
        assert (reply.status, field in reply.fields) == (422, True), reply.body
        assert said in reply.json["detail"]
        assert b"hunter2" not in reply.body
    assert [each["name"] for each in (await safe.get("/v1/jobs")).json["items"]] == ["present"]


async def test_each_job_of_a_batch_is_judged_by_its_own_secrets(safe: Caller) -> None:
    await put(safe)
    named = [None, "billing-token", "billing-tokem", "billing-token"]
    lines = b"\n".join(
        orjson.dumps({**HOURLY, "name": f"job-{n}", "payload": None if name is None else {"secret": name}})
        for n, name in enumerate(named)
    )
    reply = await safe.call(
        "POST", "/v1/jobs:batch", data=lines, headers={"Content-Type": "application/x-ndjson"}
    )
    results = [orjson.loads(line) for line in reply.body.splitlines()]
    assert [each["status"] for each in results] == ["created", "created", "error", "created"]
    assert "did you mean 'billing-token'?" in results[2]["problem"]["detail"]
    assert (await safe.get("/v1/secrets/billing-token")).json["named_by"] == ["job-1", "job-3"]


async def test_a_secret_that_jobs_name_is_deleted_only_by_force(safe: Caller) -> None:
    await put(safe)
    jobs = [await safe.create(name=f"job-{n}", target=http(AUTHORIZATION)) for n in range(7)]
    refused = await safe.call("DELETE", "/v1/secrets/billing-token")
    assert refused.status == 409
    assert "job-0, job-1, job-2, job-3, job-4 and 2 more" in refused.json["detail"]
    await safe.call("PATCH", f"/v1/jobs/{jobs[0]['id']}", {"target": {"http": {"headers": None}}})
    for job in jobs[1:6]:
        await safe.call("DELETE", f"/v1/jobs/{job['id']}")
    assert (await safe.get("/v1/secrets/billing-token")).json["named_by"] == ["job-6"]
    assert (await safe.call("DELETE", "/v1/secrets/billing-token?force=true")).status == 200
    changed = await safe.call("PATCH", f"/v1/jobs/{jobs[6]['id']}", {"priority": "high"})
    assert (changed.status, "there is no secret" in changed.json["detail"]) == (422, True)
    await put(safe)
    assert (await safe.get("/v1/secrets/billing-token")).json["named_by"] == ["job-6"]


async def test_a_payload_for_one_run_names_no_secret_that_the_job_does_not(safe: Caller) -> None:
    """Else whoever may run a job could have any secret sent to whatever it calls."""
    await put(safe)
    await put(safe, "another")
    job = await safe.create(target=http(AUTHORIZATION), overlap="allow")
    own, other = {"t": {"secret": "billing-token"}}, {"t": {"secret": "another"}}
    path = f"/v1/jobs/{job['id']}"
    past = "2026-01-01T00:00:00Z"
    for method, where, body in (
        ("POST", f"{path}/trigger", {}),
        ("PUT", f"{path}/overrides/{job['next_fire_at']}", {"action": "payload"}),
        ("POST", f"{path}/backfills", {"from": past, "dry_run": True}),
    ):
        refused = await safe.call(method, where, {**body, "payload": other})
        assert (refused.status, refused.fields) == (422, ["payload.t"]), refused.body
        assert "one that it names: billing-token" in refused.json["detail"]
        taken = await safe.call(method, where, {**body, "payload": own})
        assert "payload.t" not in [each["field"] for each in taken.json.get("errors", ())], taken.body
    plain = await safe.create(name="plain")
    refused = await safe.post(f"/v1/jobs/{plain['id']}/trigger", {"payload": own})
    assert (refused.status, "it names no secret" in refused.json["detail"]) == (422, True)


async def test_the_audit_tells_who_set_a_secret_and_nothing_of_it(
    safe: Caller, api_database: Database
) -> None:
    await put(safe)
    await put(safe, value=VALUE + "2")
    await safe.call("DELETE", "/v1/secrets/billing-token")
    reply = await safe.get("/v1/audit?object=secret:billing-token")
    entries = reply.json["items"][-3:]
    assert [each["action"] for each in entries] == ["deleted", "changed", "created"]
    assert all(set(each["after"] or each["before"]) == {"name", "revision", "key_id"} for each in entries)
    assert entries[1]["actor"] == "loopback"
    assert VALUE.encode() not in reply.body


async def test_all_secrets_are_rewrapped_with_the_first_key(safe: Caller, key_file: Path) -> None:
    for name in ("a", "b", "c"):
        await put(safe, name)
    before = (await safe.get("/v1/secret-keys")).json["items"]
    assert [(each["is_first"], each["is_known"], each["secrets"]) for each in before] == [(True, True, 3)]
    old = put_first(key_file)
    try:
        now = (await safe.get("/v1/secret-keys")).json["items"]
        assert [each["secrets"] for each in now] == [0, 3]
        done = (await safe.post("/v1/secret-keys/rotate")).json
        assert (done["key_id"], done["rewrapped"], done["left"]) == (now[0]["id"], 3, 0)
        assert (done["unreadable"], done["next_cursor"]) == ([], None)
        assert (await safe.post("/v1/secret-keys/rotate", {"cursor": None})).json["rewrapped"] == 0
        assert {each["key_id"] for each in (await safe.get("/v1/secrets")).json["items"]} == {now[0]["id"]}
        audit = (await safe.get("/v1/audit?object=secret:a&limit=1")).json["items"][0]
        assert (audit["action"], audit["before"]["key_id"]) == ("rewrapped", before[0]["id"])
    finally:
        put_first(key_file, old)
    lost = (await safe.post("/v1/secret-keys/rotate")).json
    assert (lost["rewrapped"], lost["left"]) == (0, 3)
    assert [(each["name"], each["key_id"]) for each in lost["unreadable"]] == [
        (name, now[0]["id"]) for name in ("a", "b", "c")
    ]
    missing = (await safe.get("/v1/secret-keys")).json["items"]
    assert [(each["is_known"], each["secrets"]) for each in missing] == [(True, 0), (False, 3)]


@pytest.mark.parametrize("cursor", ["x", "WyJhIiwiYiJd", "WyItMSIsImIiXQ", "WyI5OTk5OTk5OTk5OTkiLCJiIl0", 5])
async def test_a_rotation_goes_on_from_its_own_cursors_alone(cursor: object, safe: Caller) -> None:
    assert (await safe.post("/v1/secret-keys/rotate", {"cursor": cursor})).status == 422


async def _told(rig: Rig, action: str, told: dict[str, Any]) -> dict[str, Any]:
    """What is shown of an execution whose receiver says something by its callback."""
    target = {
        "http": {"url": "https://example.com/run", "callback": {"deadline": "2h"}, "headers": AUTHORIZATION}
    }
    waiting = await wait_for_callback(rig, target=target, retry={"max_attempts": 1})
    assert (await waiting.call(action, told)).status == 200
    return await waiting.shown()


async def test_what_is_told_by_a_callback_shows_no_value(unlocked: Rig, safe: Caller) -> None:
    await put(safe)
    rig = dataclasses.replace(unlocked, caller=safe)
    told = f"they sent Bearer {VALUE}"
    masked = "they sent Bearer [secret billing-token]"
    assert (await _told(rig, "complete", {"output": told}))["output"] == masked
    failed = await _told(rig, "fail", {"error": told, "output": {"got": VALUE}})
    assert (failed["error"], failed["output"]) == (masked, '{"got":"[secret billing-token]"}')
    assert (await _told(rig, "progress", {"progress": [told]}))["progress"] == [masked]
    assert (await _told(rig, "heartbeat", {"progress": told}))["progress"] == masked
    assert (await _told(rig, "checkpoint", {"checkpoint": {"auth": VALUE}}))["checkpoint"] == {
        "auth": "[secret billing-token]"
    }


async def test_a_callback_is_kept_without_words_where_the_api_cannot_look_for_secrets(
    unlocked: Rig, safe: Caller, key_file: Path
) -> None:
    await put(safe)
    rig = dataclasses.replace(unlocked, caller=safe)
    before = put_first(key_file, new_key())
    try:
        await safe.get("/v1/secret-keys")
        shown = await _told(rig, "complete", {"output": VALUE})
        assert (shown["state"], "[not kept" in shown["output"]) == ("succeeded", True)
        target = {
            "http": {
                "url": "https://example.com/run",
                "callback": {"deadline": "2h"},
                "headers": AUTHORIZATION,
            }
        }
        waiting = await wait_for_callback(rig, target=target)
        assert (await waiting.call("checkpoint", {"checkpoint": VALUE})).status == 503
        assert (await waiting.call("heartbeat")).status == 200
    finally:
        put_first(key_file, before)
        await safe.get("/v1/secret-keys")


async def test_a_channel_of_alerts_names_secrets_as_a_job_does(safe: Caller) -> None:
    hook = {"webhook": {"url": "https://example.com/hook", "headers": AUTHORIZATION}}
    path = "/v1/alerts/channels/ops"
    refused = await safe.call("PUT", path, hook)
    assert (refused.status, refused.fields) == (422, ["webhook.headers.Authorization"])
    assert (await safe.get(path)).status == 404
    await put(safe)
    assert (await safe.call("PUT", path, hook)).status == 201
    assert (await safe.call("DELETE", "/v1/secrets/billing-token")).status == 409
    assert (await safe.call("DELETE", path)).status == 200
    assert (await safe.call("DELETE", "/v1/secrets/billing-token")).status == 200
