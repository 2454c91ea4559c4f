"""What a dependent is told of the jobs that it follows, by a real worker; and how it is bounded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
import pytest

from cronwell.model.execution import ExecutionKey, Kind, State
from cronwell.store.port import UpstreamResult
from cronwell.targets import delivery, shell
from cronwell.targets.registry import Context
from cronwell.worker.upstreams import LIMIT, gather
from tests.support.house import House
from tests.support.waiting import until
from tests.targets.rig import make_call

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)


def result(name: str, output: str | None, *, is_cut: bool = False) -> UpstreamResult:
    return UpstreamResult(
        name, ExecutionKey(UUID(int=7), Kind.SCHEDULED, NOON), State.SUCCEEDED, output, is_cut
    )


async def test_a_dependent_is_told_what_its_upstreams_ended_with(house: House) -> None:
    told: list[dict[str, Any]] = []

    async def work(ctx: Context) -> str:
        if ctx.job == "load":
            told.append(ctx.upstream)
        return f"rows of {ctx.job}"

    house.registry.add(work, "work")
    await house.create("extract")
    await house.create("load", after=["extract"])
    chaining = house.chaining()
    async with house.working():
        key = await house.trigger("extract")
        await house.until_state(key, State.SUCCEEDED)
        await chaining.run_once()
        await until(lambda: told)
    assert told == [
        {
            "extract": {
                "state": "succeeded",
                "execution": str(key),
                "output": "rows of extract",
                "output_truncated": False,
            }
        }
    ]


@pytest.mark.parametrize("text", ["x", "ü", '"', "\x01"])
def test_outputs_are_cut_to_the_limit_the_longest_first(text: str) -> None:
    told = gather(
        [result("short", "yes"), result("none", None), result("a", text * LIMIT), result("b", text * LIMIT)]
    )
    sizes = {name: len(orjson.dumps(each["output"])) for name, each in told.items()}
    assert sum(sizes.values()) <= LIMIT + len("null")
    assert (told["short"]["output"], told["none"]["output"]) == ("yes", None)
    assert [name for name, each in told.items() if each["output_truncated"]] == ["a", "b"]
    assert sizes["a"] == sizes["b"] > LIMIT * 0.45


def test_what_was_cut_before_is_still_said_to_be() -> None:
    assert gather([result("a", "short", is_cut=True)])["a"]["output_truncated"] is True


def test_each_target_hands_it_on_and_only_to_dependents() -> None:
    told = gather([result("extract", 'it said "yes"')])
    for upstream in (None, told):
        call = make_call({"http": {"url": "https://example.com/run"}})
        call.upstream = upstream
        target = call.target.http
        assert target is not None
        _, request = delivery.build(call, target, 0)
        body = orjson.loads(request.partition(b"\r\n\r\n")[2])
        assert body.get("upstream") == upstream
        command = make_call({"shell": {"command": "true"}})
        command.upstream = upstream
        assert command.target.shell is not None
        environment = shell._environment(command, command.target.shell)
        found = environment.get("CRONWELL_UPSTREAM")
        assert (None if found is None else orjson.loads(found)) == upstream
