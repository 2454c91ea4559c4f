"""Alerts over HTTP: rules, channels and incidents; jobs of channels stay out of sight, and secrets in them too."""

from __future__ import annotations

import dataclasses
from typing import Any

import orjson
import pytest

from cronwell.bus.postgres import PostgresBus
from cronwell.config import Settings, SmtpSettings
from cronwell.runtime.postgres import Database
from cronwell.scheduler.chores.alerting import Alerting
from tests.api.rig import Caller, Rig, serving

HOOK: dict[str, Any] = {
    "webhook": {"url": "https://example.com/hook?k=t0p", "headers": {"Authorization": "Bearer t0p"}}
}
NDJSON = {"Content-Type": "application/x-ndjson"}
RULE: dict[str, Any] = {"on": "tenant", "when": {"dead_letters": 0}, "channels": ["ops"]}


async def _put(api: Caller, what: str, name: str, body: object, **headers: str) -> Any:
    return await api.call("PUT", f"/v1/alerts/{what}/{name}", body, headers=headers)


async def test_a_channel_is_made_changed_listed_and_deleted(api: Caller) -> None:
    made = await _put(api, "channels", "ops", HOOK)
    assert (made.status, made.json["revision"], made.json["kind"]) == (201, 1, "webhook")
    changed = await _put(api, "channels", "ops", {"slack": {"url": "https://example.com/t0p"}})
    assert (changed.status, changed.json["revision"], changed.json["kind"]) == (200, 2, "slack")
    assert changed.json["content"] == {"slack": {"url": "https://example.com/***"}}
    await _put(api, "channels", "zoo", HOOK)
    first = (await api.get("/v1/alerts/channels?limit=1")).json
    second = (await api.get(f"/v1/alerts/channels?cursor={first['next_cursor']}")).json
    assert [each["name"] for each in (*first["items"], *second["items"])] == ["ops", "zoo"]
    assert (await api.call("DELETE", "/v1/alerts/channels/ops")).json == {"deleted": True}
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/test")):
        assert (await api.call(method, f"/v1/alerts/channels/ops{path}")).status == 404
    again = await _put(api, "channels", "ops", HOOK)
    assert (again.status, again.json["revision"]) == (201, 1)


async def test_a_rule_is_made_changed_listed_and_deleted(api: Caller) -> None:
    await _put(api, "channels", "ops", HOOK)
    made = await _put(api, "rules", "nightly", RULE)
    assert (made.status, made.headers["ETag"], made.json["content"]) == (201, '"1"', RULE)
    same = await _put(api, "rules", "nightly", RULE)
    assert (same.status, same.json["revision"]) == (200, 1)
    other = {**RULE, "severity": "info"}
    assert (await _put(api, "rules", "nightly", other, **{"If-Match": '"7"'})).status == 412
    assert (await _put(api, "rules", "other", other, **{"If-Match": '"1"'})).status == 412
    assert (await _put(api, "rules", "nightly", other, **{"If-Match": '"1"'})).json["revision"] == 2
    assert (await api.get("/v1/alerts/rules")).json["items"] == [
        (await api.get("/v1/alerts/rules/nightly")).json
    ]
    assert (await api.call("DELETE", "/v1/alerts/rules/nightly")).json == {"deleted": True}
    for method in ("GET", "DELETE"):
        assert (await api.call(method, "/v1/alerts/rules/nightly")).status == 404


async def test_a_channel_that_rules_speak_by_stays(api: Caller) -> None:
    await _put(api, "channels", "ops", HOOK)
    await _put(api, "rules", "nightly", RULE)
    refused = await api.call("DELETE", "/v1/alerts/channels/ops")
    assert (refused.status, "nightly" in refused.json["detail"]) == (409, True)
    assert (await api.get("/v1/alerts/channels/ops")).status == 200


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({**RULE, "channels": ["opps"]}, "channels", "did you mean 'ops'?"),
        ({**RULE, "on": {"job": "nightly"}}, "on.job", "there is no job named 'nightly'"),
        ({**RULE, "when": {"missed": "30d"}}, "when.missed", "longer than history is kept"),
        ({**RULE, "when": {"missd": "1d"}}, "when.missd", "did you mean 'missed'?"),
    ],
)
async def test_a_rule_that_could_not_be_judged_is_refused(
    body: dict[str, Any], field: str, words: str, api: Caller
) -> None:
    await _put(api, "channels", "ops", HOOK)
    reply = await _put(api, "rules", "nightly", body)
    assert (reply.status, reply.fields) == (422, [field])
    assert words in reply.json["errors"][0]["message"]


async def test_without_channels_it_is_said_how_to_make_one(api: Caller) -> None:
    reply = await _put(api, "rules", "nightly", RULE)
    assert "PUT /v1/alerts/channels/NAME" in reply.json["errors"][0]["accepted"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"email": {"to": ["ops@example.com"]}}, "email"),
        ({"webhook": {"url": "https://example.com/hook?***"}}, "webhook.url"),
        ({"slack": {"url": "https://example.com/***"}}, "slack.url"),
        ({"webhook": {"url": "https://example.com", "headers": {"X-Key": "***"}}}, "webhook.headers.X-Key"),
    ],
    ids=str,
)
async def test_a_channel_that_could_not_speak_is_refused(
    body: dict[str, Any], field: str, api: Caller
) -> None:
    reply = await _put(api, "channels", "ops", body)
    assert (reply.status, reply.fields) == (422, [field])


async def test_mail_goes_where_the_operator_lets_it(rig: Rig, api_database: Database, api_url: str) -> None:
    smtp = SmtpSettings(host="mail.example.com", domains=("example.com",))
    settings = dataclasses.replace(Settings(), smtp=smtp)
    async with serving(api_database, api_url, rig.clock, settings) as mailing:
        fine = await _put(mailing.caller, "channels", "ops", {"email": {"to": ["ops@Example.com"]}})
        assert (fine.status, fine.json["content"]) == (201, {"email": {"to": ["ops@Example.com"]}})
        away = await _put(mailing.caller, "channels", "ops", {"email": {"to": ["me@elsewhere.com"]}})
        assert (away.status, away.fields) == (422, ["email.to"])


async def test_no_answer_tells_a_secret_of_a_channel(rig: Rig, api: Caller, api_database: Database) -> None:
    """Nor does the audit, in which each change stands."""
    await _put(api, "channels", "ops", HOOK)
    await _put(api, "channels", "ops", {**HOOK, "description": "changed"})
    await _put(api, "rules", "nightly", RULE)
    await api.post("/v1/alerts/channels/ops/test")
    await api.call("DELETE", "/v1/alerts/rules/nightly")
    await api.call("DELETE", "/v1/alerts/channels/ops")
    replies = [
        await api.get(path)
        for path in (
            "/v1/alerts/channels",
            "/v1/alerts/channels/ops",
            "/v1/executions",
            "/v1/audit",
            "/v1/jobs",
        )
    ]
    assert [reply.body for reply in replies if b"t0p" in reply.body] == []
    told = [(each["action"], each["object"]) for each in replies[3].json["items"]][:6]
    assert told == [
        ("deleted", "alert-channel:ops"),
        ("deleted", "alert-rule:nightly"),
        ("tested", "alert-channel:ops"),
        ("created", "alert-rule:nightly"),
        ("changed", "alert-channel:ops"),
        ("created", "alert-channel:ops"),
    ]


async def test_the_job_of_a_channel_is_nobodys_to_see_or_change(
    rig: Rig, api: Caller, api_database: Database
) -> None:
    await _put(api, "channels", "ops", HOOK)
    own = await api_database.fetchval("select id::text from jobs")
    for query in ("", "?name_prefix=.", "?state=active", "?target=http"):
        assert (await api.get(f"/v1/jobs{query}")).json["items"] == []
    for reference in (own, "name:.alerts%2Fops"):
        for method, path in (
            *(("GET", ""), ("DELETE", ""), ("GET", "/status"), ("GET", "/executions")),
            *(("POST", "/pause"), ("POST", "/trigger"), ("GET", "/upcoming")),
        ):
            assert (await api.call(method, f"/v1/jobs/{reference}{path}")).status == 404
        assert (await api.call("PATCH", f"/v1/jobs/{reference}", {"payload": 1})).status == 404
    for upstream in (own, ".alerts/ops", ".alerts/op"):
        follower = {"name": "follower", "target": "https://example.com", "after": [upstream]}
        refused = await api.post("/v1/jobs", follower)
        assert (refused.status, refused.fields) == (422, ["after.0"])
        assert "did you mean" not in refused.json["detail"]
        assert (
            b"there is no job"
            in (await api.call("POST", "/v1/jobs:batch", data=orjson.dumps(follower), headers=NDJSON)).body
        )
    await api.create(name="mine", schedule=None)
    assert (await api.call("PATCH", "/v1/jobs/name:mine", {"after": [own]})).status == 422
    await api.call("DELETE", "/v1/jobs/name:mine")
    taken = await api.post("/v1/jobs", {"name": ".alerts/ops", "target": "https://example.com"})
    assert (taken.status, taken.fields) == (422, ["name"])
    mail = await api.post("/v1/jobs", {"name": "spam", "target": {"email": {"to": ["all@example.com"]}}})
    assert (mail.status, mail.fields) == (422, ["target.email"])
    await api.call("DELETE", "/v1/alerts/channels/ops")
    assert [each["name"] for each in (await api.get("/v1/jobs?state=deleted")).json["items"]] == ["mine"]
    assert await api_database.fetchval("select count(*) from jobs where spec::text like '%t0p%'") == 0


async def test_the_job_of_a_channel_uses_up_no_quota(rig: Rig, api: Caller) -> None:
    await _put(api, "channels", "ops", HOOK)
    await rig.store.change_tenant("default", None, {"jobs": 1})
    try:
        await _put(api, "channels", "more", HOOK)
        assert (await api.post("/v1/jobs", {"name": "mine", "target": "https://example.com"})).status == 201
        await api.call("DELETE", "/v1/alerts/channels/more")
        refused = await api.post("/v1/jobs", {"name": "beyond", "target": "https://example.com"})
        assert refused.status == 409
    finally:
        await rig.store.change_tenant("default", None, {"jobs": None})


async def test_a_tenant_may_have_so_many(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cronwell.control.alerts.MOST_CHANNELS", 1)
    monkeypatch.setattr("cronwell.control.alerts.MOST_RULES", 1)
    assert (await _put(api, "channels", "ops", HOOK)).status == 201
    assert (await _put(api, "channels", "more", HOOK)).status == 409
    assert (await _put(api, "channels", "ops", HOOK)).status == 200
    assert (await _put(api, "rules", "one", RULE)).status == 201
    assert (await _put(api, "rules", "two", RULE)).status == 409


async def test_a_test_is_an_execution_like_any_other(rig: Rig, api: Caller) -> None:
    await _put(api, "channels", "ops", HOOK)
    tested = await api.post("/v1/alerts/channels/ops/test")
    assert tested.status == 202
    found = (await api.get(f"/v1/executions/{tested.json['execution']}")).json
    assert (found["job"], found["state"], found["priority"]) == (".alerts/ops", "pending", "high")
    assert (found["reason"], found["payload"]["event"]) == ("alert", "test")


async def test_a_message_is_not_run_again_to_tell_it_twice(rig: Rig, api: Caller) -> None:
    await _put(api, "channels", "ops", HOOK)
    tested = (await api.post("/v1/alerts/channels/ops/test")).json
    refused = await api.post(f"/v1/executions/{tested['execution']}/rerun")
    assert (refused.status, "is told once" in refused.json["detail"]) == (409, True)
    assert (await api.get("/v1/audit?action=rerun")).json["items"] == []


async def test_incidents_are_listed_newest_first(
    rig: Rig, api: Caller, api_database: Database, api_url: str
) -> None:
    await _put(api, "channels", "ops", HOOK)
    await _put(api, "rules", "dead", {**RULE, "severity": "warning"})
    [key] = await rig.bury(1, name="invoices")
    bus = PostgresBus(api_database, api_url, can_listen=True, on_error=lambda *_: None)
    chore = Alerting(rig.store, bus, rig.clock, rig.settings)
    await chore.run_once()
    await _put(api, "rules", "failing", {**RULE, "when": {"consecutive_failures": 1}})
    await chore.run_once()
    first = (await api.get("/v1/alerts/incidents?limit=1")).json
    rest = (await api.get(f"/v1/alerts/incidents?cursor={first['next_cursor']}")).json
    [failing], [dead] = first["items"], rest["items"]
    assert (dead["rule"], dead["state"], dead["severity"], dead["job"]) == ("dead", "open", "warning", None)
    assert (failing["job"], failing["job_id"], failing["told"]) == ("invoices", str(key.job_id), ["ops"])
    assert failing["summary"] == "invoices: failed"
    await api.call("DELETE", "/v1/alerts/rules/dead")
    listed = {
        query: [each["rule"] for each in (await api.get(f"/v1/alerts/incidents?{query}")).json["items"]]
        for query in ("state=open", "state=resolved", "rule=dead", "rule=none")
    }
    assert listed == {
        "state=open": ["failing"],
        "state=resolved": ["dead"],
        "rule=dead": ["dead"],
        "rule=none": [],
    }
    for query in ("state=closed", "cursor=x", "cursor=WyJhIl0", "limit=0", "rules=dead"):
        assert (await api.get(f"/v1/alerts/incidents?{query}")).status == 422
