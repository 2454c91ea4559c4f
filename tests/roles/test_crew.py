"""Who works is read once for many jobs, and anew where it matters."""

from __future__ import annotations

from datetime import datetime

import orjson
import pytest

from cronwell.control import crew
from cronwell.store.port import Worker
from tests.support.house import CALLER, House


async def test_workers_are_read_once_for_many_jobs_that_one_of_them_serves(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    read = house.store.list_workers

    async def counted(seen_since: datetime) -> list[Worker]:
        nonlocal looks
        looks += 1
        return await read(seen_since)

    monkeypatch.setattr(house.store, "list_workers", counted)

    async def warned(name: str, **fields: object) -> list[str]:
        raw = {"name": name, "target": "https://example.com/run", **fields}
        body = orjson.loads((await house.jobs.create(CALLER, raw)).body)
        return [each for each in body["warnings"] if "no worker" in each]

    assert [await warned("a"), await warned("b")] == [
        ["no worker serves the pool 'default' at present; executions wait until one does"]
    ] * 2
    assert looks == 2, "somebody may have come meanwhile"
    await house.enter()
    assert await warned("c") == []
    assert looks == 3
    assert await warned("d") == []
    assert looks == 3
    assert len(await warned("e", pool="other")) == 1
    assert len(await warned("f", target={"handler": {"name": "nobody.has"}})) == 1
    assert looks == 5, "those whom nobody may serve"
    assert await warned("g") == []
    assert looks == 5
    monkeypatch.setattr(crew, "FRESH_SECONDS", 0.0)
    assert await warned("h") == []
    assert looks == 6, "a moment later"
