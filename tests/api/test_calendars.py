"""Calendars over HTTP."""

from __future__ import annotations

import pytest

from tests.api.rig import Caller

GERMAN = {"holidays": [{"country": "DE", "region": "BY"}], "description": "Bavaria"}


async def test_a_calendar_is_made_shown_listed_changed_and_deleted(api: Caller) -> None:
    made = await api.call("PUT", "/v1/calendars/bavaria", GERMAN)
    assert (made.status, made.json["revision"], made.headers["ETag"]) == (201, 1, '"1"')
    assert made.json["content"] == GERMAN
    changed = await api.call(
        "PUT", "/v1/calendars/bavaria", {"dates": ["2026-12-24"]}, headers={"If-Match": '"1"'}
    )
    assert (changed.status, changed.json["revision"]) == (200, 2)
    stale = await api.call("PUT", "/v1/calendars/bavaria", GERMAN, headers={"If-Match": '"1"'})
    assert stale.status == 412
    shown = await api.get("/v1/calendars/bavaria?timezone=Europe/Berlin")
    assert (shown.status, shown.json["jobs"], shown.json["timezone"]) == (200, 0, "Europe/Berlin")
    listed = await api.get("/v1/calendars?limit=1")
    assert [each["name"] for each in listed.json["items"]] == ["bavaria"]
    assert (await api.call("DELETE", "/v1/calendars/bavaria")).json == {"deleted": True}
    assert (await api.call("DELETE", "/v1/calendars/bavaria")).status == 404


async def test_a_change_of_a_calendar_that_is_not_there_is_refused(api: Caller) -> None:
    reply = await api.call("PUT", "/v1/calendars/nobody", GERMAN, headers={"If-Match": '"1"'})
    assert reply.status == 412
    assert (await api.get("/v1/calendars/nobody")).status == 404


async def test_a_followed_calendar_is_not_deleted_and_previews_know_it(api: Caller) -> None:
    await api.call("PUT", "/v1/calendars/bavaria", GERMAN)
    schedule = {"cron": "0 9 25 12 *", "timezone": "Europe/Berlin", "exclude": "bavaria"}
    preview = await api.post("/v1/schedules/preview", {"schedule": schedule, "count": 3})
    assert preview.status == 422
    assert "never fires" in preview.json["errors"][0]["message"]
    await api.create(schedule={**schedule, "cron": "0 9 24,25 12 *"})
    assert (await api.call("DELETE", "/v1/calendars/bavaria")).status == 409


@pytest.mark.parametrize(
    ("name", "body", "status", "field"),
    [
        ("x", {"holidays": [{"country": "XX"}]}, 422, "calendar.holidays.0.country"),
        ("x", {"datse": []}, 422, "calendar.datse"),
        ("x", {}, 422, "calendar"),
        ("x", {"dates": ["2026-13-01"]}, 422, "calendar.dates.0"),
        ("x", {"rrules": ["FREQ=NEVER"]}, 422, "calendar.rrules.0"),
        ("x", {"dates": ["2026-12-24"] * 1001}, 422, "calendar.dates"),
        ("..%2F..%2Fetc", {"dates": ["2026-12-24"]}, 422, "name"),
    ],
)
async def test_a_calendar_that_is_none_is_refused_and_nothing_is_kept(
    api: Caller, name: str, body: object, status: int, field: str
) -> None:
    reply = await api.call("PUT", f"/v1/calendars/{name}", body)
    assert reply.status == status, reply.body
    assert [each["field"] for each in reply.json["errors"]] == [field]
    assert (await api.get("/v1/calendars")).json["items"] == []


async def test_explain_answers_over_http_and_refuses_what_is_no_time(api: Caller) -> None:
    job = await api.create(schedule="@hourly")
    reply = await api.get(f"/v1/jobs/{job['id']}/explain?at=2099-01-01T00:00:00Z")
    assert (reply.status, reply.json["verdict"]) == (200, "planned"), reply.body
    between = await api.get("/v1/jobs/name:hourly/explain?at=2099-01-01T00:30:00Z")
    assert (between.json["verdict"], between.json["next_slot"]) == ("not_a_slot", "2099-01-01T01:00:00Z")
    wrong = await api.get(f"/v1/jobs/{job['id']}/explain?at=soon")
    assert (wrong.status, wrong.json["errors"][0]["field"]) == (422, "at")
    assert (await api.get("/v1/jobs/name:nobody/explain?at=2099-01-01T00:30:00Z")).status == 404
