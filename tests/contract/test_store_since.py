"""Claims that begin at a moment, and what is found before it."""

from __future__ import annotations

import asyncio
from datetime import datetime
from uuid import UUID

from cronwell.model.execution import ExecutionKey, State
from cronwell.store.port import EVER, Claimed, Found
from tests.contract.desk import DAY, HOUR, MINUTE, NOON, OTHER_TENANT, SECOND, TENANT, Desk

TIER = ("default", 1)


async def claim_since(
    desk: Desk, since: datetime, worker: UUID | None = None, *, limit: int = 100
) -> set[datetime]:
    claims = await desk.store.claim(
        worker or await desk.worker(), *TIER, ready_by=NOON, limit=limit, now=NOON, since=since
    )
    return {claim.key.slot for claim in claims}


async def startable(desk: Desk, before: datetime = NOON + SECOND, *, limit: int = 100) -> set[Found]:
    worker = await desk.worker()
    tiers = {TIER: before, ("default", 0): before}
    by_tier = await desk.store.startable(worker, tiers, ready_by=NOON, limit=limit, now=NOON)
    assert by_tier.keys() <= {TIER}
    found = by_tier.get(TIER, [])
    assert len(found) == len(set(found))
    return set(found)


async def claim_found(
    desk: Desk, keys: list[ExecutionKey], worker: UUID | None = None, *, pool: str = "default"
) -> list[Claimed]:
    found = [(TENANT, key) for key in keys]
    return await desk.store.claim_found(worker or await desk.worker(), pool, found, ready_by=NOON, now=NOON)


async def test_a_claim_takes_what_is_ready_at_its_beginning_and_nothing_before(desk: Desk) -> None:
    await desk.staged(await desk.job(), *(NOON - n * MINUTE for n in range(5)))
    assert await claim_since(desk, NOON - 2 * MINUTE) == {NOON - n * MINUTE for n in range(3)}
    assert await claim_since(desk, NOON - 2 * MINUTE) == set()
    assert await claim_since(desk, EVER) == {NOON - 3 * MINUTE, NOON - 4 * MINUTE}


async def test_a_claim_leaves_earlier_slots_than_it_looks_for(desk: Desk) -> None:
    slots = [NOON - n * DAY for n in range(4)]
    for tenant in (TENANT, OTHER_TENANT):
        for slot in slots:
            await desk.staged(await desk.job(tenant_id=tenant), slot, ready_at=NOON)
    store, worker, late = desk.store, await desk.worker(), NOON - HOUR
    for bound, expected in ((NOON - DAY, slots[:2]), (EVER, slots[2:])):
        assert await store.due_tiers({TIER: EVER}, NOON, bound) == {TIER}
        by_shares = await store.claim_shares(
            worker,
            *TIER,
            shares={OTHER_TENANT: 9},
            ready_by=NOON,
            now=NOON,
            since={OTHER_TENANT: late},
            slots_since=bound,
        )
        in_order = await store.claim(
            worker, *TIER, limit=9, ready_by=NOON, now=NOON, since=late, slots_since=bound
        )
        for claims in (by_shares, in_order):
            assert sorted((claim.key.slot for claim in claims), reverse=True) == expected
        assert await store.due_tiers({TIER: EVER}, NOON, bound) == set()


async def test_what_is_unfinished_since_days_is_in_the_way_of_slots_that_are_not(desk: Desk) -> None:
    job, worker = await desk.job(), await desk.worker()
    await desk.staged(job, NOON - 3 * DAY, running_limit=1)
    assert await claim_since(desk, EVER, worker) == {NOON - 3 * DAY}
    await desk.staged(job, NOON, running_limit=1)
    claims = await desk.store.claim(
        worker, *TIER, ready_by=NOON, limit=9, now=NOON, since=NOON - MINUTE, slots_since=NOON - DAY
    )
    assert claims == []


async def test_shares_begin_at_a_moment_of_each_tenant(desk: Desk) -> None:
    for tenant in (TENANT, OTHER_TENANT):
        await desk.staged(await desk.job(tenant_id=tenant), *(NOON - n * MINUTE for n in range(5)))
    claims = await desk.store.claim_shares(
        await desk.worker(),
        *TIER,
        ready_by=NOON,
        shares={TENANT: 9, OTHER_TENANT: 9},
        now=NOON,
        since={TENANT: NOON - MINUTE},
    )
    taken = sorted((claim.tenant_id, (NOON - claim.key.slot) // MINUTE) for claim in claims)
    assert taken == [(TENANT, 0), (TENANT, 1), *((OTHER_TENANT, n) for n in range(5))]


async def test_tiers_and_tenants_are_looked_for_from_a_moment_on(desk: Desk) -> None:
    await desk.staged(await desk.job(), NOON - MINUTE)
    store = desk.store
    for since, found in ((EVER, {TIER}), (NOON - MINUTE, {TIER}), (NOON - SECOND, set())):
        assert await store.due_tiers({TIER: since, ("gpu", 1): EVER, ("default", 0): EVER}, NOON) == found
        tenants = await store.waiting_tenants(*TIER, NOON, since)
        assert tenants == dict.fromkeys([TENANT] if found else [], 1.0)
    assert await store.due_tiers({TIER: EVER}, NOON - HOUR) == set()
    assert await store.due_tiers({}, NOON) == set()


async def test_what_is_blocked_is_settled_from_a_moment_on(desk: Desk) -> None:
    first, old, new = await desk.staged(
        await desk.job(), NOON - HOUR, NOON - 2 * MINUTE, NOON - MINUTE, running_limit=1
    )
    await desk.claim(limit=1)
    assert await desk.store.settle_blocked(["default"], NOON, NOON - MINUTE) == (1, set())
    assert await desk.states([first, old, new]) == [State.RUNNING, State.PENDING, State.SKIPPED]
    assert await desk.store.settle_blocked(["default"], NOON) == (1, set())


async def test_what_could_be_claimed_before_a_moment_is_found(desk: Desk) -> None:
    job = await desk.job()
    old, older, _ = await desk.staged(job, NOON - MINUTE, NOON - HOUR, NOON)
    await desk.staged(await desk.job(pool="gpu"), NOON - HOUR)
    both = {(TENANT, old), (TENANT, older)}
    assert await startable(desk, NOON) == both
    assert await startable(desk, NOON, limit=1) == {(TENANT, older)}
    assert await startable(desk, NOON) == both, "it is only looked"
    await desk.claim(limit=1)
    assert await startable(desk, NOON) == {(TENANT, old)}


async def test_all_that_waits_before_a_moment_is_counted_up_to_a_limit(desk: Desk) -> None:
    await desk.staged(await desk.job(), *(NOON - n * SECOND for n in range(5)), running_limit=1)
    for before, limit, count in ((NOON, 100, 4), (NOON, 3, 3), (EVER, 100, 0)):
        assert await desk.store.count_before({TIER: before, ("gpu", 1): before}, limit) == count
    await desk.claim(limit=1)
    assert await desk.store.count_before({TIER: NOON}, 100) == 3


async def test_what_waits_for_its_turn_is_not_found_before_it(desk: Desk) -> None:
    job = await desk.job()
    first, second = await desk.staged(job, NOON - HOUR, NOON - MINUTE, running_limit=1)
    assert await startable(desk) == {(TENANT, first)}
    assert await claim_found(desk, [second]) == []
    [claim] = await claim_found(desk, [first, second])
    assert (claim.key, claim.fence, claim.ready_at) == (first, 1, NOON - HOUR)
    assert await startable(desk) == set()


async def test_what_is_found_goes_to_the_living_and_only_while_it_waits(desk: Desk) -> None:
    job = await desk.job()
    [key, later] = await desk.staged(job, NOON, NOON + SECOND)
    assert await claim_found(desk, [key], await desk.worker(lease_until=NOON - SECOND)) == []
    assert await claim_found(desk, [later]) == [], "it is not ready"
    assert await claim_found(desk, [key], pool="gpu") == [], "it is in another pool"
    assert len(await claim_found(desk, [key, key])) == 1
    assert await claim_found(desk, [key]) == []
    assert await claim_found(desk, []) == []


async def test_many_who_found_the_same_never_share_it(desk: Desk) -> None:
    job = await desk.job()
    keys = await desk.staged(job, *(NOON - n * SECOND for n in range(100)))
    workers = [await desk.worker() for _ in range(10)]
    taken = await asyncio.gather(*(claim_found(desk, keys, worker) for worker in workers))
    assert sorted(str(claim.key) for claims in taken for claim in claims) == sorted(map(str, keys))


async def test_what_waits_at_a_gate_is_not_claimed_past_it(desk: Desk) -> None:
    job = await desk.job()
    [key] = await desk.staged(job, NOON - MINUTE, group=("warehouse", 1))
    assert await startable(desk) == set()
    assert await claim_found(desk, [key]) == []
