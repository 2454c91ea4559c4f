"""Callbacks: an address that was sent with a delivery ends that attempt, once, and opens nothing else."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from cronwell.config import AuthSettings, Settings
from cronwell.model.access import Quotas
from cronwell.model.callback import PATH, Token
from cronwell.model.execution import Result, State
from cronwell.runtime.postgres import Database
from cronwell.scheduler.chores.callbacks import CalledBack
from cronwell.store.port import Awaited, Claimed, Ended
from tests.api.rig import Reply, Rig, serving

CALLBACK = {"http": {"url": "https://example.com/run", "callback": {"deadline": "2h", "heartbeat": "5m"}}}
ACTIONS = ("complete", "fail", "progress", "checkpoint", "heartbeat")


@dataclass(frozen=True, slots=True)
class Waiting:
    """An execution that waits for its callback, and whoever was called."""

    rig: Rig
    claim: Claimed
    token: str

    @property
    def path(self) -> str:
        return f"/v1/executions/{self.claim.key}"

    async def call(self, action: str, body: object = None, **given: Any) -> Reply:
        return await self.rig.caller.call("POST", f"{PATH}{self.token}/{action}", body, **given)

    async def shown(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.rig.caller.get(self.path)).json
        return found


async def wait_for_callback(
    rig: Rig, *, heartbeat: timedelta | None = None, deadline: timedelta = timedelta(hours=2), **fields: Any
) -> Waiting:
    """Trigger a job, and let a worker that is told 202 go on without it."""
    made = await rig.caller.create(**{"name": f"job-{uuid4()}", "target": CALLBACK, **fields})
    await rig.caller.post(f"/v1/jobs/{made['id']}/trigger")
    return await claim_and_park(rig, heartbeat=heartbeat, deadline=deadline)


async def claim_and_park(
    rig: Rig, *, heartbeat: timedelta | None = None, deadline: timedelta = timedelta(hours=2)
) -> Waiting:
    worker = await rig.register()
    now = rig.clock.now()
    [claim] = await rig.claim(worker, at=now + timedelta(hours=1))
    parked = Ended(
        tenant_id=claim.tenant_id,
        key=claim.key,
        fence=claim.fence,
        worker=worker,
        state=State.SUCCEEDED,
        result=Result.SUCCEEDED,
        started_at=now,
        finished_at=now,
        awaits=Awaited(now + deadline, heartbeat),
    )
    assert await rig.store.complete([parked]) == [State.RUNNING]
    terms = await rig.store.callback_terms(claim.tenant_id)
    assert terms is not None
    return Waiting(rig, claim, Token(claim.tenant_id, claim.key, claim.fence, worker).write(terms[0]))


@pytest_asyncio.fixture(loop_scope="session")
async def waiting(rig: Rig) -> Waiting:
    return await wait_for_callback(rig)


async def test_a_callback_completes_what_waits_for_it_and_again_changes_nothing(waiting: Waiting) -> None:
    shown = await waiting.shown()
    assert (shown["state"], shown["worker"]) == ("running", None)
    assert shown["callback_until"] is not None
    first = await waiting.call("complete", {"output": {"rows": 7}})
    assert (first.status, first.json["state"]) == (200, "succeeded")
    assert first.json == {
        "execution": str(waiting.claim.key), "attempt": 1, "state": "succeeded", "callback_until": None
    }  # fmt: skip
    done = await waiting.shown()
    assert (done["state"], done["output"], done["callback_until"]) == ("succeeded", '{"rows":7}', None)
    assert done["worker"] == str(waiting.claim.worker)
    assert [each["result"] for each in done["attempts"]] == ["succeeded"]
    again = await waiting.call("complete", {"output": "something else"})
    assert (again.status, again.json) == (200, first.json)
    assert await waiting.shown() == done
    refused = await waiting.call("fail", {"error": "no, it failed"})
    assert (refused.status, "recorded as succeeded" in refused.json["detail"]) == (409, True)
    assert (await waiting.call("heartbeat")).status == 409
    assert await waiting.shown() == done


async def test_two_completes_at_once_are_one(waiting: Waiting) -> None:
    replies = await asyncio.gather(*(waiting.call("complete", {"output": str(n)}) for n in range(8)))
    assert {reply.status for reply in replies} == {200}
    done = await waiting.shown()
    assert done["output"] in {str(n) for n in range(8)}
    assert len(done["attempts"]) == 1


async def test_a_complete_and_a_fail_at_once_do_not_both_win(waiting: Waiting) -> None:
    completed, failed = await asyncio.gather(
        waiting.call("complete"), waiting.call("fail", {"error": "x", "retry": False})
    )
    state = (await waiting.shown())["state"]
    assert sorted([completed.status, failed.status]) == [200, 409]
    assert state == ("succeeded" if completed.status == 200 else "failed")


async def test_a_failure_is_retried_by_the_jobs_policy_and_the_next_attempt_has_the_checkpoint(
    rig: Rig,
) -> None:
    waiting = await wait_for_callback(rig, retry={"max_attempts": 2, "initial_delay": "1m", "jitter": 0})
    assert (await waiting.call("checkpoint", {"checkpoint": {"row": 500}})).status == 200
    assert (await waiting.call("progress", {"progress": "half"})).status == 200
    shown = await waiting.shown()
    assert (shown["checkpoint"], shown["progress"]) == ({"row": 500}, "half")
    failed = await waiting.call("fail", {"error": "the disk is full", "output": "so far"})
    assert (failed.status, failed.json["state"]) == (200, "retrying")
    assert (await waiting.call("fail", {"error": "the disk is full"})).status == 200, "the answer was lost"
    shown = await waiting.shown()
    assert (shown["error"], shown["error_kind"], shown["output"]) == (
        "the disk is full",
        "callback",
        "so far",
    )
    [attempt] = shown["attempts"]
    assert (attempt["result"], attempt["worker"]) == ("failed", str(waiting.claim.worker))

    second = await claim_and_park(rig)
    assert (second.claim.attempt, second.claim.checkpoint) == (2, '{"row":500}')
    for action, body in (("complete", None), ("heartbeat", None), ("checkpoint", {"checkpoint": 1})):
        stale = await waiting.call(action, body)
        assert stale.status == 409
        assert "another attempt (fence 2) has begun; stop working" in stale.json["detail"]
    assert (await second.shown())["checkpoint"] == {"row": 500}
    last = await second.call("fail", {"error": "again"})
    assert (last.json["state"], last.json["attempt"]) == ("failed", 2)
    dead = (await rig.caller.get("/v1/dead-letters")).json["items"]
    assert [each["id"] for each in dead] == [str(waiting.claim.key)]


async def test_a_failure_that_trying_again_cannot_help_is_not_retried(waiting: Waiting) -> None:
    failed = await waiting.call("fail", {"error": "no such customer", "retry": False})
    assert (failed.status, failed.json["state"]) == (200, "failed")


async def test_the_chore_times_out_what_is_not_called_back_in_time(rig: Rig) -> None:
    silent = await wait_for_callback(rig, heartbeat=timedelta(), retry={"max_attempts": 1})
    late = await wait_for_callback(rig, deadline=timedelta(), retry={"initial_delay": "1h"})
    patient = await wait_for_callback(rig, heartbeat=timedelta(minutes=5))
    assert await CalledBack(rig.store, rig.clock).run_once() == 2
    assert await CalledBack(rig.store, rig.clock).run_once() == 0
    shown = await silent.shown()
    assert (shown["state"], shown["error_kind"]) == ("failed", "callback_heartbeat")
    shown = await late.shown()
    assert (shown["state"], shown["error_kind"]) == ("retrying", "callback_deadline")
    assert [each["result"] for each in shown["attempts"]] == ["timed_out"]
    refused = await late.call("complete", {"output": "at last"})
    assert (refused.status, "recorded as timed_out" in refused.json["detail"]) == (409, True)
    assert (await patient.shown())["state"] == "running"
    assert (await patient.call("complete")).status == 200


async def test_what_waits_can_be_cancelled(waiting: Waiting) -> None:
    cancelled = await waiting.rig.caller.post(f"{waiting.path}/cancel")
    assert (cancelled.status, cancelled.json["state"]) == (202, "cancelled")
    for action, body in (("complete", None), ("fail", {"error": "x"}), ("heartbeat", None)):
        refused = await waiting.call(action, body)
        assert (refused.status, "the execution is cancelled" in refused.json["detail"]) == (409, True)
    shown = await waiting.shown()
    assert (shown["state"], [each["result"] for each in shown["attempts"]]) == ("cancelled", ["cancelled"])


async def test_what_is_cancelled_by_a_way_that_asks_a_worker_is_ended_by_the_chore(
    waiting: Waiting, api_database: Database
) -> None:
    """As a backfill is cancelled, or as the release before this one does it."""
    await api_database.execute("update executions set cancel_requested_at = now() - interval '1 s'")
    assert await CalledBack(waiting.rig.store, waiting.rig.clock).run_once() == 1
    shown = await waiting.shown()
    assert (shown["state"], shown["error"]) == ("cancelled", "cancelled while it waited for its callback")


async def test_a_heartbeat_tells_until_when_the_next_one_is_due(rig: Rig) -> None:
    waiting = await wait_for_callback(rig, heartbeat=timedelta(minutes=5))
    before = (await waiting.shown())["callback_until"]
    beat = await waiting.call("heartbeat", {"progress": 0.5})
    assert (beat.status, beat.json["state"]) == (200, "running")
    assert beat.json["callback_until"] > before
    assert (await waiting.shown())["progress"] == 0.5


async def test_a_callback_may_come_before_the_answer_was_202(rig: Rig) -> None:
    """The worker has the execution still: whoever was called is faster than its own answer."""
    waiting = await wait_for_callback(rig)
    await waiting.call("fail", {"error": "again, please"})
    worker = await rig.register()
    [claim] = await rig.claim(worker, at=rig.clock.now() + timedelta(hours=1))
    terms = await rig.store.callback_terms(1)
    assert terms is not None
    fast = Waiting(rig, claim, Token(1, claim.key, claim.fence, worker).write(terms[0]))
    assert (await fast.call("checkpoint", {"checkpoint": 1})).status == 200
    done = await fast.call("complete")
    assert (done.status, done.json["state"]) == (200, "succeeded")


async def test_long_output_is_cut_and_marked(waiting: Waiting) -> None:
    assert (await waiting.call("complete", {"output": "x" * 70_000})).status == 200
    done = await waiting.shown()
    assert (len(done["output"]), done["output_truncated"]) == (65_536, True)


@pytest.mark.parametrize(
    ("action", "body", "status", "field"),
    [
        ("checkpoint", {"checkpoint": "x" * 65_536}, 413, None),
        ("progress", {"progress": ["x" * 65_536]}, 413, None),
        ("heartbeat", {"progress": "x" * 65_536}, 413, None),
        ("checkpoint", {}, 422, "checkpoint"),
        ("progress", {}, 422, "progress"),
        ("fail", {}, 422, "error"),
        ("fail", {"error": ""}, 422, "error"),
        ("fail", {"error": 7}, 422, "error"),
        ("fail", {"error": "x" * 9000}, 422, "error"),
        ("fail", {"error": "x\0"}, 422, "error"),
        ("fail", {"error": "x", "retry": "no"}, 422, "retry"),
        ("fail", {"error": "x", "retries": 1}, 422, "retries"),
        ("complete", {"result": 1}, 422, "result"),
        ("complete", {"output": "\0"}, 422, "output"),
        ("heartbeat", {"beat": 1}, 422, "beat"),
        ("checkpoint", {"checkpoint": {"a": "\0"}}, 422, "checkpoint.a"),
    ],
)
async def test_bad_input_is_refused_and_changes_nothing(
    action: str, body: dict[str, Any], status: int, field: str | None, waiting: Waiting
) -> None:
    before = await waiting.shown()
    reply = await waiting.call(action, body)
    assert (reply.status, reply.json["status"]) == (status, status)
    if field is not None:
        assert reply.fields == [field]
    assert await waiting.shown() == before


async def test_no_address_but_the_one_that_was_sent_opens_anything(waiting: Waiting) -> None:
    before = await waiting.shown()
    raw = bytearray(base64.urlsafe_b64decode(waiting.token + "="))
    claim = waiting.claim
    signed = Token(1, claim.key, claim.fence, claim.worker)
    forged = [
        "x", "", "AAAA", waiting.token[:-1], waiting.token + "A", waiting.token + "=", waiting.token.lower(),
        "." + waiting.token, waiting.token.replace("A", "+"),
        signed.write(b"another key"),
        dataclasses.replace(signed, tenant_id=2**31 - 1).write(b"another key"),
        dataclasses.replace(signed, tenant_id=-1).write(b"another key"),
    ]  # fmt: skip
    # Each byte of what is said, and of the signature, altered.
    for place in range(len(raw)):
        altered = bytearray(raw)
        altered[place] ^= 0x01
        forged.append(base64.urlsafe_b64encode(altered).rstrip(b"=").decode())
    answers = set()
    for token in forged:
        for action in ACTIONS if len(token) < 10 else ("complete",):
            reply = await waiting.rig.caller.post(f"{PATH}{token}/{action}")
            assert reply.status == 404, (token, reply.body)
            answers.add(reply.json["detail"])
    assert len(answers - {"there is nothing at /v1/callbacks//complete; see /docs for what there is"}) <= 2
    assert await waiting.shown() == before
    assert (await waiting.call("nothing")).status == 404
    assert (await waiting.rig.caller.get(f"{PATH}{waiting.token}/complete")).status == 405
    assert (await waiting.call("complete")).status == 200


async def test_no_key_is_needed_where_others_are_and_the_tenants_rate_holds(
    waiting: Waiting, api_database: Database, api_url: str
) -> None:
    settings = dataclasses.replace(Settings(), auth=AuthSettings(required=True))
    rig = waiting.rig
    async with serving(api_database, api_url, rig.clock, settings) as guarded:
        assert (await guarded.caller.get("/v1/jobs")).status == 401
        mine = dataclasses.replace(waiting, rig=guarded)
        assert (await mine.call("heartbeat", headers={"Authorization": "Bearer nonsense"})).status == 200
        await api_database.execute("update tenants set max_requests = 0.1 where id = 1")
        try:
            statuses = [(await mine.call("heartbeat")).status for _ in range(8)]
        finally:
            await api_database.execute("update tenants set max_requests = null where id = 1")
        assert (statuses[0], statuses[-1]) == (200, 429)
    terms = await rig.store.callback_terms(1)
    assert terms is not None
    assert terms[1] == Quotas()


async def test_whoever_was_given_an_address_does_not_keep_the_tenant_out_with_it(
    waiting: Waiting, api_database: Database
) -> None:
    assert (await waiting.call("complete")).status == 200
    made = await waiting.rig.caller.post("/v1/keys", {"name": "ours", "scopes": ["read"]})
    ours = {"Authorization": f"Bearer {made.json['key']}"}
    await api_database.execute("update tenants set max_requests = 0.01 where id = 1")
    try:
        assert [(await waiting.call("heartbeat")).status for _ in range(2)] == [409, 429]
        got = [(await waiting.rig.caller.call("GET", "/v1/jobs", headers=ours)).status for _ in range(2)]
        assert got == [200, 429]
    finally:
        await api_database.execute("update tenants set max_requests = null where id = 1")


@pytest.mark.parametrize(
    ("callback", "field"),
    [
        ({}, "target.http.callback.deadline"),
        ({"deadline": "0s"}, "target.http.callback"),
        ({"deadline": "31d"}, "target.http.callback"),
        ({"deadline": 60}, "target.http.callback.deadline"),
        ({"deadline": "soon"}, "target.http.callback.deadline"),
        ({"deadline": "1h", "heartbeat": "2h"}, "target.http.callback"),
        ({"deadline": "1h", "heartbeat": "10ms"}, "target.http.callback"),
        ({"deadline": "1h", "timeout": "2h"}, "target.http.callback.timeout"),
        ("2h", "target.http.callback"),
    ],
)
async def test_a_callback_that_cannot_be_meant_is_refused(callback: object, field: str, rig: Rig) -> None:
    target = {"http": {"url": "https://example.com", "callback": callback}}
    reply = await rig.caller.post("/v1/jobs", {"name": "x", "target": target})
    assert (reply.status, reply.fields) == (422, [field])
