"""Many requests at once: one key makes one job, one revision is changed once, and nobody waits for himself."""

from __future__ import annotations

import asyncio

from tests.api.rig import HOURLY, Caller


async def test_twenty_requests_with_one_key_make_one_job_and_get_one_answer(api: Caller) -> None:
    replies = await asyncio.gather(
        *(api.post("/v1/jobs", HOURLY, Idempotency_Key="create-hourly") for _ in range(20))
    )
    assert {reply.status for reply in replies} == {201}
    assert len({reply.body for reply in replies}) == 1
    assert sum(reply.headers.get("Idempotency-Replayed") == "true" for reply in replies) == 19
    assert len((await api.get("/v1/jobs")).json["items"]) == 1


async def test_twenty_triggers_at_once_are_answered_one_runs_and_the_others_overlap(api: Caller) -> None:
    job = await api.create()
    replies = await asyncio.gather(*(api.post(f"/v1/jobs/{job['id']}/trigger") for _ in range(20)))
    assert sorted(reply.status for reply in replies) == [201] + [409] * 19


async def test_of_twenty_changes_to_one_revision_one_is_made(api: Caller) -> None:
    await api.create()
    replies = await asyncio.gather(
        *(
            api.call(
                "PATCH", "/v1/jobs/name:hourly", {"description": f"change {n}"}, headers={"If-Match": '"1"'}
            )
            for n in range(20)
        )
    )
    assert sorted(reply.status for reply in replies) == [200] + [412] * 19
    [made] = [reply.json for reply in replies if reply.status == 200]
    found = (await api.get("/v1/jobs/name:hourly")).json
    assert (found["revision"], found["description"]) == (2, made["description"])


async def test_twenty_changes_without_a_revision_are_all_made(api: Caller) -> None:
    await api.create()
    replies = await asyncio.gather(
        *(api.call("PATCH", "/v1/jobs/name:hourly", {"tags": {f"t{n}": "x"}}) for n in range(20))
    )
    assert {reply.status for reply in replies} == {200}
    found = (await api.get("/v1/jobs/name:hourly")).json
    assert (found["revision"], len(found["tags"])) == (21, 20)


async def test_of_twenty_jobs_with_one_name_one_is_made(api: Caller) -> None:
    replies = await asyncio.gather(*(api.post("/v1/jobs", HOURLY) for _ in range(20)))
    assert sorted(reply.status for reply in replies) == [201] + [409] * 19


async def test_twenty_triggers_with_one_key_make_one_execution(api: Caller) -> None:
    await api.create()
    replies = await asyncio.gather(
        *(api.post("/v1/jobs/name:hourly/trigger", Idempotency_Key="run") for _ in range(20))
    )
    assert {reply.status for reply in replies} == {201}
    assert len({reply.json["id"] for reply in replies}) == 1


async def test_orders_that_cross_each_other_are_each_answered(api: Caller) -> None:
    """Whatever comes first, no order ends in an error of ours and the job ends in a state that it can be in."""
    await api.create(overlap="allow")
    path = "/v1/jobs/name:hourly"
    replies = await asyncio.gather(
        *(
            call
            for n in range(5)
            for call in (
                api.post(f"{path}/pause"),
                api.post(f"{path}/resume"),
                api.post(f"{path}/trigger"),
                api.call("PATCH", path, {"schedule": f"{n} * * * * *"}),
                api.get(f"{path}/status"),
            )
        ),
        api.call("DELETE", path),
    )
    assert {reply.status for reply in replies} <= {200, 201, 404, 409}
    assert (await api.get(path)).status == 404
