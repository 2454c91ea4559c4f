"""The store keeps what processes tell of themselves, what they are asked, and what the scanner found."""

from __future__ import annotations

import dataclasses
from uuid import UUID, uuid4

from cronwell.store.port import Finding, Node
from tests.contract.desk import DAY, HOUR, MINUTE, NOON, SECOND, Desk


def new_node(**fields: object) -> Node:
    made = Node(id=uuid4(), role="worker", name="host:1", version="1.0", started_at=NOON, seen_at=NOON)
    return dataclasses.replace(made, **fields)  # type: ignore[arg-type]  # a test names real fields


async def test_a_process_is_shown_as_it_was_last_seen(desk: Desk) -> None:
    node = new_node()
    assert await desk.store.see_node(node) is None
    later = dataclasses.replace(node, seen_at=NOON + MINUTE)
    assert await desk.store.see_node(later) is None
    assert await desk.store.list_nodes(NOON) == [later]
    assert await desk.store.list_nodes(NOON + HOUR) == []


async def test_a_process_hears_that_it_was_asked_to_drain_and_since_when(desk: Desk) -> None:
    node, other = new_node(), new_node()
    for each in (node, other):
        await desk.store.see_node(each)
    assert await desk.store.ask_to_drain(node.id, NOON + SECOND) == NOON + SECOND
    assert await desk.store.ask_to_drain(node.id, NOON + MINUTE) == NOON + SECOND, "asked once"
    assert await desk.store.see_node(node) == NOON + SECOND
    assert await desk.store.see_node(other) is None


async def test_a_process_that_ended_cannot_be_asked_and_comes_last(desk: Desk) -> None:
    gone, here = new_node(role="api"), new_node(role="worker")
    for each in (gone, here):
        await desk.store.see_node(each)
    await desk.store.stop_node(gone.id, NOON + SECOND)
    assert await desk.store.ask_to_drain(gone.id, NOON + MINUTE) is None
    assert await desk.store.ask_to_drain(uuid4(), NOON + MINUTE) is None
    assert await desk.store.list_nodes(NOON) == [
        here,
        dataclasses.replace(gone, seen_at=NOON + SECOND, stopped_at=NOON + SECOND),
    ]


async def test_a_process_that_was_forgotten_enters_itself_again(desk: Desk) -> None:
    node = new_node()
    await desk.store.see_node(node)
    await desk.store.forget_nodes(NOON)
    assert await desk.store.list_nodes(NOON - DAY) == [node], "it was seen at that very time"
    await desk.store.forget_nodes(NOON + SECOND)
    assert await desk.store.list_nodes(NOON - DAY) == []
    await desk.store.see_node(node)
    assert await desk.store.list_nodes(NOON - DAY) == [node]


async def test_a_worker_tells_which_process_it_belongs_to(desk: Desk) -> None:
    process = UUID(int=7)
    worker = await desk.worker(node=process)
    other = await desk.worker()
    found = {each.id: each.node for each in await desk.store.list_workers(NOON)}
    assert found == {worker: process, other: None}


async def test_every_process_sees_the_same_incarnation(desk: Desk) -> None:
    told = await desk.store.incarnation()
    assert told
    assert await desk.another_process().incarnation() == told


async def test_a_walks_findings_take_the_place_of_the_ones_before(desk: Desk) -> None:
    first = [Finding("no_slot", 3, 2, ("a", "b"), NOON), Finding("stuck", 1, 0, (), NOON)]
    await desk.store.put_findings(first)
    assert await desk.store.list_findings() == first
    second = Finding("no_slot", 0, 0, (), NOON + HOUR)
    await desk.store.put_findings([second])
    assert await desk.store.list_findings() == [second, first[1]]
