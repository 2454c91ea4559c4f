"""Jobs over HTTP: created, found, changed, paused, triggered, deleted."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from cronwell.model.execution import State
from tests.api.rig import HALF_AN_HOUR_AWAY, HOURLY, Caller, Rig


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_a_created_job_answers_with_its_id_place_revision_and_next_instant(rig: Rig) -> None:
    reply = await rig.caller.post("/v1/jobs", HOURLY)
    job = reply.json
    assert reply.status == 201
    assert reply.headers["Location"] == f"/v1/jobs/{UUID(job['id'])}"
    assert reply.headers["ETag"] == '"1"'
    assert reply.headers["Content-Type"] == "application/json"
    assert (job["state"], job["revision"]) == ("active", 1)
    next_fire_at = moment(job["next_fire_at"])
    assert timedelta() < next_fire_at - rig.clock.now() <= timedelta(hours=1)
    assert (next_fire_at.minute, next_fire_at.second, next_fire_at.microsecond) == (HALF_AN_HOUR_AWAY, 0, 0)
    found = await rig.caller.get(reply.headers["Location"])
    assert {**found.json, "warnings": job["warnings"]} == {**job, "latest_executions": []}


@pytest.mark.parametrize(
    "schedule",
    [
        "  0  3 * *\tMON-fri ",
        "@Daily",
        "every 90m",
        "in 1h30m",
        "at 2099-05-05T10:00:00+02:00",
        {"cron": "0 3 * * *", "timezone": "America/Los_Angeles", "window": "10m"},
        {"every": "PT15M", "anchor": "2020-01-01T00:00:00Z"},
    ],
)
async def test_the_schedule_comes_back_to_the_letter(api: Caller, schedule: object) -> None:
    job = await api.create(schedule=schedule)
    assert job["schedule"] == schedule
    assert (await api.get(f"/v1/jobs/{job['id']}")).json["schedule"] == schedule


async def test_a_job_without_a_schedule_has_no_next_instant(api: Caller) -> None:
    job = await api.create(schedule=None)
    assert job["next_fire_at"] is None
    assert (await api.get(f"/v1/jobs/{job['id']}/upcoming")).json["items"] == []


async def test_what_was_left_out_is_answered_with_its_default(api: Caller) -> None:
    job = await api.create()
    assert (job["timeout"], job["priority"], job["pool"], job["overlap"]) == (
        "10m",
        "normal",
        "default",
        "skip",
    )
    assert job["retry"]["max_attempts"] == 4
    assert job["target"]["http"] == {
        "url": "https://example.com/run",
        "method": "POST",
        "headers": {},
        "body": "delivery",
        "callback": None,
    }


async def test_a_pool_or_handler_that_nobody_serves_is_a_warning(rig: Rig) -> None:
    target = {"handler": {"name": "reports.send"}}
    schedule = "17 * * * *"
    alone = await rig.caller.create(name="alone", pool="special", target=target, schedule=schedule)
    assert any("special" in warning for warning in alone["warnings"])
    assert any("reports.send" in warning for warning in alone["warnings"])
    await rig.register(pools=["special"], handlers=["reports.send"])
    served = await rig.caller.create(name="served", pool="special", target=target, schedule=schedule)
    assert served["warnings"] == []


async def test_a_job_is_found_by_name_also_with_a_slash_in_it(api: Caller) -> None:
    inner = await api.create(name="team/daily")
    await api.create(name="team")
    nested = await api.create(name="team/status")
    assert (await api.get("/v1/jobs/name:team%2Fdaily")).json["id"] == inner["id"]
    assert (await api.get("/v1/jobs/name:team%2fdaily/status")).json["id"] == inner["id"]
    # The name of one and the route of another are told apart.
    assert (await api.get("/v1/jobs/name:team%2Fstatus")).json["id"] == nested["id"]
    assert (await api.get("/v1/jobs/name:team/status")).json["name"] == "team"


async def test_a_slash_that_is_not_encoded_is_not_found_and_says_how_to_write_it(api: Caller) -> None:
    await api.create(name="team/daily")
    reply = await api.get("/v1/jobs/name:team/daily")
    assert reply.status == 404
    assert "%2F" in reply.json["detail"]


@pytest.mark.parametrize(
    "reference",
    ["nonsense", "name:nobody", "name:", "name:100%25", "name:%E2%82", "0" * 36, str(UUID(int=7)), "%25"],
)
async def test_a_job_that_is_not_there_is_not_found(api: Caller, reference: str) -> None:
    for path in ("", "/status", "/upcoming", "/executions", "/history"):
        reply = await api.get(f"/v1/jobs/{reference}{path}")
        assert (reply.status, reply.json["status"]) == (404, 404)
    for path in ("/pause", "/resume", "/trigger"):
        assert (await api.post(f"/v1/jobs/{reference}{path}")).status == 404
    assert (await api.call("PUT", f"/v1/jobs/{reference}", HOURLY)).status == 404
    assert (await api.call("PATCH", f"/v1/jobs/{reference}", {})).status == 404
    assert (await api.call("DELETE", f"/v1/jobs/{reference}")).status == 404


async def test_jobs_are_listed_by_name_and_by_each_filter(api: Caller) -> None:
    await api.create(name="b", tags={"team": "billing", "env": "prod"})
    await api.create(name="a", tags={"team": "billing", "env": "test"}, pool="special")
    await api.create(name="ab", target={"handler": {"name": "f"}})
    await api.create(name="c")
    await api.post("/v1/jobs/name:c/pause")
    await api.create(name="gone")
    await api.call("DELETE", "/v1/jobs/name:gone")

    async def names(query: str) -> list[str]:
        return [each["name"] for each in (await api.get(f"/v1/jobs?{query}")).json["items"]]

    assert await names("") == ["a", "ab", "b", "c"]
    assert await names("name_prefix=a") == ["a", "ab"]
    assert await names("tag=team:billing") == ["a", "b"]
    assert await names("tag=team%3Dbilling&tag=env:prod") == ["b"]
    assert await names("pool=special") == ["a"]
    assert await names("target=handler") == ["ab"]
    assert await names("state=paused") == ["c"]
    assert await names("state=active") == ["a", "ab", "b"]
    assert await names("state=deleted") == ["gone"]
    assert await names("name_prefix=%25") == []


async def test_a_put_replaces_the_whole_definition(api: Caller) -> None:
    job = await api.create(description="old", priority="high")
    reply = await api.call(
        "PUT", f"/v1/jobs/{job['id']}", {**HOURLY, "name": "renamed", "schedule": "@daily"}
    )
    assert reply.status == 200
    assert reply.headers["ETag"] == '"2"'
    changed = reply.json
    assert (changed["name"], changed["description"], changed["priority"]) == ("renamed", None, "normal")
    assert moment(changed["next_fire_at"]).hour == 0
    assert (await api.get("/v1/jobs/name:hourly")).status == 404


async def test_a_patch_merges_and_null_removes(api: Caller) -> None:
    job = await api.create(description="old", retry={"max_attempts": 7, "backoff": "fixed"})
    reply = await api.call(
        "PATCH",
        f"/v1/jobs/{job['id']}",
        {"description": None, "retry": {"max_attempts": 2}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert reply.status == 200
    assert reply.json["description"] is None
    assert (reply.json["retry"]["max_attempts"], reply.json["retry"]["backoff"]) == (2, "fixed")
    assert reply.json["schedule"] == HOURLY["schedule"]


async def test_a_deleted_job_says_so_and_is_gone_by_name_but_not_by_id(api: Caller) -> None:
    job = await api.create()
    reply = await api.call("DELETE", "/v1/jobs/name:hourly")
    assert (reply.status, reply.json) == (200, {"deleted": True})
    assert (await api.call("DELETE", "/v1/jobs/name:hourly")).status == 404
    assert (await api.get(f"/v1/jobs/{job['id']}")).json["state"] == "deleted"
    assert (await api.call("PUT", f"/v1/jobs/{job['id']}", HOURLY)).status == 404
    assert (await api.create())["id"] != job["id"]


async def test_a_paused_job_tells_why_and_until_when_and_resumes(rig: Rig) -> None:
    await rig.caller.create()
    until = rig.clock.now() + timedelta(days=1)
    paused = await rig.caller.post(
        "/v1/jobs/name:hourly/pause", {"note": "holiday", "until": until.isoformat()}
    )
    assert paused.status == 200
    assert paused.json["state"] == "paused"
    assert paused.json["next_fire_at"] is None
    assert paused.json["pause"]["note"] == "holiday"
    assert moment(paused.json["pause"]["until"]) == until
    upcoming = await rig.caller.get("/v1/jobs/name:hourly/upcoming")
    assert {each["note"] for each in upcoming.json["items"]} == {"paused"}
    resumed = await rig.caller.post("/v1/jobs/name:hourly/resume", {"fire_missed": "none"})
    assert resumed.status == 200
    assert resumed.json["state"] == "active"
    assert resumed.json["pause"] is None
    assert resumed.json["next_fire_at"] is not None
    again = await rig.caller.post("/v1/jobs/name:hourly/resume")
    assert (again.status, again.json["type"]) == (409, "urn:cronwell:illegal-state")


async def test_pausing_takes_an_empty_body_and_an_empty_object(api: Caller) -> None:
    await api.create()
    assert (await api.post("/v1/jobs/name:hourly/pause")).status == 200
    assert (await api.post("/v1/jobs/name:hourly/pause", {})).status == 200


async def test_a_pause_until_the_past_is_refused(api: Caller) -> None:
    await api.create()
    reply = await api.post("/v1/jobs/name:hourly/pause", {"until": "2020-01-01T00:00:00Z"})
    assert (reply.status, reply.fields) == (422, ["until"])
    assert (await api.get("/v1/jobs/name:hourly")).json["state"] == "active"


async def test_a_trigger_makes_an_execution_with_its_own_payload(api: Caller) -> None:
    job = await api.create(payload={"from": "job"})
    reply = await api.post("/v1/jobs/name:hourly/trigger", {"payload": {"from": "trigger"}})
    assert reply.status == 201
    assert (reply.json["kind"], reply.json["state"], reply.json["job_id"]) == ("manual", "pending", job["id"])
    shown = (await api.get(reply.headers["Location"])).json
    assert shown["id"] == reply.json["id"]
    assert shown["payload"] == {"from": "trigger"}


async def test_a_trigger_respects_overlap_unless_told_otherwise(api: Caller) -> None:
    await api.create()
    first = await api.post("/v1/jobs/name:hourly/trigger")
    refused = await api.post("/v1/jobs/name:hourly/trigger")
    assert refused.status == 409
    assert first.json["id"] in refused.json["detail"]
    assert (await api.post("/v1/jobs/name:hourly/trigger", {"overlap": "allow"})).status == 201


async def test_a_null_payload_of_a_trigger_is_not_the_job_s_own(api: Caller) -> None:
    await api.create(payload=1, overlap="allow")
    given = await api.post("/v1/jobs/name:hourly/trigger", {"payload": None})
    left_out = await api.post("/v1/jobs/name:hourly/trigger", {})
    assert (given.status, left_out.status) == (201, 201)


async def test_the_status_tells_the_latest_run_and_the_next(rig: Rig) -> None:
    job = await rig.caller.create()
    before = (await rig.caller.get(f"/v1/jobs/{job['id']}/status")).json
    assert (before["status"], before["last_run"], before["retry_count"]) == (None, None, 0)
    assert before["next_run"] == job["next_fire_at"]
    triggered = (await rig.caller.post(f"/v1/jobs/{job['id']}/trigger")).json
    worker = await rig.register()
    await rig.end(await rig.claim(worker), State.SUCCEEDED)
    after = (await rig.caller.get(f"/v1/jobs/{job['id']}/status")).json
    assert after["status"] == "succeeded"
    assert after["last_execution"]["id"] == triggered["id"]
    assert after["last_run"] is not None


async def test_upcoming_slots_come_with_their_zone_and_their_number(api: Caller) -> None:
    await api.create(schedule={"cron": "30 3 * * *", "timezone": "Asia/Kolkata"})
    reply = (await api.get("/v1/jobs/name:hourly/upcoming?count=3")).json
    assert reply["timezone"] == "Asia/Kolkata"
    assert [each["local"][10:] for each in reply["items"]] == ["T03:30:00+05:30"] * 3
    assert [each["slot"][10:] for each in reply["items"]] == ["T22:00:00Z"] * 3
    assert len((await api.get("/v1/jobs/name:hourly/upcoming")).json["items"]) == 10


async def test_history_is_another_name_of_a_job_s_executions_newest_first(rig: Rig) -> None:
    await rig.caller.create(overlap="allow")
    other = await rig.caller.create(name="other")
    made = [(await rig.caller.post("/v1/jobs/name:hourly/trigger")).json["id"] for _ in range(3)]
    await rig.caller.post(f"/v1/jobs/{other['id']}/trigger")
    for path in ("executions", "history"):
        reply = await rig.caller.get(f"/v1/jobs/name:hourly/{path}?to=2099-01-01T00:00:00Z")
        manual = [each["id"] for each in reply.json["items"] if each["kind"] == "manual"]
        assert manual == made[::-1]
    assert (await rig.caller.get("/v1/jobs/name:hourly/history?state=failed")).json["items"] == []


async def test_a_job_is_shown_with_its_latest_executions(api: Caller) -> None:
    await api.create(overlap="allow")
    made = [(await api.post("/v1/jobs/name:hourly/trigger")).json["id"] for _ in range(6)]
    latest = (await api.get("/v1/jobs/name:hourly")).json["latest_executions"]
    assert [each["id"] for each in latest] == made[:0:-1]
