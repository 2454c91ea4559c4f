"""Executions over HTTP: searched, shown, cancelled, retried; dead letters listed, redriven, dismissed."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID, uuid4

import pytest

from cronwell.model.execution import State
from tests.api.rig import Caller, Rig


async def ids(api: Caller, query: str, path: str = "/v1/executions") -> list[str]:
    reply = await api.get(f"{path}?{query}")
    assert reply.status == 200, reply.body
    return [each["id"] for each in reply.json["items"]]


async def test_executions_are_searched_by_each_filter(rig: Rig) -> None:
    api = rig.caller
    await api.create(name="one", overlap="allow", schedule=None)
    await api.create(name="two", overlap="allow", schedule=None)
    first = (await api.post("/v1/jobs/name:one/trigger")).json
    second = (await api.post("/v1/jobs/name:two/trigger")).json
    worker = await rig.register()
    claims = {str(each.key): each for each in await rig.claim(worker)}
    await rig.end([claims[first["id"]]], State.SUCCEEDED)
    await rig.end([claims[second["id"]]], State.FAILED, error="50% of_it broke")
    third = (await api.post("/v1/jobs/name:one/trigger")).json

    assert await ids(api, "") == [third["id"], second["id"], first["id"]]
    assert await ids(api, "job=name:one") == [third["id"], first["id"]]
    assert await ids(api, f"job={second['job_id']}") == [second["id"]]
    assert await ids(api, "state=succeeded,failed") == [second["id"], first["id"]]
    assert await ids(api, "state=pending&state=failed") == [third["id"], second["id"]]
    assert await ids(api, f"from={second['slot']}") == [third["id"], second["id"]]
    assert await ids(api, f"to={second['slot']}") == [first["id"]]
    assert await ids(api, f"worker={worker}") == [second["id"], first["id"]]
    assert await ids(api, f"worker={uuid4()}") == []
    assert await ids(api, "q=some%20output") == [first["id"]]
    assert await ids(api, "q=50%25") == [second["id"]]
    assert await ids(api, "q=%25") == [second["id"]]
    assert await ids(api, "q=OF_IT") == [second["id"]]
    assert await ids(api, "kind=manual&limit=1") == [third["id"]]
    assert await ids(api, "kind=scheduled") == []


async def test_an_execution_shows_its_attempts_timeline_and_output(rig: Rig) -> None:
    await rig.caller.create(schedule=None)
    made = (await rig.caller.post("/v1/jobs/name:hourly/trigger")).json
    worker = await rig.register()
    await rig.end(await rig.claim(worker), State.SUCCEEDED)
    shown = (await rig.caller.get(f"/v1/executions/{made['id']}")).json
    assert shown["state"] == "succeeded"
    assert shown["output"] == "some output"
    assert [each["result"] for each in shown["attempts"]] == ["succeeded"]
    assert [each["event"] for each in shown["timeline"]][-1] == "succeeded (triggered)"
    assert UUID(shown["worker"]) == worker
    assert shown["lateness_ms"] >= 0


@pytest.mark.parametrize(
    "name",
    [
        "nonsense",
        f"{UUID(int=7).hex}-m-20260101T000000Z",
        f"{UUID(int=7).hex}-m-20269901T000000Z",
        "%E2%82",
        "a%2Fb",
    ],
)
async def test_an_execution_that_is_not_there_is_not_found(api: Caller, name: str) -> None:
    assert (await api.get(f"/v1/executions/{name}")).status == 404
    assert (await api.post(f"/v1/executions/{name}/cancel")).status == 404
    assert (await api.post(f"/v1/executions/{name}/retry")).status == 404
    assert (await api.post(f"/v1/dead-letters/{name}/dismiss")).status == 404


async def test_an_unknown_job_is_not_found_rather_than_searched(api: Caller) -> None:
    assert (await api.get("/v1/executions?job=name:nobody")).status == 404


async def test_what_has_not_started_is_cancelled_at_once_and_again(api: Caller) -> None:
    await api.create(schedule=None)
    made = (await api.post("/v1/jobs/name:hourly/trigger")).json
    for _ in range(2):
        reply = await api.post(f"/v1/executions/{made['id']}/cancel")
        assert (reply.status, reply.json["state"]) == (202, "cancelled")


async def test_what_runs_is_asked_to_stop(rig: Rig) -> None:
    await rig.caller.create(schedule=None)
    made = (await rig.caller.post("/v1/jobs/name:hourly/trigger")).json
    worker = await rig.register()
    assert len(await rig.claim(worker)) == 1
    reply = await rig.caller.post(f"/v1/executions/{made['id']}/cancel")
    assert (reply.status, reply.json["state"]) == (202, "running")
    assert reply.json["cancel_requested_at"] is not None
    assert len(await rig.store.cancels(worker)) == 1


async def test_what_has_ended_cannot_be_cancelled_or_retried(rig: Rig) -> None:
    await rig.caller.create(schedule=None)
    made = (await rig.caller.post("/v1/jobs/name:hourly/trigger")).json
    await rig.end(await rig.claim(await rig.register()), State.SUCCEEDED)
    for verb in ("cancel", "retry"):
        reply = await rig.caller.post(f"/v1/executions/{made['id']}/{verb}")
        assert (reply.status, "succeeded" in reply.json["detail"]) == (409, True)


async def test_a_dead_letter_is_listed_until_it_is_retried_or_dismissed(rig: Rig) -> None:
    one, two, three = [str(key) for key in await rig.bury(3)]
    assert sorted(await ids(rig.caller, "", "/v1/dead-letters")) == sorted([one, two, three])
    assert await ids(rig.caller, "q=nothing+like+this", "/v1/dead-letters") == []
    assert len(await ids(rig.caller, "q=answered&job=name:hourly", "/v1/dead-letters")) == 3
    retried = await rig.caller.post(f"/v1/executions/{one}/retry")
    assert (retried.status, retried.json["state"], retried.json["attempt"]) == (202, "pending", 0)
    dismissed = await rig.caller.post(f"/v1/dead-letters/{two}/dismiss")
    assert (dismissed.status, dismissed.json["reason"]) == (200, "dismissed")
    assert (await rig.caller.post(f"/v1/dead-letters/{two}/dismiss")).status == 409
    assert await ids(rig.caller, "", "/v1/dead-letters") == [three]


async def test_a_redrive_takes_all_that_match_at_its_rate(rig: Rig) -> None:
    await rig.bury(4)
    assert (await rig.caller.post("/v1/dead-letters/redrive", {"q": "nothing like this"})).json == {
        "count": 0
    }
    reply = await rig.caller.post("/v1/dead-letters/redrive", {"job": "name:hourly", "rate": 2, "limit": 3})
    assert (reply.status, reply.json) == (200, {"count": 3})
    shown = (await rig.caller.get("/v1/executions?state=pending&kind=manual")).json["items"]
    ready = sorted(datetime.fromisoformat(each["ready_at"]) for each in shown)
    assert [later - earlier for earlier, later in pairwise(ready)] == [timedelta(seconds=0.5)] * 2
    assert (await rig.caller.post("/v1/dead-letters/redrive")).json == {"count": 1}


async def test_a_redrive_by_text_takes_what_the_list_by_that_text_shows(rig: Rig) -> None:
    await rig.bury(2)
    for text, count in (("nowhere", 0), ("before it died", 2)):
        assert len(await ids(rig.caller, f"q={text.replace(' ', '+')}", "/v1/dead-letters")) == count
        assert (await rig.caller.post("/v1/dead-letters/redrive", {"q": text})).json == {"count": count}


async def test_a_redrive_by_id_takes_those_dead_letters_alone(rig: Rig) -> None:
    one, two, three = [str(key) for key in await rig.bury(3)]
    await rig.caller.post(f"/v1/dead-letters/{two}/dismiss")
    reply = await rig.caller.post("/v1/dead-letters/redrive", {"ids": [one, two]})
    assert reply.json == {"count": 1}
    assert await ids(rig.caller, "state=pending&kind=manual") == [one]
    assert await ids(rig.caller, "", "/v1/dead-letters") == [three]


async def test_a_redrive_within_a_time_range_leaves_the_rest(rig: Rig) -> None:
    keys = sorted(await rig.bury(3), key=lambda key: key.slot)
    reply = await rig.caller.post(
        "/v1/dead-letters/redrive", {"from": keys[1].slot.isoformat(), "to": keys[2].slot.isoformat()}
    )
    assert reply.json == {"count": 1}
    assert await ids(rig.caller, "state=pending&kind=manual") == [str(keys[1])]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"ids": []}, "ids"),
        ({"ids": ["nonsense"]}, "ids"),
        ({"ids": "x"}, "ids"),
        ({"rate": 0}, "rate"),
        ({"rate": "100"}, "rate"),
        ({"rate": True}, "rate"),
        ({"limit": 0}, "limit"),
        ({"limit": 100_001}, "limit"),
        ({"from": "yesterday"}, "from"),
        ({"to": 5}, "to"),
        ({"q": ""}, "q"),
        ({"job_id": "x"}, "job_id"),
    ],
)
async def test_a_redrive_that_is_not_understood_redrives_nothing(rig: Rig, body: object, field: str) -> None:
    await rig.bury(1)
    reply = await rig.caller.post("/v1/dead-letters/redrive", body)
    assert (reply.status, reply.fields[0].split(".")[0]) == (422, field)
    assert len(await ids(rig.caller, "", "/v1/dead-letters")) == 1
