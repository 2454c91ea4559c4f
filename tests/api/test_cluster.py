"""The cluster over HTTP: processes, shards, watermarks, what waits, and asking a process to drain."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest

from cronwell.config import Settings
from cronwell.runtime.clock import ManualClock
from cronwell.runtime.postgres import Database
from cronwell.store.port import Finding, Node
from tests.api.rig import Rig, serving

SECOND = timedelta(seconds=1)


async def enter(rig: Rig, **fields: object) -> Node:
    now = rig.clock.now()
    node = Node(id=uuid4(), role="worker", name="host:1", version="1.0", started_at=now, seen_at=now)
    node = dataclasses.replace(node, **fields)  # type: ignore[arg-type]  # a test names real fields
    await rig.store.see_node(node)
    return node


async def test_processes_are_shown_with_what_became_of_them(rig: Rig) -> None:
    now = rig.clock.now()
    living = await enter(rig, role="api", version="1.1")
    drained = await enter(rig, role="scheduler")
    silent = await enter(rig, seen_at=now - 20 * SECOND)
    stopped = await enter(rig)
    await rig.store.ask_to_drain(drained.id, now)
    await rig.store.stop_node(stopped.id, now)
    await enter(rig, seen_at=now - timedelta(hours=2))
    reply = (await rig.caller.get("/v1/cluster")).json
    states = {UUID(each["id"]): each["state"] for each in reply["nodes"]}
    assert states == {living.id: "active", drained.id: "draining", silent.id: "lost", stopped.id: "stopped"}
    assert reply["versions"] == {"1.0": 1, "1.1": 1}, "of those that live"
    assert (reply["coordination"], bool(reply["incarnation"])) == ("postgres", True)


async def test_shards_are_shown_with_owner_epoch_and_how_far_ahead_they_are(
    api_database: Database, api_url: str
) -> None:
    clock = ManualClock()
    async with serving(api_database, api_url, clock, Settings()) as rig:
        fresh = (await rig.caller.get("/v1/cluster")).json
        assert fresh["summary"]["unowned_shards"] == 64
        assert fresh["summary"]["oldest_watermark"] is None
        owner, now = await enter(rig, role="scheduler", name="here:7"), clock.now()
        epochs = await rig.store.enter_shards(owner.id, range(64), now)
        await rig.store.mark_shards(owner.id, epochs, now + 60 * SECOND, now)
        clock.advance(5 * SECOND)
        shown = (await rig.caller.get("/v1/cluster")).json
        assert [each["shard"] for each in shown["shards"]] == list(range(64))
        shard = shown["shards"][63]
        assert (shard["state"], shard["owner"], shard["owner_name"]) == ("owned", str(owner.id), "here:7")
        assert (shard["epoch"], shard["ahead_s"]) == (epochs[63], 55.0)
        assert datetime.fromisoformat(shard["since"]) == now
        assert shown["summary"]["ahead_s"] == 55.0
        assert shown["summary"]["unowned_shards"] == 0
        # Its owner has ended in order: that is known at once, before the watermark is old.
        await rig.store.stop_node(owner.id, clock.now())
        shown = (await rig.caller.get("/v1/cluster")).json
        assert shown["summary"]["unowned_shards"] == 64
        clock.advance(60 * SECOND)
        shown = (await rig.caller.get("/v1/cluster")).json
        assert (shown["summary"]["ahead_s"], shown["shards"][0]["state"]) == (-5.0, "unowned")
    await api_database.execute(
        "update shards set owner = null, watermark = null, marked_at = null, entered_at = null"
    )


async def test_what_is_overdue_is_summed_up(api_database: Database, api_url: str) -> None:
    clock = ManualClock()
    async with serving(api_database, api_url, clock, Settings()) as rig:
        assert (await rig.caller.get("/v1/cluster")).json["summary"]["oldest_overdue_s"] is None
        await rig.caller.create(schedule=None, pool="unserved")
        await rig.caller.post("/v1/jobs/name:hourly/trigger")
        clock.advance(7 * SECOND)
        summary = (await rig.caller.get("/v1/cluster")).json["summary"]
        assert (summary["overdue"], summary["oldest_overdue_s"]) == (1, 7.0)


async def test_a_worker_shows_its_process_and_what_is_left_of_its_lease(rig: Rig) -> None:
    await rig.register()
    [worker] = (await rig.caller.get("/v1/cluster")).json["workers"]
    assert worker["node"] is None
    assert 3500 < worker["lease_left_s"] <= 3600


async def test_the_scanners_findings_are_shown_where_there_are_any(rig: Rig) -> None:
    now = rig.clock.now()
    await rig.store.put_findings(
        [Finding("no_slot", 2, 1, ("a",), now), Finding("stuck", 0, 0, (), now - SECOND)]
    )
    reply = (await rig.caller.get("/v1/cluster")).json
    assert reply["findings"] == [{"kind": "no_slot", "found": 2, "mended": 1, "examples": ["a"]}]
    assert datetime.fromisoformat(reply["scanned_at"]) == now


@pytest.mark.parametrize("form", ["id", "hex", "prefix", "name"])
async def test_a_process_is_asked_to_drain(rig: Rig, form: str) -> None:
    node = await enter(rig, name="web-1.example:4711")
    await enter(rig, name="web-1.example:4712")
    reference = {
        "id": str(node.id),
        "hex": node.id.hex.upper(),
        "prefix": str(node.id)[:13],
        "name": node.name,
    }
    reply = await rig.caller.post(f"/v1/cluster/nodes/{reference[form]}/drain")
    assert (reply.status, reply.json["id"], reply.json["state"]) == (202, str(node.id), "draining")
    again = await rig.caller.post(f"/v1/cluster/nodes/{reference[form]}/drain")
    assert again.json["drain_requested_at"] == reply.json["drain_requested_at"]
    assert await rig.store.see_node(node) is not None


async def test_a_process_that_cannot_be_drained_is_refused_with_what_to_do(rig: Rig) -> None:
    unknown = await rig.caller.post("/v1/cluster/nodes/nowhere:1/drain")
    assert (unknown.status, "cronwell cluster" in unknown.json["detail"]) == (404, True)
    gone = await enter(rig, name="old:1")
    await rig.store.stop_node(gone.id, rig.clock.now())
    lost = await enter(rig, name="old:2", seen_at=rig.clock.now() - timedelta(minutes=5))
    for node, word in ((gone, "stopped"), (lost, "was last seen")):
        refused = await rig.caller.post(f"/v1/cluster/nodes/{node.id}/drain")
        assert (refused.status, word in refused.json["detail"]) == (409, True)
    twins = [await enter(rig, name="twin:1") for _ in range(2)]
    ambiguous = await rig.caller.post("/v1/cluster/nodes/twin:1/drain")
    assert ambiguous.status == 409
    assert all(str(each.id) in ambiguous.json["detail"] for each in twins)
    short = await rig.caller.post(f"/v1/cluster/nodes/{str(twins[0].id)[:3]}/drain")
    assert short.status == 404, "three digits could be anybody"


async def test_of_two_with_one_name_the_one_that_lives_is_meant(rig: Rig) -> None:
    before = await enter(rig, name="pod:1")
    await rig.store.stop_node(before.id, rig.clock.now())
    now = await enter(rig, name="pod:1")
    reply = await rig.caller.post("/v1/cluster/nodes/pod:1/drain")
    assert (reply.status, reply.json["id"]) == (202, str(now.id))


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/cluster/nodes//drain", 404),
        (f"/v1/cluster/nodes/{'x' * 301}/drain", 422),
        ("/v1/cluster/nodes/a%00b/drain", 400),
        ("/v1/cluster/nodes/web%2F1/drain", 404),
        ("/v1/cluster/nodes/x:1/drain?force=yes", 422),
    ],
)
async def test_a_nonsensical_node_is_refused(rig: Rig, path: str, status: int) -> None:
    assert (await rig.caller.post(path)).status == status


async def test_cluster_takes_no_query(rig: Rig) -> None:
    assert (await rig.caller.get("/v1/cluster?shards=1")).status == 422
