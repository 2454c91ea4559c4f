"""The checker on histories made by hand: a clean one passes, and each promise that is broken is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.faults.checker import PROMISES, check
from tests.faults.history import (
    Body,
    CursorChange,
    Lost,
    Request,
    Row,
    ShardChange,
    Try,
    Window,
    execution_id,
)
from tests.faults.made import JOB, SHARD, SLOTS, START, Made, clean, key, published, slot
from tests.faults.report import Report


def is_key(second: float) -> Callable[[object], bool]:
    return lambda record: getattr(record, "key", None) == key(second)


def is_body(second: float) -> Callable[[Body], bool]:
    return lambda body: body.execution == execution_id(key(second))


def test_a_clean_history_keeps_every_promise() -> None:
    assert check(clean().history()) == []


def test_every_promise_looks_at_the_clean_history() -> None:
    assert len(clean().bodies) == len(SLOTS)
    assert len(PROMISES) == 19


# --- what is right, although it looks odd


def test_a_slot_may_be_skipped_while_an_earlier_execution_is_unfinished() -> None:
    made = clean({"overlap": "skip"})
    made.drop("executions", lambda c: c.key in (key(3), key(4)) and c.op == "update")
    made.drop("bodies", lambda b: is_body(3)(b) or is_body(4)(b))
    made.claim(key(3), 2.6)
    made.deliver(key(3), 3.01, ended=1.5)
    made.write(
        key(4), "update", ("pending", "skipped"), (0, 0), made.stamp(4.1, "worker-1#1"), reason="overlap"
    )
    made.finish(key(3), "succeeded", 4.53)
    made.drop("rows", is_key(4))
    made.rows.append(Row(key(4), "skipped", 0, 0, "overlap"))
    assert check(made.history()) == []


def test_a_lost_attempt_is_tried_again_after_its_lease_beside_the_zombie() -> None:
    made = _retried(second_at=60.0, lease_until=START + 40)
    made.end = dataclasses.replace(made.end, at=START + 70, marked={}, cursors={})
    made.windows.append(Window("SIGSTOP", "worker-1", START + 3, START + 60))
    made.windows.append(Window("cut", "worker-1", START + 1, START + 2))
    history = made.history()
    assert check(history) == []
    lines = {line.fault: line.zombies for line in Report("made", "make it", history, []).lines()}
    assert (lines["SIGSTOP"], lines["cut"], lines["all"]) == (1, 0, 1)


def test_a_delivery_may_arrive_after_the_pause_was_acknowledged_if_it_had_begun_before() -> None:
    made = _paused()
    made.bend("bodies", is_body(5), arrived=START + 5.53, ended=START + 5.55)
    made.bend("executions", lambda c: c.key == key(5) and c.state == "succeeded", at=START + 5.56)
    assert check(made.history()) == []


def test_what_was_paused_while_it_was_due_is_skipped_for_that() -> None:
    made = _paused()
    assert check(made.history()) == []


def _found_out_late(made: Made) -> None:
    """Slot 5 is claimed at 4.6 by a worker that comes to start it at 8 and says that its job has been paused."""
    made.drop("executions", lambda c: c.key == key(5) and c.op == "update")
    made.drop("bodies", is_body(5))
    made.claim(key(5), 4.6)
    made.finish(key(5), "skipped", 8.0)
    made.bend("executions", lambda c: c.key == key(5) and c.state == "skipped", reason="paused")
    made.drop("rows", is_key(5))
    made.rows.append(Row(key(5), "skipped", 1, 0, "paused"))


def test_a_worker_that_comes_late_to_a_start_skips_what_was_paused_meanwhile() -> None:
    made = _paused()
    _found_out_late(made)
    assert check(made.history()) == []


# --- what is wrong


def _retried(second_at: float, lease_until: float) -> Made:
    """Slot 3: a first attempt whose receiver hangs, then, at some time, a second one of another worker."""
    made = clean()
    made.drop("executions", lambda c: c.key == key(3) and c.op == "update")
    made.drop("bodies", is_body(3))
    made.workers[0] = dataclasses.replace(made.workers[0], lease_until=lease_until)
    made.claim(key(3), 2.6)
    made.deliver(key(3), 3.01, ended=None)
    made.finish(key(3), "retrying", second_at - 0.5, process="scheduler-1#1")
    made.claim(key(3), second_at - 0.2, fence=2, worker="w2", process="worker-2#1")
    made.deliver(key(3), second_at, fence=2)
    made.finish(key(3), "succeeded", second_at + 0.03, fence=2, process="worker-2#1")
    made.lost.append(Lost(key(3), 1, 1, "worker_lost"))
    return made


def _paused() -> Made:
    """A pause at 5.5: slots 6 to 9 are unstaged."""
    made = clean(upto=5)
    made.ask("pause", 5.5)
    made.change("paused", 5.5)
    for second in range(6, 10):
        made.write(key(second), "delete", ("pending", None), (0, 0), made.stamp(5.5, "api-1#1"))
    made.cursors.append(
        CursorChange(*made.stamp(5.5, "api-1#1"), JOB, SHARD, "update", slot(10), None, 1, 1, is_held=True)
    )
    made.end = dataclasses.replace(made.end, cursors={})
    return made


def _start_late(made: Made) -> None:
    made.bend("bodies", is_body(5), arrived=START + 5.9, ended=START + 5.95)
    made.bend("rows", is_key(5), started_at=START + 5.89)


def _doubled_row(made: Made) -> None:
    made.rows.append(made.rows[0])


def _staged_twice(made: Made) -> None:
    made.stage(3, made.stamp(2.0, "scheduler-1#1", xid=3))


def _slot_that_is_none(made: Made) -> None:
    made.stage(3.5, made.stamp(0.1, "api-1#1"))
    made.claim(key(3.5), 3.2)
    made.deliver(key(3.5), 3.51)
    made.finish(key(3.5), "succeeded", 3.6)


def _trigger_of_nobody(made: Made) -> None:
    made.write(key(3.5, "manual"), "insert", (None, "pending"), (0, 0), made.stamp(3.5, "api-1#1"))
    made.claim(key(3.5, "manual"), 3.5)
    made.deliver(key(3.5, "manual"), 3.51)
    made.finish(key(3.5, "manual"), "succeeded", 3.6)


def _delivery_of_nothing(made: Made) -> None:
    made.deliver(key(3.5), 3.51)


def _missed(made: Made) -> None:
    for listed in ("executions", "rows"):
        made.drop(listed, is_key(5))
    made.drop("bodies", is_body(5))


def _stuck(made: Made) -> None:
    made.drop("executions", lambda c: c.key == key(9) and c.state == "succeeded")
    made.bend("rows", is_key(9), state="running")


def _skipped(reason: str) -> Callable[[Made], None]:
    def bend(made: Made) -> None:
        made.drop("executions", lambda c: c.key == key(5) and c.op == "update")
        made.drop("bodies", is_body(5))
        made.write(
            key(5), "update", ("pending", "skipped"), (0, 0), made.stamp(5.1, "worker-1#1"), reason=reason
        )
        made.drop("rows", is_key(5))
        made.rows.append(Row(key(5), "skipped", 0, 0, reason))

    return bend


def _failed_too_soon(made: Made) -> None:
    made.bend("executions", lambda c: c.key == key(5) and c.state == "succeeded", state="failed")
    made.bend("rows", is_key(5), state="failed")


def _early(made: Made) -> None:
    made.bend("bodies", is_body(5), arrived=START + 4.98)


def _early_in_the_database(made: Made) -> None:
    made.bend("rows", is_key(5), started_at=START + 4.9)


def _cursor_before_the_insert(made: Made) -> None:
    made.bend("executions", lambda c: c.key == key(5) and c.op == "insert", xid=77, seq=999)
    made.executions.sort(key=lambda c: (c.key != key(5), c.op != "insert", c.seq))


def _cursor_back(made: Made) -> None:
    made.bend("cursors", lambda c: c.xid == 3, new_slot=slot(2))


def _cursor_forked(made: Made) -> None:
    made.bend("cursors", lambda c: c.xid == 3, old_slot=slot(6))


def _cursor_off_the_grid(made: Made) -> None:
    made.bend("cursors", lambda c: c.xid == 3, new_slot=slot(9.5))


def _begun_with_a_gap(made: Made) -> None:
    made.bend("cursors", lambda c: c.op == "insert", new_slot=slot(6))
    made.bend("cursors", lambda c: c.xid == 2, old_slot=slot(6))


def _epoch_back(made: Made) -> None:
    made.shards.append(ShardChange(*made.stamp(0.5, "scheduler-1#1"), SHARD, 1, 1, "m1"))


def _stale_epoch(made: Made) -> None:
    made.shards.append(ShardChange(*made.stamp(1.5, "scheduler-2#1"), SHARD, 1, 2, "m2"))


def _fence_jumps(made: Made) -> None:
    made.bend("executions", lambda c: c.key == key(5) and c.state == "running", fence=3)


def _claimed_while_running(made: Made) -> None:
    made.write(key(5), "update", ("running", "running"), (1, 2), made.stamp(5.02, "worker-2#1"), worker="w2")


def _delivered_twice(made: Made) -> None:
    made.deliver(key(5), 5.3)


def _back_from_the_dead(made: Made) -> None:
    made.write(key(5), "update", ("succeeded", "pending"), (1, 1), made.stamp(6, "scheduler-1#1"))
    made.bend("rows", is_key(5), state="pending")


def _skipped_while_running(made: Made) -> None:
    made.bend(
        "executions", lambda c: c.key == key(5) and c.state == "succeeded", state="skipped", reason="overlap"
    )
    made.bend("rows", is_key(5), state="skipped", reason="overlap")


def _ended_by_another(made: Made) -> None:
    made.bend("executions", lambda c: c.key == key(5) and c.state == "succeeded", process="worker-2#1")


def _lost_create(made: Made) -> None:
    made.ask("create", 3.0, job="other", answer={"id": "b" * 32})


def _lost_trigger(made: Made) -> None:
    made.ask("trigger", 3.0, answer={"id": execution_id(key(3.0, "manual"))})


def _lost_pause(made: Made) -> None:
    made.ask("pause", 9.6)


def _two_answers(made: Made) -> None:
    tries = tuple(Try(START + at, START + at + 0.1, "ok", 201, {"id": f"{at}"}) for at in (3, 4))
    made.requests.append(Request("trigger", "tick", tries, {}, "same"))


def _changed_by_nobody(made: Made) -> None:
    made.change("paused", 9.7)


def _edit_forgotten(made: Made) -> None:
    made.ask("edit", 9.6, schedule="*/2 * * * * *")
    made.change("active", 9.6, revision=2)


def _success_without_a_body(made: Made) -> None:
    made.drop("bodies", is_body(5))


def _success_of_a_failure(made: Made) -> None:
    made.bend("bodies", is_body(5), status=500)


def _success_foreseen(made: Made) -> None:
    made.bend("bodies", is_body(5), arrived=START + 5.2, ended=START + 5.3)


def _random_id(made: Made) -> None:
    made.bend("bodies", is_body(5), execution="0f8fad5b-d9cb-469f-a165-70867728950e")


def _id_of_another_slot(made: Made) -> None:
    made.bend("bodies", is_body(5), slot=slot(6))


def _forged(made: Made) -> None:
    made.bend("bodies", is_body(5), is_verified=False)


def _row_that_the_log_does_not_know(made: Made) -> None:
    made.bend("rows", is_key(5), fence=7)


def _row_from_nowhere(made: Made) -> None:
    made.drop("executions", is_key(5))


def _zombie_at_the_end(made: Made) -> None:
    _stuck(made)
    made.end = dataclasses.replace(made.end, workers={"w1": START + 1})


def _unowned_shard(made: Made) -> None:
    made.end = dataclasses.replace(made.end, marked={**made.end.marked, 7: 0.0})


def _dead_owner(made: Made) -> None:
    made.end = dataclasses.replace(made.end, marked={**made.end.marked, 7: START - 5})


def _forgotten_cursor(made: Made) -> None:
    made.end = dataclasses.replace(made.end, at=START + 300, marked={})


def _late(made: Made) -> None:
    made.bend("bodies", is_body(2), arrived=START + 9, ended=START + 9.1)
    made.bend("executions", lambda c: c.key == key(2) and c.state == "succeeded", at=START + 9.2)


def _late_after_healing(made: Made) -> None:
    made.windows.append(Window("cut", "worker-1", START - 30, START - 12))
    _late(made)


@pytest.mark.parametrize(
    ("promise", "bend"),
    [
        ("S1", _doubled_row),
        ("S1", _staged_twice),
        ("S2", _slot_that_is_none),
        ("S2", _trigger_of_nobody),
        ("S2", _delivery_of_nothing),
        ("S2", _changed_by_nobody),
        ("S3", _missed),
        ("S3", _stuck),
        ("S3", _skipped("overlap")),
        ("S3", _skipped("catch_up")),
        ("S3", _skipped("paused")),
        ("S3", _found_out_late),
        ("S3", _skipped("because")),
        ("S3", _failed_too_soon),
        ("S4", _early),
        ("S4", _early_in_the_database),
        ("S5", _cursor_before_the_insert),
        ("S5", _cursor_back),
        ("S5", _cursor_forked),
        ("S5", _cursor_off_the_grid),
        ("S5", _begun_with_a_gap),
        ("S6", _epoch_back),
        ("S6", _stale_epoch),
        ("S7", _fence_jumps),
        ("S7", _claimed_while_running),
        ("S7", _delivered_twice),
        ("S8", _back_from_the_dead),
        ("S8", _ended_by_another),
        ("S8", _skipped_while_running),
        ("S10", _lost_create),
        ("S10", _lost_trigger),
        ("S10", _lost_pause),
        ("S10", _two_answers),
        ("S10", _edit_forgotten),
        ("S12", _success_without_a_body),
        ("S12", _success_of_a_failure),
        ("S12", _success_foreseen),
        ("S13", _random_id),
        ("S13", _id_of_another_slot),
        ("S13", _forged),
        ("S18", _row_that_the_log_does_not_know),
        ("S18", _row_from_nowhere),
        ("L1", _late),
        ("L6", _late_after_healing),
        ("L9", _zombie_at_the_end),
        ("L9", _unowned_shard),
        ("L9", _dead_owner),
        ("L9", _forgotten_cursor),
    ],
)
def test_a_broken_promise_is_found(promise: str, bend: Callable[[Made], None]) -> None:
    made = clean()
    bend(made)
    assert promise in {violation.promise for violation in check(made.history())}


def test_a_second_body_before_the_lease_has_run_out_is_found() -> None:
    made = _retried(second_at=20.0, lease_until=START + 40)
    assert "S9" in {violation.promise for violation in check(made.history())}


def test_a_start_after_an_acknowledged_pause_is_found() -> None:
    made = _paused()
    _start_late(made)
    assert "S11" in {violation.promise for violation in check(made.history())}


def test_a_start_after_an_acknowledged_delete_is_found() -> None:
    made = _paused()
    made.bend("requests", lambda r: r.verb == "pause", verb="delete")
    _start_late(made)
    assert "S11" in {violation.promise for violation in check(made.history())}


def test_two_executions_of_a_job_that_may_not_overlap_are_found() -> None:
    made = clean({"overlap": "skip"})
    made.bend("bodies", is_body(4), ended=START + 5.5)
    made.bend("executions", lambda c: c.key == key(4) and c.state == "succeeded", at=START + 5.6)
    assert "S14" in {violation.promise for violation in check(made.history())}


@pytest.mark.parametrize(("ended", "is_broken"), [(8.9, False), (3.5, True)])
def test_what_waits_for_its_group_is_late_from_when_there_is_room(ended: float, is_broken: bool) -> None:
    made = clean({"group": {"key": "g", "limit": 1}})
    made.bodies = [body for body in made.bodies if body.slot in (slot(1), slot(2))]
    _late(made)
    made.bend("bodies", is_body(1), ended=START + ended)
    found = [each.promise for each in check(made.history()) if "late" in each.said]
    assert found == (["L1"] if is_broken else [])


# --- messages


def is_message(second: float) -> Callable[[object], bool]:
    return lambda message: getattr(message, "execution", None) == execution_id(key(second))


def test_a_clean_history_of_messages_keeps_every_promise() -> None:
    assert check(published().history()) == []


def _published_again(made: Made) -> None:
    """Slot 3: a first attempt whose answer was lost, and a second one."""
    made.drop("executions", lambda c: c.key == key(3) and c.op == "update")
    made.claim(key(3), 2.6)
    made.finish(key(3), "retrying", 3.1)
    made.claim(key(3), 3.3, fence=2)
    made.publish(key(3), 3.4, fence=2)
    made.finish(key(3), "succeeded", 3.5, fence=2)


def test_a_message_whose_answer_was_lost_may_come_again_with_the_next_fence() -> None:
    made = published()
    _published_again(made)
    assert len(made.history().messages) == len(SLOTS) + 1
    assert check(made.history()) == []


def _unpublished(made: Made) -> None:
    made.drop("messages", is_message(5))


def _published_under_an_earlier_fence_only(made: Made) -> None:
    _published_again(made)
    made.drop("messages", lambda m: m.fence == 2)


def _published_after_success(made: Made) -> None:
    made.bend("messages", is_message(5), at=START + 5.2)


def _published_early(made: Made) -> None:
    made.bend("messages", is_message(5), at=START + 4.9)


def _published_for_nothing(made: Made) -> None:
    made.publish(key(3.5), 3.6)


def _published_with_a_fence_of_nobody(made: Made) -> None:
    made.publish(key(5), 5.02, fence=2)


def _published_before_its_claim(made: Made) -> None:
    _published_again(made)
    made.bend("messages", lambda m: m.fence == 2, at=START + 3.2)


def _published_twice(made: Made) -> None:
    made.publish(key(5), 5.02)


def _published_as_another(made: Made) -> None:
    made.bend("messages", is_message(5), slot="2027-01-15T08:00:06Z")


def _published_by_a_random_id(made: Made) -> None:
    made.bend("messages", is_message(5), execution="0f8fad5b-d9cb-469f-a165-70867728950e")


@pytest.mark.parametrize(
    "bend",
    [
        _unpublished,
        _published_under_an_earlier_fence_only,
        _published_after_success,
        _published_early,
        _published_for_nothing,
        _published_with_a_fence_of_nobody,
        _published_before_its_claim,
        _published_twice,
        _published_as_another,
        _published_by_a_random_id,
    ],
)
def test_a_message_that_breaks_the_promise_is_found(bend: Callable[[Made], None]) -> None:
    made = published()
    bend(made)
    assert {violation.promise for violation in check(made.history())} == {"S16"}


def test_a_violation_shows_what_each_witness_says() -> None:
    made = clean()
    _missed(made)
    text = str(next(each for each in check(made.history()) if each.promise == "S3"))
    for word in ("client: ", "receiver: ", "database: ", "missed"):
        assert word in text
