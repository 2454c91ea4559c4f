"""Claiming by tenant: so many of each, and who has something waiting."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from uuid import UUID

from cronwell.store.port import Claimed
from tests.contract.desk import MINUTE, NOON, OTHER_TENANT, SECOND, TENANT, Desk


async def claim_shares(
    desk: Desk, shares: dict[int, int], worker: UUID | None = None, *, ready_by: datetime = NOON
) -> list[Claimed]:
    return await desk.store.claim_shares(
        worker or await desk.worker(), "default", 1, ready_by=ready_by, shares=shares, now=NOON
    )


async def test_each_tenant_gives_its_number_in_the_order_of_time(desk: Desk) -> None:
    mine, theirs = await desk.job(), await desk.job(tenant_id=OTHER_TENANT)
    await desk.staged(mine, *(NOON - n * SECOND for n in range(10)))
    await desk.staged(theirs, *(NOON - n * SECOND for n in range(3)))
    claims = await claim_shares(desk, {TENANT: 4, OTHER_TENANT: 5})
    assert Counter(claim.tenant_id for claim in claims) == {TENANT: 4, OTHER_TENANT: 3}
    assert {claim.key.slot for claim in claims if claim.tenant_id == TENANT} == {
        NOON - n * SECOND for n in range(6, 10)
    }
    assert all(claim.fence == 1 for claim in claims)
    rest = await claim_shares(desk, {TENANT: 100, OTHER_TENANT: 100})
    assert Counter(claim.tenant_id for claim in rest) == {TENANT: 6}


async def test_who_is_not_asked_for_gives_nothing(desk: Desk) -> None:
    await desk.staged(await desk.job(), NOON)
    assert await claim_shares(desk, {OTHER_TENANT: 5}) == []
    assert await claim_shares(desk, {}) == []


async def test_shares_are_claimed_by_the_living_only(desk: Desk) -> None:
    await desk.staged(await desk.job(), NOON)
    dead = await desk.worker(lease_until=NOON - SECOND)
    assert await claim_shares(desk, {TENANT: 5}, dead) == []
    assert len(await claim_shares(desk, {TENANT: 5})) == 1


async def test_a_limit_of_a_job_holds_also_by_shares(desk: Desk) -> None:
    job = await desk.job()
    await desk.staged(job, NOON - SECOND, NOON, running_limit=1)
    assert [claim.key.slot for claim in await claim_shares(desk, {TENANT: 5})] == [NOON - SECOND]
    assert await claim_shares(desk, {TENANT: 5}) == []


async def test_many_who_claim_shares_at_once_never_share_an_execution(desk: Desk) -> None:
    for tenant in (TENANT, OTHER_TENANT):
        await desk.staged(await desk.job(tenant_id=tenant), *(NOON - n * SECOND for n in range(100)))
    workers = [await desk.worker() for _ in range(10)]

    async def work(worker: UUID) -> list[Claimed]:
        mine: list[Claimed] = []
        while claims := await claim_shares(desk, {TENANT: 4, OTHER_TENANT: 3}, worker):
            mine += claims
        return mine

    found = [claim for each in await asyncio.gather(*map(work, workers)) for claim in each]
    assert len({(claim.tenant_id, claim.key) for claim in found}) == len(found) == 200


async def test_the_tenants_that_wait_are_those_with_something_ready(desk: Desk) -> None:
    store = desk.store
    assert await store.waiting_tenants("default", 1, NOON) == {}
    await desk.staged(await desk.job(), NOON - SECOND, NOON)
    await desk.staged(await desk.job(tenant_id=OTHER_TENANT), NOON + MINUTE)
    assert await store.waiting_tenants("default", 1, NOON) == {TENANT: 1.0}
    assert await store.waiting_tenants("default", 1, NOON + MINUTE) == {TENANT: 1.0, OTHER_TENANT: 1.0}
    assert await store.waiting_tenants("default", 0, NOON + MINUTE) == {}
    assert await store.waiting_tenants("gpu", 1, NOON + MINUTE) == {}
    await desk.claim()
    assert await store.waiting_tenants("default", 1, NOON) == {}
