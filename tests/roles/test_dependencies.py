"""Jobs that follow others: each runs once for a slot, when its rule says so, and otherwise says why not."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from cronwell import errors
from cronwell.control.overrides import Decision
from cronwell.model.execution import ExecutionKey, Kind, Result, State
from cronwell.runtime.clock import ManualClock
from cronwell.store.postgres.transaction import PostgresTransaction
from tests.roles.dependencies import MINUTE, NOON, SLOT, Chain
from tests.support.house import CALLER, TENANT, House


@pytest.fixture
def chain(still_house: House, clock: ManualClock) -> Chain:
    return Chain(still_house, clock)


async def test_a_dependent_runs_or_is_skipped_by_how_its_upstream_ended(chain: Chain) -> None:
    became = {
        (State.SUCCEEDED, "succeeded"): "pending",
        (State.SUCCEEDED, "failed"): "skipped: upstream_succeeded",
        (State.SUCCEEDED, "finished"): "pending",
        (State.FAILED, "succeeded"): "skipped: upstream_failed",
        (State.FAILED, "failed"): "pending",
        (State.FAILED, "finished"): "pending",
        **{(State.SKIPPED, on): "skipped: upstream_skipped" for on in ("succeeded", "failed", "finished")},
        **{
            (State.CANCELLED, on): "skipped: upstream_cancelled" for on in ("succeeded", "failed", "finished")
        },
    }
    upstreams = {state: await chain.create(state.value) for state, on in became if on == "finished"}
    dependents = {
        (state, on): await chain.create(f"{state}-{on}", {"job": state.value, "on": on})
        for state, on in became
    }
    await chain.judge()
    assert {await chain.state(each) for each in dependents.values()} == {"none"}
    for state, upstream in upstreams.items():
        await chain.end(upstream, state=state)
    assert {each: await chain.state(job) for each, job in dependents.items()} == became
    assert {await chain.state(each, SLOT + MINUTE) for each in dependents.values()} == {"none"}


async def test_a_retry_is_no_end(chain: Chain) -> None:
    upstream = await chain.create("extract")
    dependent = await chain.create("load", "extract")
    await chain.end(upstream, state=State.RETRYING)
    assert await chain.state(dependent) == "none"
    await chain.end(upstream)
    assert await chain.state(dependent) == "pending"


async def test_of_all_the_last_decides_and_of_any_the_first(chain: Chain, clock: ManualClock) -> None:
    a, b = await chain.create("a"), await chain.create("b")
    all_of = await chain.create("all", "a", "b", after={"all": ["a", "b"], "delay": "30s"})
    any_of = await chain.create("any", "a", "b", after={"any": ["a", "b"]})
    await chain.end(a)
    ended = clock.now()
    clock.advance(MINUTE)
    await chain.judge()
    assert (await chain.state(all_of), await chain.state(any_of)) == ("none", "pending")
    found = await chain.at(any_of)
    assert found is not None
    assert found.ready_at == ended
    await chain.end(b)
    found = await chain.at(all_of)
    assert found is not None
    assert found.ready_at == clock.now() + timedelta(seconds=30)
    assert await chain.waiting() == 0


async def test_any_is_skipped_once_none_is_left_to_satisfy_it(chain: Chain) -> None:
    a, b = await chain.create("a"), await chain.create("b")
    dependent = await chain.create("any", "a", after={"any": ["a", "b"]})
    await chain.end(a, state=State.FAILED)
    assert await chain.state(dependent) == "none"
    await chain.end(b, state=State.CANCELLED)
    assert await chain.state(dependent) == "skipped: upstream_failed"


async def test_an_upstream_without_such_a_slot_is_missing(chain: Chain) -> None:
    minutely = await chain.create("minutely")
    await chain.create("hourly", schedule="0 * * * *")
    await chain.create("manual", schedule=None)
    by_hour = await chain.create("by-hour", "minutely", "hourly")
    by_hand = await chain.create("by-hand", "minutely", "manual")
    # It has no slot of its own either, by way of the one that is missing.
    below = await chain.create("below", "minutely", "by-hand")
    either = await chain.create("either", "minutely", after={"any": ["manual", "minutely"]})
    await chain.end(minutely)
    await chain.judge()
    assert await chain.state(by_hour) == "skipped: upstream_missing"
    assert await chain.state(by_hand) == "skipped: upstream_missing"
    assert await chain.state(below) == "skipped: upstream_skipped"
    assert await chain.state(either) == "pending"


async def test_a_dependent_that_cannot_come_is_not_waited_for(chain: Chain) -> None:
    a, _ = await chain.create("a"), await chain.create("hourly", schedule="0 * * * *")
    await chain.create("middle", "hourly")
    last = await chain.create("last", "a", "middle")
    await chain.end(a)
    assert await chain.state(last) == "skipped: upstream_missing"


async def test_what_is_still_to_be_staged_is_waited_for(chain: Chain, clock: ManualClock) -> None:
    a = await chain.create("a")
    b = await chain.create("b")
    dependent = await chain.create("after", "a", "b")
    # Nobody has staged it yet: its cursor stands before the slot.
    await chain.house.database.execute("delete from executions where job_id = $1", b)
    await chain.house.database.execute("update cursors set next_slot = $2 where job_id = $1", b, SLOT)
    await chain.end(a)
    assert await chain.state(dependent) == "none"
    assert await chain.waiting() == 1
    await chain.house.database.execute(
        "update cursors set next_slot = $2 where job_id = $1", b, SLOT + MINUTE
    )
    clock.advance(MINUTE)
    await chain.judge()
    assert await chain.state(dependent) == "skipped: upstream_missing"


async def test_a_diamond_comes_together_by_slot(chain: Chain) -> None:
    a = await chain.create("a")
    b, c = await chain.create("b", "a"), await chain.create("c", "a")
    d = await chain.create("d", "b", "c")
    # It is judged before the others that it follows have an execution; they get one.
    e = await chain.create("e", "a", {"job": "d", "on": "finished"})
    await chain.end(a)
    assert (await chain.state(d), await chain.state(e)) == ("none", "none")
    await chain.end(b)
    assert await chain.state(d) == "none"
    await chain.end(c, state=State.FAILED)
    assert await chain.state(d) == "skipped: upstream_failed"
    assert await chain.state(e) == "skipped: upstream_skipped"


async def test_a_wait_ends_with_its_timeout(chain: Chain, clock: ManualClock) -> None:
    a, b = await chain.create("a"), await chain.create("b")
    dependent = await chain.create("after", "a", after={"all": ["a", "b"], "timeout": "2h"})
    await chain.end(a)
    clock.advance(timedelta(hours=2))
    await chain.judge()
    assert await chain.state(dependent) == "none"
    clock.advance(MINUTE)
    await chain.judge()
    assert await chain.state(dependent) == "skipped: upstream_timeout"
    assert await chain.waiting() == 0
    await chain.end(b)
    assert await chain.state(dependent) == "skipped: upstream_timeout", "what ends after that is no news"


async def test_what_ended_ahead_of_its_slot_is_waited_for_from_the_slot_on(
    chain: Chain, clock: ManualClock
) -> None:
    await chain.create("a", schedule="0 18 * * *")
    b = await chain.create("b", schedule="0 18 * * *")
    dependent = await chain.create(
        "after", "a", after={"all": [{"job": "a", "on": "finished"}, "b"], "timeout": "1h"}
    )
    evening = NOON + timedelta(hours=6)
    await chain.house.overrides.put(TENANT, "name:a", evening, Decision(action="skip"))
    await chain.judge()
    assert await chain.waiting() == 1
    clock.advance(timedelta(hours=5))
    await chain.judge()
    assert (await chain.state(dependent, evening), await chain.waiting()) == ("none", 1)
    clock.advance(timedelta(hours=1, minutes=30))
    await chain.house.staging().run_once()
    await chain.end(b, evening)
    assert await chain.state(dependent, evening) == "skipped: upstream_skipped"


async def test_a_plan_that_was_made_without_knowing_is_mended(chain: Chain) -> None:
    a = await chain.create("a")
    b = await chain.create("b", "a")
    await chain.house.database.execute(
        """update cursors set plan = replace(plan, '"followed":true,', '') where job_id = $1""", a
    )
    await chain.house.database.execute("update executions set is_followed = false")
    assert await chain.house.store.unfollowed(10) == [(TENANT, a)]
    await chain.house.chaining().run_once()
    assert await chain.house.store.unfollowed(10) == []
    await chain.end(a)
    assert await chain.state(b) == "pending"


async def test_what_waits_too_long_is_counted_and_told_once(chain: Chain, clock: ManualClock) -> None:
    a, _ = await chain.create("a"), await chain.create("b")
    await chain.create("after", "a", "b")
    await chain.end(a)
    clock.advance(timedelta(minutes=61))
    stuck = await chain.house.store.count_waiting(clock.now() - timedelta(hours=1))
    assert (stuck.waiting, stuck.stuck, stuck.oldest) == (1, 1, SLOT)
    since = clock.now() - timedelta(hours=1)
    assert [each.name for each in await chain.house.store.tell_stuck(since)] == ["after"]
    assert await chain.house.store.tell_stuck(since) == []


async def test_a_paused_dependent_is_skipped(chain: Chain) -> None:
    a = await chain.create("a")
    b = await chain.create("b", "a")
    await chain.house.jobs.pause(TENANT, "name:b")
    await chain.end(a)
    assert await chain.state(b) == "skipped: paused"
    await chain.house.jobs.resume(TENANT, "name:b")
    assert await chain.state(b) == "skipped: paused"


async def test_triggers_and_backfills_are_followed_too(chain: Chain) -> None:
    await chain.create("a")
    b = await chain.create("b", "a")
    key = await chain.house.trigger("a")
    await chain.end(key.job_id, key.slot)
    assert await chain.state(b, key.slot) == "pending"


async def test_the_first_dependent_has_what_is_staged_already_followed(chain: Chain) -> None:
    a = await chain.create("a")
    key = await chain.house.trigger("a")
    b = await chain.create("b", "a")
    await chain.end(a)
    await chain.end(a, key.slot)
    assert (await chain.state(b), await chain.state(b, key.slot)) == ("pending", "pending")


async def test_what_had_ended_before_is_not_followed(chain: Chain) -> None:
    a = await chain.create("a")
    await chain.end(a)
    b = await chain.create("b", "a")
    await chain.judge()
    assert await chain.state(b) == "none"


async def test_an_edit_of_an_upstream_keeps_it_followed(chain: Chain) -> None:
    a = await chain.create("a")
    b = await chain.create("b", "a")
    await chain.edit("a", schedule="* * * * *", description="edited", name="renamed")
    await chain.end(a)
    assert await chain.state(b) == "pending"
    # The name is another's by now; what the dependent says means the same job as before.
    await chain.create("a")
    await chain.edit("b", description="edited as well")
    await chain.end(a, SLOT + MINUTE)
    assert [edge.upstream_id for edge in await chain.house.store.edges_among(TENANT, [b])] == [a]


async def test_a_redriven_upstream_revives_what_was_skipped_for_it(chain: Chain, clock: ManualClock) -> None:
    a = await chain.create("a")
    b, c = await chain.create("b", "a"), await chain.create("c", "b")
    await chain.end(a, state=State.FAILED)
    await chain.judge()
    assert (await chain.state(b), await chain.state(c)) == (
        "skipped: upstream_failed",
        "skipped: upstream_skipped",
    )
    await chain.house.executions.retry(TENANT, str(ExecutionKey(a, Kind.SCHEDULED, SLOT)))
    clock.advance(MINUTE)
    await chain.end(a)
    assert await chain.state(b) == "pending"
    await chain.end(b)
    assert await chain.state(c) == "pending"


async def test_a_redriven_upstream_does_not_run_what_has_run(chain: Chain) -> None:
    a = await chain.create("a")
    b = await chain.create("b", {"job": "a", "on": "finished"})
    await chain.end(a, state=State.FAILED)
    await chain.end(b)
    await chain.house.executions.retry(TENANT, str(ExecutionKey(a, Kind.SCHEDULED, SLOT)))
    await chain.end(a)
    assert await chain.state(b) == "succeeded"


async def test_a_rerun_from_a_node_runs_all_below_it_again(chain: Chain, clock: ManualClock) -> None:
    a = await chain.create("a")
    b, c = await chain.create("b", "a"), await chain.create("c", "a")
    d = await chain.create("d", "b", "c")
    other = await chain.create("other", "a")
    last = await chain.create("last", "a", {"job": "d", "on": "finished"})
    for job in (a, b, c, d, other, last):
        await chain.end(job)
    assert await chain.state(d) == "succeeded"
    await chain.house.graphs.rerun(TENANT, str(ExecutionKey(b, Kind.DEPENDENCY, SLOT)), is_downstream=True)
    assert (await chain.state(b), await chain.state(d)) == ("pending", "skipped: upstream_rerun")
    assert (await chain.state(c), await chain.state(other)) == ("succeeded", "succeeded")
    clock.advance(MINUTE)
    await chain.end(b)
    assert await chain.state(d) == "pending"
    await chain.end(d)
    await chain.end(last)
    # The same from the top, where one that is run again is waited for as if it had not ended before.
    await chain.house.graphs.rerun(TENANT, str(ExecutionKey(a, Kind.SCHEDULED, SLOT)), is_downstream=True)
    await chain.end(a)
    assert (await chain.state(last), await chain.waiting()) == ("skipped: upstream_rerun", 1)
    for job in (b, c, d, other, last):
        assert await chain.state(job) == "pending"
        await chain.end(job)
    # The same from the top, where the re-run fails: nothing below it runs.
    await chain.house.graphs.rerun(TENANT, str(ExecutionKey(a, Kind.SCHEDULED, SLOT)), is_downstream=True)
    await chain.end(a, state=State.FAILED)
    await chain.judge()
    assert {await chain.state(job) for job in (b, c, other)} == {"skipped: upstream_failed"}
    assert await chain.state(d) == "skipped: upstream_skipped"


async def test_a_rerun_of_a_node_alone_leaves_what_follows_it(chain: Chain) -> None:
    a = await chain.create("a")
    b = await chain.create("b", "a")
    await chain.end(a)
    await chain.end(b)
    key = str(ExecutionKey(a, Kind.SCHEDULED, SLOT))
    await chain.house.graphs.rerun(TENANT, key, is_downstream=False)
    with pytest.raises(errors.IllegalState, match="wait for its end, or cancel it"):
        await chain.house.graphs.rerun(TENANT, key, is_downstream=False)
    await chain.end(a)
    assert await chain.state(b) == "succeeded"


async def test_an_attempt_that_succeeded_stays_in_the_history_of_what_is_run_again(chain: Chain) -> None:
    house, key = chain.house, ExecutionKey(await chain.create("a"), Kind.SCHEDULED, SLOT)
    await chain.end(key.job_id)
    await house.database.execute("update executions set fence = 7, output = 'first'")
    await house.graphs.rerun(TENANT, str(key), is_downstream=False)
    [kept] = await house.store.list_attempts(TENANT, key)
    assert (kept.result, kept.fence, kept.attempt, kept.output) == (Result.SUCCEEDED, 7, 1, "first")
    await house.database.execute("update executions set fence = 8")
    await chain.end(key.job_id, output="second")
    shown = await house.executions.get(TENANT, str(key))
    assert [(each.result, each.fence, each.output) for each in shown.attempts] == [
        ("succeeded", 7, "first"),
        ("succeeded", 8, "second"),
    ]
    found = await house.explain.explain(TENANT, "name:a", SLOT.isoformat())
    assert "It was run again" in found.sentence


async def test_an_upstream_is_deleted_only_by_force_and_is_missing_then(chain: Chain) -> None:
    a, _ = await chain.create("a"), await chain.create("z")
    b = await chain.create("b", "a", "z")
    with pytest.raises(errors.Conflict, match="other jobs follow 'z': b; edit or delete these first"):
        await chain.house.jobs.delete(TENANT, "name:z")
    await chain.house.jobs.delete(TENANT, "name:z", is_forced=True)
    await chain.end(a, SLOT + MINUTE)
    await chain.end(a)
    assert await chain.state(b) == "skipped: upstream_missing"
    await chain.house.jobs.delete(TENANT, "name:b")
    await chain.house.jobs.delete(TENANT, "name:a")


async def test_a_cycle_is_refused_with_its_path(chain: Chain) -> None:
    await chain.create("a")
    await chain.create("b", "a")
    await chain.create("c", "b")
    with pytest.raises(errors.Invalid, match="the job would follow itself: a → b → c → a"):
        await chain.edit("a", schedule=None, after=["c"])
    with pytest.raises(errors.Invalid, match="the job would follow itself: b → b"):
        await chain.edit("b", after=["b"])
    with pytest.raises(errors.Invalid, match="the job would follow itself: d → d"):
        await chain.create("d", "d")


async def test_two_edits_that_together_make_a_cycle_are_not_both_made(chain: Chain) -> None:
    """Neither of them touches a job of the other: each alone is fine."""
    for number in range(5):
        a, b, c, d = (f"{name}{number}" for name in "abcd")
        await chain.create(a)
        await chain.create(c)
        await chain.create(b, c)
        await chain.create(d, a)
        made = await asyncio.gather(
            chain.edit(a, schedule=None, after=[b]),
            chain.edit(c, schedule=None, after=[d]),
            return_exceptions=True,
        )
        assert [type(each) for each in made if each is not None] == [errors.Invalid]


@pytest.mark.parametrize(
    ("after", "field", "words"),
    [
        (["extrakt"], "after.0", "there is no job 'extrakt'; did you mean 'extract'"),
        ({"any": [{"job": "nobody"}]}, "after.any.0.job", "there is no job 'nobody'"),
        (["0190a1b2-0000-7000-8000-000000000000"], "after.0", "there is no job"),
    ],
)
async def test_an_unknown_upstream_is_refused_with_the_nearest(
    chain: Chain, after: Any, field: str, words: str
) -> None:
    await chain.create("extract")
    with pytest.raises(errors.Invalid) as refused:
        await chain.create("load", schedule=None, after=after)
    [problem] = refused.value.problems
    assert problem.field == field
    assert words in problem.message


async def test_a_job_listed_by_name_and_by_id_is_refused(chain: Chain) -> None:
    a = await chain.create("a")
    with pytest.raises(errors.Invalid, match="listed already"):
        await chain.create("b", "a", str(a))


async def test_jobs_of_a_batch_follow_each_other_and_fail_alone(chain: Chain) -> None:
    base = {"target": {"handler": {"name": "work"}}}
    made = await chain.house.jobs.create_many(
        CALLER,
        [
            {**base, "name": "last", "after": ["first"]},
            {**base, "name": "first", "schedule": "* * * * *", "overlap": "allow"},
            {**base, "name": "lost", "after": ["nowhere"]},
            {**base, "name": "lost-too", "after": ["first", "lost"]},
            {**base, "name": "x", "after": ["y"]},
            {**base, "name": "y", "after": ["x"]},
        ],
    )
    assert [each.error is None for each in made] == [True, True, False, False, False, False]
    assert "follow itself" in str(made[4].error or made[5].error)
    first, last = made[1].job_id, made[0].job_id
    assert first is not None
    assert last is not None
    await chain.end(first)
    assert await chain.state(last) == "pending"


async def test_two_schedulers_at_once_judge_once(chain: Chain, clock: ManualClock) -> None:
    upstreams = [await chain.create(f"u{number}") for number in range(4)]
    dependents = [
        await chain.create(f"d{number}", *(f"u{each}" for each in range(4))) for number in range(10)
    ]
    others = [chain.house.chaining() for _ in range(4)]
    await chain.house.database.execute(
        "update executions set state = 'succeeded', finished_at = $2 where job_id = any($1) and state = 'pending'",
        upstreams,
        clock.now(),
    )
    await asyncio.gather(*(each.run_once() for each in others for _ in range(3)))
    assert {await chain.state(each) for each in dependents} == {"pending"}
    assert await chain.waiting() == 0


async def test_nothing_is_lost_where_a_scheduler_dies_half_way(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await chain.create("a")
    b = await chain.create("b", "a")
    written: list[bool] = []

    async def die(*_: object) -> None:
        written.append(True)
        raise ConnectionError

    monkeypatch.setattr(PostgresTransaction, "clear_followed", die)
    with pytest.raises(ConnectionError):
        await chain.end(a)
    monkeypatch.undo()
    assert written == [True]
    assert await chain.state(b) == "none"
    await chain.judge()
    assert await chain.state(b) == "pending"


async def test_explain_says_what_a_slot_waits_for(chain: Chain) -> None:
    a, b = await chain.create("a"), await chain.create("b")
    c = await chain.create("c", "a", {"job": "b", "on": "finished"})
    await chain.end(a)
    graph = await chain.house.graphs.graph(TENANT, "name:a")
    assert [node.name for node in graph.nodes] == ["a", "b", "c"]
    assert [each.slot for each in graph.nodes[2].waiting] == [SLOT]
    text = SLOT.isoformat()
    told = await chain.house.explain.explain(TENANT, "name:c", text)
    assert (told.verdict, told.sentence) == ("waiting", "The slot waits for the end of b.")
    assert [(each.job, each.on, each.state, each.is_satisfied) for each in told.upstreams] == [
        ("a", "succeeded", "succeeded", True),
        ("b", "finished", "unfinished", False),
    ]
    await chain.end(b)
    await chain.end(c)
    told = await chain.house.explain.explain(TENANT, "name:c", text)
    assert told.verdict == "executed"
    assert "once what it follows had ended" in told.sentence
    other = await chain.house.explain.explain(TENANT, "name:c", (SLOT + timedelta(seconds=1)).isoformat())
    assert (other.verdict, other.reason) == ("not_a_slot", "no_upstream")
    upcoming = await chain.house.outlook.upcoming(TENANT, "name:c", 10)
    assert upcoming.note == "it follows a, b (finished): it runs once for each slot of all of them"


async def test_a_slot_that_comes_after_a_later_one_is_ready_when_all_workers_can_see_it(
    chain: Chain, clock: ManualClock
) -> None:
    a = await chain.create("a", schedule="every 10s")
    b = await chain.create("b", "a", overlap="queue_all")
    rows = await chain.house.database.fetch("select slot from executions where job_id = $1 order by slot", a)
    first, second = (row["slot"] for row in rows[:2])
    await chain.end(a, second)
    later = await chain.at(b, second)
    assert later is not None
    assert later.ready_at == clock.now()
    await chain.end(a, first)
    found = await chain.at(b, first)
    assert found is not None
    assert found.ready_at == clock.now() + timedelta(seconds=2)


async def test_what_comes_back_goes_by_the_group_that_its_job_is_in_now(chain: Chain) -> None:
    a = await chain.create("a")
    b = await chain.create("b", "a")
    await chain.end(a, state=State.FAILED)
    await chain.edit("b", group={"key": "db", "limit": 3}, priority="low")
    await chain.house.executions.retry(TENANT, str(ExecutionKey(a, Kind.SCHEDULED, SLOT)))
    await chain.end(a)
    assert await chain.state(b) == "pending"
    row = await chain.house.database.fetchrow(
        "select gate, gate_limit, priority from executions where job_id = $1 and slot = $2", b, SLOT
    )
    assert row is not None
    assert tuple(row) == ("db", 3, 4)
