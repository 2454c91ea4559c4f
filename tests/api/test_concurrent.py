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
