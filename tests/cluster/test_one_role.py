"""One role as a process by itself: what it may do, what it leaves behind, and what it says of itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cronwell.model.execution import State
from tests.support.house import TENANT, House
from tests.support.processes import Cluster, cluster
from tests.support.receiver import receiving


@pytest.fixture
def started(migrated_url: str) -> Iterator[Cluster]:
    with cluster(CRONWELL_DATABASE_URL=migrated_url) as processes:
        yield processes


async def test_a_worker_by_itself_may_not_call_its_own_machine(house: House, started: Cluster) -> None:
    started.start("worker")
    async with receiving() as receiver:
        receiver.secret = await house.store.signing_secret(TENANT)
        await house.create(target=receiver.url)
        ended = await house.until_state(await house.trigger(), State.SUCCEEDED, State.FAILED, within=60)
        assert (ended.state, ended.error_kind) == (State.FAILED, "egress")
        assert receiver.deliveries == []


async def test_a_worker_by_itself_may_call_what_the_setting_allows(house: House, started: Cluster) -> None:
    started.start("worker", CRONWELL_EGRESS_ALLOW="127.0.0.1")
    async with receiving() as receiver:
        receiver.secret = await house.store.signing_secret(TENANT)
        await house.create(target=receiver.url)
        await house.until_state(await house.trigger(), State.SUCCEEDED, within=60)
        assert len(receiver.deliveries) == 1
