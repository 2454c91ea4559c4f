"""Lists page by page: each item that stays is seen once, whatever comes and goes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from cronwell.config import Settings
from cronwell.runtime.clock import ManualClock
from cronwell.runtime.postgres import Database
from tests.api.rig import Caller, serving


async def pages(api: Caller, path: str, limit: int) -> AsyncIterator[list[dict[str, Any]]]:
    cursor = None
    while True:
        following = "" if cursor is None else f"&cursor={cursor}"
        reply = await api.get(f"{path}limit={limit}{following}")
        assert reply.status == 200, reply.body
        yield reply.json["items"]
        cursor = reply.json["next_cursor"]
        if cursor is None:
            return


async def test_jobs_are_all_seen_once_in_order_and_the_last_page_has_no_cursor(api: Caller) -> None:
    names = [f"job-{n:02d}" for n in range(10)]
    for name in names:
        await api.create(name=name)
    for limit in (1, 3, 5, 10, 11):
        seen = [[each["name"] for each in page] async for page in pages(api, "/v1/jobs?", limit)]
        assert [name for page in seen for name in page] == names
        assert all(len(page) == limit for page in seen[:-1])
        assert 0 < len(seen[-1]) <= limit


async def test_jobs_that_come_and_go_between_pages_move_no_other(api: Caller) -> None:
    kept = [f"kept-{n:02d}" for n in range(20)]
    gone = [f"gone-{n:02d}" for n in range(20)]
    await asyncio.gather(*(api.create(name=name) for name in kept + gone))
    seen: list[str] = []
    made = 0
    async for page in pages(api, "/v1/jobs?", 3):
        seen += [each["name"] for each in page]
        if gone:
            await api.call("DELETE", f"/v1/jobs/name:{gone.pop()}")
        await asyncio.gather(*(api.create(name=f"{prefix}-new-{made}") for prefix in ("a", "kept", "z")))
        made += 1
        if made > 30:
            break
    assert [name for name in seen if name in kept] == kept
    assert len(seen) == len(set(seen))


async def test_a_page_goes_on_behind_a_job_that_was_deleted_or_renamed(api: Caller) -> None:
    for name in ("a", "b", "c", "d"):
        await api.create(name=name)
    first = (await api.get("/v1/jobs?limit=2")).json
    await api.call("DELETE", "/v1/jobs/name:b")
    second = (await api.get(f"/v1/jobs?limit=2&cursor={first['next_cursor']}")).json
    assert [each["name"] for each in second["items"]] == ["c", "d"]


async def test_deleted_jobs_of_one_name_are_all_seen(api: Caller) -> None:
    made = []
    for _ in range(5):
        made.append((await api.create())["id"])
        await api.call("DELETE", "/v1/jobs/name:hourly")
    seen = [each["id"] async for page in pages(api, "/v1/jobs?state=deleted&", 2) for each in page]
    assert sorted(seen) == sorted(made)


async def test_executions_that_come_between_pages_move_no_other(api: Caller) -> None:
    await api.create(schedule=None, overlap="allow")

    async def trigger() -> str:
        made: str = (await api.post("/v1/jobs/name:hourly/trigger")).json["id"]
        return made

    made = await asyncio.gather(*(trigger() for _ in range(20)))
    for path in ("/v1/executions?", "/v1/jobs/name:hourly/history?"):
        seen: list[str] = []
        async for page in pages(api, path, 4):
            seen += [each["id"] for each in page]
            await trigger()
        assert [each for each in seen if each in made] == sorted(
            made, key=lambda each: each[-23:], reverse=True
        )
        assert len(seen) == len(set(seen))


async def test_executions_of_many_jobs_in_one_instant_are_all_seen(
    api_database: Database, api_url: str
) -> None:
    """The slot alone does not tell them apart."""
    async with serving(api_database, api_url, ManualClock(), Settings()) as rig:
        for n in range(9):
            await rig.caller.create(name=f"job-{n}", schedule=None)
            await rig.caller.post(f"/v1/jobs/name:job-{n}/trigger")
        [once, twice, whole] = [
            [each async for page in pages(rig.caller, "/v1/executions?", limit) for each in page]
            for limit in (1, 2, 50)
        ]
    assert once == twice == whole
    assert len({each["id"] for each in once}) == 9
    assert len({each["slot"] for each in once}) == 1
