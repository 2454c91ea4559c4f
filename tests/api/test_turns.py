"""A batch is judged in turns, so that whoever else wants the event loop has it in between."""

from __future__ import annotations

import asyncio
import time

from cronwell.control.drafts import Turn


async def test_who_has_had_a_turn_lets_others_have_theirs_and_not_before() -> None:
    others = 0

    async def other() -> None:
        nonlocal others
        others += 1

    turn = Turn()
    waiting = asyncio.create_task(other())
    await turn.give_way()
    assert others == 0
    ends = time.monotonic() + Turn.LENGTH
    while time.monotonic() < ends:
        pass
    await turn.give_way()
    assert others == 1
    await waiting
