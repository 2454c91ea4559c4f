"""The witness that excuses late deliveries says so when the machine stood still, and not otherwise."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.support.receiver import receiving
from tests.support.stalls import Event, Stall, too_late
from tests.support.waiting import until


async def test_a_receiver_that_was_held_up_says_from_when_to_when(tmp_path: Path) -> None:
    with receiving(tmp_path / "receiver") as receiver:
        receiver.process.send_signal(signal.SIGSTOP)
        held = time.time()
        await until(lambda: time.time() > held + 0.3)
        released = time.time()
        receiver.process.send_signal(signal.SIGCONT)
        # On a busy machine there may be shorter ones before it.
        await until(lambda: any(stall.ended >= released for stall in receiver.stalls))
        longest = max(receiver.stalls, key=lambda stall: stall.ended - stall.began)
    assert longest.began < held + 0.05
    assert longest.ended >= released
    assert longest.ended - longest.began > 0.25


def test_only_the_time_for_which_the_machine_stood_still_is_excused() -> None:
    stalls = [Stall(100.1, 100.4), Stall(200.0, 201.0)]
    events = [
        Event("on time", due=100.0, happened=100.2),
        Event("held up", due=100.0, happened=100.5),
        Event("held up and late", due=100.0, happened=100.6),
        Event("late", due=150.0, happened=150.3),
    ]
    failed, excused = too_late(events, 0.25, stalls)
    assert [told.partition(":")[0] for told in failed] == ["held up and late", "late"]
    assert [told.partition(":")[0] for told in excused] == ["held up"]
