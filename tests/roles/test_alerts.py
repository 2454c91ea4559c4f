"""Rules of alerts: what each condition finds, that it is told once, and that it is over when it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from cronwell import errors
from cronwell.control import alerting
from cronwell.model.alert_messages import Alert
from cronwell.model.execution import State
from cronwell.runtime.clock import ManualClock
from cronwell.scheduler.chores import alert_evidence
from cronwell.scheduler.chores.alerting import MOST_OPEN, Alerting
from cronwell.store.port import Transaction
from tests.roles.alerts import HOUR, MINUTE, channel, incidents, judge, messages, rule, run, told
from tests.support.house import TENANT, House

SECOND = timedelta(seconds=1)
Break = Callable[[House], Awaitable[object]]


@pytest.fixture
async def house(still_house: House) -> House:
    await channel(still_house)
    return still_house


async def _both(house: House, wrong: Break, mended: Break, clock: ManualClock) -> list[str]:
    """What is told while something is well, wrong, and well again; each is looked at twice."""
    for change in (None, wrong, mended):
        if change is not None:
            await change(house)
        for _ in range(2):
            await judge(house)
            clock.advance(SECOND)
    return await told(house)


CONDITIONS: dict[str, tuple[dict[str, Any], list[State], str]] = {
    "failing": ({"consecutive_failures": 2}, [State.FAILED, State.FAILED], "failed 2 times in a row"),
    "flaky": (
        {"failure_rate": {"above": 0.5, "over": "1h", "at_least": 3}},
        [State.FAILED, State.FAILED, State.SUCCEEDED, State.FAILED],
        "3 of 4 executions in 1h failed",
    ),
    "waiting": ({"late": "10m"}, [State.PENDING], "an execution waits 30m after its time"),
    "hanging": ({"running": "10m"}, [State.RUNNING], "has been running for 30m"),
}


async def test_a_job_is_judged_by_its_executions_whether_it_is_named_tagged_or_one_of_all(
    house: House, clock: ManualClock
) -> None:
    jobs = {name: await house.create(name, tags={"team": name, "x": "y"}) for name in (*CONDITIONS, "well")}
    for name, (when, _, _) in CONDITIONS.items():
        await rule(house, {"job": name}, when, f"{name}-by-name")
        await rule(house, {"tags": {"team": name}}, when, f"{name}-by-tag")
        await rule(house, {"tags": {"team": "well"}}, when, f"{name}-elsewhere")
        await rule(house, "tenant", when, f"{name}-by-tenant")

    async def go_wrong(house: House) -> None:
        await run(house, jobs["well"], State.SUCCEEDED)
        for name, (_, states, _) in CONDITIONS.items():
            for place, state in enumerate(states):
                await run(house, jobs[name], state, (30 - place) * MINUTE)

    async def mend(house: House) -> None:
        await house.database.execute(
            "update executions set state = 'succeeded' where state in ('running', 'failed')"
        )
        await house.database.execute(
            "update executions set state = 'cancelled' where reason is null and state = 'pending'"
        )

    said = await _both(house, go_wrong, mend, clock)
    wanted = [
        f"{event} {name}: {words}"
        for name, (_, _, words) in CONDITIONS.items()
        for event in ("opened", "resolved")
        for _ in range(3)
    ]
    assert sorted(said) == sorted(wanted)
    found = await incidents(house)
    assert {each.rule for each in found if "elsewhere" in each.rule} == set()
    assert {(each.state, each.job_id == jobs[each.job or ""], *each.told) for each in found} == {
        ("resolved", True, "hook")
    }


async def test_what_has_not_ended_or_was_not_run_is_neither_failure_nor_success(house: House) -> None:
    job = await house.create("job")
    await rule(house, {"job": "job"}, {"consecutive_failures": 2})
    for minutes, state in enumerate(
        [State.RETRYING, State.SKIPPED, State.FAILED, State.CANCELLED, State.FAILED, State.SUCCEEDED], start=1
    ):
        await run(house, job, state, minutes * MINUTE)
    # What somebody runs again of the past says nothing of the present.
    await run(house, job, State.SUCCEEDED, 90 * SECOND, kind="backfill")
    await judge(house)
    assert await told(house) == ["opened job: failed 2 times in a row"]


async def test_a_late_start_is_told_though_nothing_waits_any_more(house: House) -> None:
    job = await house.create("job")
    await rule(house, {"job": "job"}, {"late": "1m"})
    await run(house, job, State.SUCCEEDED, 10 * MINUTE, started_after=5 * MINUTE)
    await judge(house)
    assert await told(house) == ["opened job: started 5m after its time"]


async def test_a_success_that_does_not_come_is_missed(house: House, clock: ManualClock) -> None:
    job = await house.create("job", schedule="@daily", tags={"team": "a"})
    await house.create("by-hand")
    await house.create("paused", schedule="@daily", tags={"team": "a"})
    await house.jobs.pause(TENANT, "name:paused")
    for name, on in (("name", {"job": "job"}), ("tag", {"tags": {"team": "a"}}), ("tenant", "tenant")):
        await rule(house, on, {"missed": "2h"}, name)

    async def miss(house: House) -> None:
        await run(house, job, State.SUCCEEDED, 30 * MINUTE)
        clock.advance(125 * MINUTE)
        await run(house, job, State.FAILED)

    said = await _both(house, miss, lambda house: run(house, job, State.SUCCEEDED), clock)
    words = "job: had no success within 2h; the last was at 2026-05-05T11:30:02Z"
    assert sorted(said) == [f"opened {words}"] * 3 + [f"resolved {words}"] * 3


async def test_a_job_that_is_new_or_resumed_has_its_time(house: House, clock: ManualClock) -> None:
    await house.create("job", schedule="@daily")
    await rule(house, "tenant", {"missed": "2h"})
    clock.advance(3 * HOUR)
    await house.jobs.pause(TENANT, "name:job")
    await house.jobs.resume(TENANT, "name:job")
    await judge(house)
    assert await told(house) == []
    clock.advance(3 * HOUR)
    await judge(house)
    assert await told(house) == ["opened job: had no success within 2h; none is known"]


async def test_more_executions_than_are_looked_through_tell_nothing(
    house: House, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_evidence, "DEEP", 2)
    job = await house.create("job", schedule="@daily")
    clock.advance(5 * HOUR)
    await rule(house, {"job": "job"}, {"missed": "2h"})
    for minutes in (1, 2):
        await run(house, job, State.SKIPPED, minutes * MINUTE)
    await judge(house)
    assert await told(house) == []


async def test_dead_letters_are_counted_together(house: House, clock: ManualClock) -> None:
    first = await house.create("first", tags={"team": "a"})
    second = await house.create("second", tags={"team": "a"})
    third = await house.create("third")
    await rule(house, {"tags": {"team": "a"}}, {"dead_letters": 2}, "by-tag")
    await rule(house, {"job": "first"}, {"dead_letters": 2}, "by-job")
    await rule(house, "tenant", {"dead_letters": 3}, "by-tenant")

    async def die(house: House) -> None:
        for minutes, job in enumerate([first, first, second, third], start=1):
            await run(house, job, State.FAILED, minutes * MINUTE)

    async def dismiss(house: House) -> None:
        await house.database.execute("update executions set state = 'cancelled' where state = 'failed'")

    said = await _both(house, die, dismiss, clock)
    assert sorted(said) == [
        "opened 4 dead letters, more than 3 are too many",
        "opened team=a: 3 dead letters, more than 2 are too many",
        "resolved 4 dead letters, more than 3 are too many",
        "resolved team=a: 3 dead letters, more than 2 are too many",
    ]


async def test_a_queue_and_workers_are_the_tenants_matter(house: House, clock: ManualClock) -> None:
    job = await house.create("job")
    await rule(house, "tenant", {"queue_depth": {"above": 1, "pool": "default"}}, "queue")
    await rule(house, "tenant", {"queue_depth": {"above": 1, "pool": "other"}}, "other-queue")
    await rule(house, "tenant", {"workers": {"at_least": 1}}, "workers")
    await run(house, job, State.PENDING, MINUTE)
    await run(house, job, State.PENDING, 2 * MINUTE)
    await judge(house)
    assert sorted(await told(house)) == [
        "opened 0 workers of the pool 'default', where 1 should be",
        "opened more than 1 execution wait in the pool 'default'",
    ]
    clock.advance(SECOND)
    await house.enter()
    await house.database.execute("delete from executions where reason is null")
    await judge(house)
    assert sorted(await told(house))[2:] == [
        "resolved 0 workers of the pool 'default', where 1 should be",
        "resolved more than 1 execution wait in the pool 'default'",
    ]
    # Its lease has run out, and nobody has swept it yet.
    clock.advance(HOUR)
    await judge(house)
    assert (await told(house))[4:] == ["opened 0 workers of the pool 'default', where 1 should be"]


async def test_quiet_hours_hold_back_what_begins_and_what_ends(house: House, clock: ManualClock) -> None:
    quiet = [{"from": "13:00", "to": "14:00", "timezone": "UTC"}]
    first, second, third = [await house.create(name) for name in ("first", "second", "third")]
    await rule(house, "tenant", {"consecutive_failures": 1}, quiet=quiet)
    await run(house, first, State.FAILED)
    await judge(house)
    assert await told(house) == ["opened first: failed"]
    clock.advance(HOUR)
    for job in (second, third):
        await run(house, job, State.FAILED)
    await run(house, first, State.SUCCEEDED)
    await judge(house)
    clock.advance(30 * MINUTE)
    await run(house, third, State.SUCCEEDED)
    await judge(house)
    assert (await told(house))[1:] == []
    assert {each.job: (each.state, each.told) for each in await incidents(house)} == {
        "first": ("resolved", ["hook"]),
        "second": ("open", []),
        "third": ("resolved", []),
    }
    clock.advance(30 * MINUTE)
    await asyncio.gather(*(judge(house) for _ in range(4)))
    # Of the third nobody ever heard.
    assert sorted((await told(house))[1:]) == ["opened second: failed", "resolved first: failed"]


async def test_what_goes_on_is_told_again_where_that_is_asked_for(house: House, clock: ManualClock) -> None:
    job = await house.create("job")
    await rule(house, {"job": "job"}, {"consecutive_failures": 1}, repeat="1h")
    await run(house, job, State.FAILED)
    for _ in range(5):
        await asyncio.gather(*(judge(house) for _ in range(3)))
        clock.advance(30 * MINUTE)
    assert await told(house) == ["opened job: failed", "repeated job: failed", "repeated job: failed"]
    await run(house, job, State.FAILED)
    clock.advance(30 * MINUTE)
    await judge(house)
    assert (await told(house))[-1] == "repeated job: failed 2 times in a row", "as it stands now"


async def test_a_herd_that_fails_is_told_in_few_messages(house: House, clock: ManualClock) -> None:
    jobs = [await house.create(f"job-{number:02d}") for number in range(MOST_OPEN + 5)]
    await rule(house, "tenant", {"consecutive_failures": 1})
    for job in jobs:
        await run(house, job, State.FAILED)
    for _ in range(3):
        await judge(house)
        clock.advance(SECOND)
    said = await messages(house)
    assert len(said) == MOST_OPEN + 1
    [others] = [each for each in said if each["job"] is None]
    assert others["facts"] == {"condition": "consecutive_failures", "jobs": 5}
    for job in jobs:
        await run(house, job, State.SUCCEEDED, SECOND)
    for _ in range(3):
        await judge(house)
        clock.advance(SECOND)
    said = await messages(house)
    assert [each["event"] for each in said].count("resolved") == MOST_OPEN + 1
    assert len(said) == 2 * (MOST_OPEN + 1)


async def test_many_jobs_are_walked_through_in_parts(
    house: House, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_evidence, "SLICE", 2)
    monkeypatch.setattr(alert_evidence, "SLICES", 1)
    for number in range(5):
        await house.create(f"job-{number}", schedule="@daily")
    clock.advance(HOUR)
    await rule(house, "tenant", {"missed": "10m"})
    chore = house.alerting()
    seen = []
    for _ in range(4):
        await chore.run_once()
        clock.advance(SECOND)
        seen.append(len(await incidents(house)))
    # The channel's own job is passed on the way.
    assert (seen[0] <= 2, seen[1] <= 4, seen[2:]) == (True, True, [5, 5])


async def test_schedulers_that_judge_at_once_tell_once(house: House, clock: ManualClock) -> None:
    jobs = [await house.create(f"job-{number}") for number in range(5)]
    await rule(house, "tenant", {"consecutive_failures": 1})
    for state in (State.FAILED, State.SUCCEEDED):
        for job in jobs:
            await run(house, job, state, timedelta(seconds=1))
        await asyncio.gather(*(house.alerting().run_once() for _ in range(5)))
        clock.advance(MINUTE)
    said = await told(house)
    assert (len(said), len(set(said))) == (10, 10)


@pytest.mark.parametrize("broken", ["insert_execution", "mark_told", "mark_settled", "get_channels"])
async def test_a_scheduler_that_dies_in_between_has_told_nothing_and_forgotten_nothing(
    house: House, clock: ManualClock, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await house.create("job")
    await rule(house, {"job": "job"}, {"consecutive_failures": 1})

    deaths = 0

    async def die(*_: object) -> None:
        nonlocal deaths
        deaths += 1
        raise errors.StoreUnavailable("killed")

    for state in (State.FAILED, State.SUCCEEDED):
        await run(house, job, state, SECOND)
        before, died = await told(house), deaths
        with monkeypatch.context() as patch:
            async with house.store.transaction() as transaction:
                patch.setattr(type(transaction), broken, die)
            await judge(house)
        assert deaths == died or await told(house) == before
        await judge(house)
        clock.advance(MINUTE)
    assert deaths > 0
    assert await told(house) == ["opened job: failed", "resolved job: failed"]


class HeldUp(Alerting):
    """A scheduler that is held up after it looked, while something else happens."""

    def __init__(self, house: House, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(house.store, house.bus, house.clock, house.settings)
        self._meanwhile = meanwhile

    async def _write_down(self, *args: Any) -> int:
        await self._meanwhile()
        return await super()._write_down(*args)


async def test_who_was_held_up_does_not_open_what_has_been_over_since(
    house: House, clock: ManualClock
) -> None:
    job = await house.create("job")
    await rule(house, {"job": "job"}, {"consecutive_failures": 1})
    await run(house, job, State.FAILED, SECOND)

    async def come_and_go() -> None:
        await judge(house)
        clock.advance(MINUTE)
        await run(house, job, State.SUCCEEDED, SECOND)
        await judge(house)

    await HeldUp(house, come_and_go).run_once()
    assert await told(house) == ["opened job: failed", "resolved job: failed"]


async def test_who_was_held_up_does_not_end_what_has_begun_since(house: House, clock: ManualClock) -> None:
    job = await house.create("job")
    await rule(house, {"job": "job"}, {"consecutive_failures": 1})
    await run(house, job, State.FAILED, SECOND)
    await judge(house)
    clock.advance(MINUTE)
    await run(house, job, State.SUCCEEDED, SECOND)

    async def go_and_come() -> None:
        await judge(house)
        clock.advance(MINUTE)
        await run(house, job, State.FAILED, SECOND)
        await judge(house)

    await HeldUp(house, go_and_come).run_once()
    assert await told(house) == ["opened job: failed", "resolved job: failed", "opened job: failed"]
    assert [each.state for each in await incidents(house)] == ["open", "resolved"]


async def test_who_was_held_up_opens_nothing_of_a_rule_that_is_gone(house: House) -> None:
    job = await house.create("job")
    await rule(house, {"job": "job"}, {"consecutive_failures": 1})
    await run(house, job, State.FAILED)
    await HeldUp(house, lambda: house.alerts.delete_rule(TENANT, "rule")).run_once()
    assert (await incidents(house), await told(house)) == ([], [])


async def test_who_was_told_in_the_last_moment_is_told_the_end(house: House, clock: ManualClock) -> None:
    job = await house.create("job")
    await rule(house, {"job": "job"}, {"consecutive_failures": 1}, quiet=[{"from": "12:00", "to": "12:30"}])
    await run(house, job, State.FAILED)
    await judge(house)
    clock.advance(HOUR)
    await run(house, job, State.SUCCEEDED)

    async def tell() -> None:
        [incident] = await house.store.unsettled_incidents((0, UUID(int=0)), 10)
        async with house.store.transaction() as transaction:
            await alerting.tell_beginning(
                transaction, incident, ["hook"], pool="default", now=house.clock.now()
            )

    await HeldUp(house, tell).run_once()
    await judge(house)
    assert await told(house) == ["opened job: failed", "resolved job: failed"]


async def test_a_rule_that_is_deleted_takes_its_incidents_along(house: House, clock: ManualClock) -> None:
    job = await house.create("job")
    await rule(house, {"job": "job"}, {"consecutive_failures": 1})
    await run(house, job, State.FAILED)
    await judge(house)
    await house.alerts.delete_rule(TENANT, "rule")
    await judge(house)
    assert await told(house) == ["opened job: failed", "resolved job: failed"]
    [incident] = await incidents(house)
    assert incident.outcome == "the rule was deleted"


async def test_a_rule_that_changes_judges_its_incidents_anew(house: House, clock: ManualClock) -> None:
    job = await house.create("job")
    await rule(house, {"job": "job"}, {"consecutive_failures": 1})
    await run(house, job, State.FAILED)
    await judge(house)
    clock.advance(SECOND)
    await rule(house, {"job": "job"}, {"consecutive_failures": 5})
    await judge(house)
    assert await told(house) == ["opened job: failed", "resolved job: failed"]


async def test_an_incident_of_a_job_that_is_gone_is_over(house: House, clock: ManualClock) -> None:
    job = await house.create("job")
    await rule(house, "tenant", {"consecutive_failures": 1})
    await run(house, job, State.FAILED)
    await judge(house)
    clock.advance(SECOND)
    await house.jobs.delete(TENANT, "name:job")
    await judge(house)
    assert [each.outcome for each in await incidents(house)] == ["is gone"]


async def test_a_channels_own_failures_open_no_incident_of_their_own(house: House) -> None:
    await rule(house, "tenant", {"consecutive_failures": 1})
    await house.alerts.test(TENANT, "hook")
    await house.database.execute("update executions set state = 'failed'")
    await judge(house)
    assert await incidents(house) == []


async def test_a_rule_that_cannot_be_read_keeps_no_other_from_being_judged(house: House) -> None:
    job = await house.create("job")
    await rule(house, {"job": "job"}, {"consecutive_failures": 1}, "a-newer-release")
    await house.database.execute("""update alert_rules set content = '{"when": {"hums": true}}'""")
    await rule(house, {"job": "job"}, {"consecutive_failures": 1}, "fine")
    await run(house, job, State.FAILED)
    await judge(house)
    assert await told(house) == ["opened job: failed"]


async def test_incidents_are_forgotten_with_history(house: House, clock: ManualClock) -> None:
    job = await house.create("job")
    await rule(house, {"job": "job"}, {"consecutive_failures": 1})
    await run(house, job, State.FAILED)
    await judge(house)
    clock.advance(house.settings.retention.executions + HOUR)
    await judge(house)
    assert len(await incidents(house, is_open=True)) == 1
    await house.alerts.delete_rule(TENANT, "rule")
    clock.advance(house.settings.retention.executions + HOUR)
    await judge(house)
    assert await incidents(house) == []


async def test_what_takes_too_long_for_one_tenant_keeps_no_other_waiting(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await house.create("job")
    await rule(house, {"job": "job"}, {"consecutive_failures": 1})
    await run(house, job, State.FAILED)
    await house.database.execute(
        "insert into tenants (id, name, signing_secret) values (0, 'slow', 'whsec_')"
    )
    await house.database.execute(
        "insert into alert_rules select 0, id, revision, content, channels, created_at, updated_at from alert_rules"
    )
    read = alert_evidence.Evidence.read

    async def slow(evidence: alert_evidence.Evidence) -> None:
        if evidence.tenant_id == 0:
            raise errors.StoreUnavailable("canceling statement due to statement timeout")
        await read(evidence)

    monkeypatch.setattr(alert_evidence.Evidence, "read", slow)
    await house.alerting().run_once()
    assert await told(house) == ["opened job: failed"]


async def test_messages_wait_for_no_quota_of_their_tenant(house: House) -> None:
    await house.database.execute(
        "update tenants set max_running = 1, max_per_minute = 1 where id = $1", TENANT
    )
    await house.alerts.test(TENANT, "hook")
    await house.create("job")
    await house.trigger("job")
    gates = await house.database.fetch("select reason, gate, priority from executions order by reason")
    assert [tuple(row) for row in gates] == [("alert", None, 0), ("triggered", "", 4)]


async def test_messages_of_one_moment_are_all_sent(house: House) -> None:
    """Two incidents may begin in the same microsecond."""
    alert = Alert("test", None, None, "info", "both", house.clock.now())

    async def say(transaction: Transaction) -> int:
        now = house.clock.now()
        return len(await alerting.tell(transaction, TENANT, alert, ["hook"], pool="default", now=now))

    async with house.store.transaction() as transaction:
        assert [await say(transaction) for _ in range(3)] == [1, 1, 1]
    assert len(await told(house)) == 3
