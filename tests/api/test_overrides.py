"""Overrides over HTTP: decided, listed, removed; and what is wrong is refused with what to write instead."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.api.rig import Reply, Rig

SKIP = {"action": "skip", "note": "books are closed", "author": "ana"}


def _at(rig: Rig, *, days: int = 1) -> datetime:
    """Three o'clock in some days: a slot of the jobs here, which run at three."""
    today = rig.clock.now().astimezone(UTC).replace(hour=3, minute=0, second=0, microsecond=0)
    return today + timedelta(days=days)


def _text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


async def _job(rig: Rig, **fields: object) -> str:
    made = await rig.caller.create(name="nightly", **{"schedule": "0 3 * * *", **fields})
    return f"/v1/jobs/{made['id']}"


async def _put(rig: Rig, job: str, slot: datetime | str, body: object = SKIP) -> Reply:
    text = slot if isinstance(slot, str) else _text(slot)
    return await rig.caller.call("PUT", f"{job}/overrides/{text}", body)


async def test_a_decision_is_answered_listed_and_seen_in_what_is_coming(rig: Rig) -> None:
    job = await _job(rig)
    slot = _at(rig, days=3)
    reply = await _put(rig, job, slot)
    assert reply.status == 200, reply.body
    expected = {
        "slot": _text(slot),
        "local": slot.isoformat(),
        "action": "skip",
        "to": None,
        "payload": None,
        "note": "books are closed",
        "author": "ana",
        "expires_at": None,
        "applied_at": None,
        "state": "waiting",
    }
    shown = reply.json
    assert shown.pop("created_at")
    assert shown == expected
    [listed] = (await rig.caller.get(f"{job}/overrides")).json["items"]
    assert listed["slot"] == _text(slot)
    items = (await rig.caller.get(f"{job}/upcoming?count=5")).json["items"]
    marks = {each["slot"]: each["override"] for each in items if each["override"] is not None}
    assert marks == {_text(slot): {"action": "skip", "to": None, "note": "books are closed", "author": "ana"}}
    told = (await rig.caller.get(f"{job}/explain?at={_text(slot)}")).json
    assert (told["verdict"], told["reason"]) == ("skipped", "override")
    assert told["sentence"] == "The slot will be skipped: an override by ana skips it (books are closed)."


async def test_a_decision_is_replaced_whole_and_removed(rig: Rig) -> None:
    job = await _job(rig)
    slot = _at(rig, days=2)
    await _put(rig, job, slot)
    to = slot + timedelta(hours=2)
    body = {"action": "move", "to": _text(to), "payload": {"n": 1}, "expires_at": _text(slot)}
    moved = (await _put(rig, job, slot, body)).json
    assert (moved["action"], moved["to"], moved["payload"]) == ("move", _text(to), {"n": 1})
    assert (moved["note"], moved["author"], moved["expires_at"]) == (None, None, _text(slot))
    path = f"{job}/overrides/{_text(slot)}"
    removed = await rig.caller.call("DELETE", path)
    assert (removed.status, removed.json) == (200, {"deleted": True})
    assert (await rig.caller.call("DELETE", path)).status == 404
    assert (await rig.caller.get(f"{job}/overrides")).json == {"items": [], "next_cursor": None}


async def test_a_slot_may_be_named_by_the_wall_clock_of_its_schedule(rig: Rig) -> None:
    job = await _job(rig, schedule={"cron": "0 3 * * *", "timezone": "Asia/Kathmandu"})
    day = (rig.clock.now() + timedelta(days=40)).date()
    reply = await _put(rig, job, f"{day}T03:00", {"action": "move", "to": f"{day}T04:30"})
    assert reply.status == 200, reply.body
    assert reply.json["local"] == f"{day}T03:00:00+05:45"
    assert reply.json["to"] == f"{day - timedelta(days=1)}T22:45:00Z"
    assert (await rig.caller.call("DELETE", f"{job}/overrides/{day}T03:00:00+05:45")).status == 200


async def test_a_list_is_paged_from_the_latest_slot_back(rig: Rig) -> None:
    job = await _job(rig)
    slots = [_at(rig, days=days) for days in (5, 4, 3, 2)]
    for slot in slots:
        await _put(rig, job, slot)
    found: list[str] = []
    cursor = ""
    while True:
        page = (await rig.caller.get(f"{job}/overrides?limit=3{cursor}")).json
        found += [each["slot"] for each in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == [_text(slot) for slot in slots]
    assert (await rig.caller.get(f"{job}/overrides?cursor=nonsense")).fields == ["cursor"]
    assert (await rig.caller.get(f"{job}/overrides?limit=100000")).fields == ["limit"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "action"),
        ({"action": "postpone"}, "action"),
        ({"action": "move"}, "to"),
        ({"action": "move", "to": None}, "to"),
        ({"action": "move", "to": "soon"}, "to"),
        ({"action": "move", "to": "2001-01-01T00:00:00Z"}, "to"),
        ({"action": "move", "to": "2099-01-01T00:00:00Z"}, "to"),
        ({"action": "move", "to": 7}, "to"),
        ({"action": "skip", "to": "2099-01-01T00:00:00Z"}, "to"),
        ({"action": "payload", "to": "2099-01-01T00:00:00Z", "payload": 1}, "to"),
        ({"action": "payload"}, "payload"),
        ({"action": "skip", "payload": None}, "payload"),
        ({"action": "skip", "note": "n" * 2001}, "note"),
        ({"action": "skip", "note": "nul\0"}, "note"),
        ({"action": "skip", "author": "a" * 201}, "author"),
        ({"action": "skip", "author": 7}, "author"),
        ({"action": "skip", "expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"action": "skip", "expires_at": "tomorrow"}, "expires_at"),
        ({"action": "skip", "untill": "x"}, "untill"),
    ],
)
async def test_a_wrong_decision_names_the_field_and_is_not_kept(rig: Rig, body: Any, field: str) -> None:
    job = await _job(rig)
    reply = await _put(rig, job, _at(rig), body)
    assert reply.status == 422, reply.body
    assert [each.split(".")[0] for each in reply.fields] == [field]
    assert (await rig.caller.get(f"{job}/overrides")).json["items"] == []


@pytest.mark.parametrize(
    "slot", ["soon", "2099-13-01T00:00:00Z", "2027-05-05", "9999-12-31T23:59:59Z", "%00"]
)
async def test_what_is_no_time_is_no_slot(rig: Rig, slot: str) -> None:
    job = await _job(rig)
    for reply in (await _put(rig, job, slot), await rig.caller.call("DELETE", f"{job}/overrides/{slot}")):
        assert reply.status in (400, 422), reply.body


async def test_what_is_no_slot_is_answered_with_the_nearest(rig: Rig) -> None:
    job = await _job(rig)
    slot = _at(rig, days=4) + timedelta(minutes=1)
    reply = await _put(rig, job, slot)
    assert (reply.status, reply.fields) == (422, ["slot"])
    accepted = reply.json["errors"][0]["accepted"]
    assert _text(_at(rig, days=4)) in accepted
    assert _text(_at(rig, days=5)) in accepted


async def test_a_payload_beyond_the_limit_is_refused(rig: Rig) -> None:
    job = await _job(rig)
    large = "x" * (rig.settings.limits.payload + 1)
    reply = await _put(rig, job, _at(rig), {"action": "payload", "payload": large})
    assert reply.status == 413
    assert (await rig.caller.get(f"{job}/overrides")).json["items"] == []


async def test_a_job_that_is_not_there_has_no_overrides(rig: Rig) -> None:
    for reply in (
        await rig.caller.get("/v1/jobs/name:none/overrides"),
        await _put(rig, "/v1/jobs/name:none", _at(rig)),
        await rig.caller.call("DELETE", f"/v1/jobs/name:none/overrides/{_text(_at(rig))}"),
    ):
        assert reply.status == 404


async def test_what_a_worker_has_is_refused_and_says_so(rig: Rig) -> None:
    made = await rig.caller.create(schedule="in 20s")
    slot = made["next_fire_at"]
    worker = await rig.register()
    [claimed] = await rig.claim(worker, at=datetime.fromisoformat(slot))
    reply = await _put(rig, f"/v1/jobs/{made['id']}", slot)
    assert reply.status == 409
    assert "a worker has it already" in reply.json["detail"]
    assert str(claimed.key) in reply.json["detail"]


async def test_many_at_once_leave_one_decision_that_holds(rig: Rig) -> None:
    made = await rig.caller.create(schedule="in 40s")
    slot = datetime.fromisoformat(made["next_fire_at"])
    job = f"/v1/jobs/{made['id']}"
    moves = [{"action": "move", "to": _text(slot + timedelta(seconds=n)), "note": str(n)} for n in range(10)]
    replies = await asyncio.gather(*(_put(rig, job, _text(slot), body) for body in moves))
    assert {reply.status for reply in replies} == {200}
    [kept] = (await rig.caller.get(f"{job}/overrides")).json["items"]
    [row] = (await rig.caller.get(f"{job}/executions?state=pending")).json["items"]
    assert row["ready_at"] == kept["to"]
    detail = (await rig.caller.get(f"/v1/executions/{row['id']}")).json
    assert detail["override"]["note"] == kept["note"]
    assert detail["reason"] == "moved"
