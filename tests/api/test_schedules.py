"""Schedules tried out over HTTP; nothing is stored."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.api.rig import Rig


async def test_a_preview_shows_slots_in_utc_and_in_their_zone_over_a_change_of_clocks(rig: Rig) -> None:
    reply = await rig.caller.post(
        "/v1/schedules/preview",
        {"schedule": "30 2 * * *", "timezone": "Europe/Berlin", "after": "2027-03-27T00:00:00Z", "count": 3},
    )
    assert reply.status == 200
    shown = reply.json
    assert [(each["slot"], each["local"]) for each in shown["slots"]] == [
        ("2027-03-27T01:30:00Z", "2027-03-27T02:30:00+01:00"),
        ("2027-03-28T01:00:00Z", "2027-03-28T03:00:00+02:00"),
        ("2027-03-29T00:30:00Z", "2027-03-29T02:30:00+02:00"),
    ]
    assert [each["effective_at"] for each in shown["slots"]] == [each["slot"] for each in shown["slots"]]
    assert "forward" in shown["slots"][1]["note"]
    assert shown["description"]
    assert shown["warnings"]
    assert (await rig.caller.get("/v1/jobs")).json["items"] == []


async def test_a_preview_starts_now_and_shows_ten_slots_unless_told_otherwise(rig: Rig) -> None:
    shown = (await rig.caller.post("/v1/schedules/preview", {"schedule": "every 15m"})).json["slots"]
    slots = [datetime.fromisoformat(each["slot"]) for each in shown]
    assert len(slots) == 10
    assert timedelta(minutes=14) < slots[0] - rig.clock.now() <= timedelta(minutes=15)
    assert slots[-1] - slots[0] == timedelta(minutes=15) * 9


async def test_a_preview_may_be_as_long_as_a_thousand_slots(rig: Rig) -> None:
    reply = await rig.caller.post("/v1/schedules/preview", {"schedule": "* * * * * *", "count": 1000})
    assert len(reply.json["slots"]) == 1000


async def test_a_window_moves_the_start_and_not_the_slot(rig: Rig) -> None:
    body = {"schedule": {"cron": "0 3 * * *", "window": "1h"}, "count": 1}
    [shown] = (await rig.caller.post("/v1/schedules/preview", body)).json["slots"]
    late = datetime.fromisoformat(shown["effective_at"]) - datetime.fromisoformat(shown["slot"])
    assert timedelta() <= late < timedelta(hours=1)
