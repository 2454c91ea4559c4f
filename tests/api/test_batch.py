"""Many jobs in one request: a result for each line, in order, whatever is wrong with the others."""

from __future__ import annotations

import asyncio
import http.client
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson
import pytest

from cronwell.api import batch
from cronwell.api.batch import CHUNK_LINES, Lines, Spill
from cronwell.control.adding import Created, Judged
from cronwell.control.jobs import Jobs
from cronwell.errors import TooLarge
from cronwell.runtime.clock import ManualClock
from cronwell.runtime.postgres import Database
from tests.api.rig import HOURLY, Caller, Rig, limited, serving
from tests.support.waiting import until_async

NDJSON = {"Content-Type": "application/x-ndjson"}


def line(n: int, **fields: object) -> bytes:
    return orjson.dumps({**HOURLY, "name": f"job-{n}", **fields}) + b"\n"


async def send(api: Caller, data: Any) -> list[dict[str, Any]]:
    reply = await api.call("POST", "/v1/jobs:batch", data=data, headers=NDJSON)
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/x-ndjson")
    return [orjson.loads(each) for each in reply.body.splitlines()]


async def test_each_line_becomes_a_job_that_can_be_found(api: Caller) -> None:
    results = await send(api, line(0) + line(1, schedule=None))
    assert [(each["index"], each["status"], each["name"]) for each in results] == [
        (0, "created", "job-0"),
        (1, "created", "job-1"),
    ]
    found = (await api.get(f"/v1/jobs/{results[0]['id']}")).json
    assert (found["name"], found["next_fire_at"]) == ("job-0", results[0]["next_fire_at"])
    assert results[1]["next_fire_at"] is None


async def test_a_wrong_line_fails_alone_with_its_problem(api: Caller) -> None:
    await api.create(name="taken")
    body = b"".join(
        [
            line(0),
            b"{nonsense\n",
            b"[]\n",
            line(3, schedule="0 25 * * *"),
            line(4, name="taken"),
            line(5),
            line(5),
            line(7, payload="x" * 262_144),
            b'{"name": "\\ud800"}\n',
            b'{"name": "\\u0000"}\n',
            b"\xff\n",
            b"[" * 100_000 + b"\n",
            line(12, schedul="@daily"),
            line(13),
        ]
    )
    results = await send(api, body)
    assert [each["index"] for each in results] == list(range(14))
    assert [each["status"] if "problem" not in each else each["problem"]["status"] for each in results] == [
        "created", 400, 400, 422, 409, "created", 409, 413, 400, 422, 400, 400, 422, "created",
    ]  # fmt: skip
    assert results[3]["problem"]["errors"][0]["field"] == "schedule"
    assert "schedule" in results[12]["problem"]["errors"][0]["accepted"]
    assert len((await api.get("/v1/jobs")).json["items"]) == 4


async def test_blank_lines_do_not_count_and_the_last_needs_no_newline(api: Caller) -> None:
    results = await send(api, b"\n" + line(0) + b"\r\n  \n" + line(1).rstrip())
    assert [(each["index"], each["name"]) for each in results] == [(0, "job-0"), (1, "job-1")]


async def test_an_empty_batch_has_no_results(api: Caller) -> None:
    assert await send(api, b"") == []


async def test_a_batch_of_several_chunks_makes_all_its_jobs(api: Caller) -> None:
    count = CHUNK_LINES * 2 + 10
    results = await send(api, b"".join(line(n) for n in range(count)))
    assert [each["index"] for each in results] == list(range(count))
    assert {each["status"] for each in results} == {"created"}


async def test_a_batch_is_refused_unless_it_is_said_to_be_one(api: Caller) -> None:
    reply = await api.call(
        "POST", "/v1/jobs:batch", data=line(0), headers={"Content-Type": "application/json"}
    )
    assert (reply.status, "application/x-ndjson" in reply.json["detail"]) == (415, True)


async def test_results_come_while_jobs_are_still_being_sent(api: Caller) -> None:
    may_end = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        for n in range(CHUNK_LINES):
            yield line(n)
        await may_end.wait()
        yield line(CHUNK_LINES)

    async with asyncio.timeout(30):
        async with api.session.post(f"{api.url}/v1/jobs:batch", data=body(), headers=NDJSON) as answer:
            first = orjson.loads(await answer.content.readline())
            assert first["name"] == "job-0"
            may_end.set()
            rest = (await answer.read()).splitlines()
    assert len(rest) == CHUNK_LINES


async def test_a_client_that_reads_nothing_before_it_has_sent_all_is_served(rig: Rig) -> None:
    """Its results are more than the buffers between us hold, so they must not wait for it to read."""
    count = 80_000
    body = (b"[" + b" " * 250 + b"]\n") * count

    def exchange() -> bytes:
        connection = http.client.HTTPConnection(urlsplit(rig.caller.url).netloc, timeout=30)
        try:
            connection.request("POST", "/v1/jobs:batch", body, NDJSON)
            return connection.getresponse().read()
        finally:
            connection.close()

    answer = await asyncio.to_thread(exchange)
    assert len(answer) > 15_000_000
    assert answer.count(b'"status":"error"') == answer.count(b"\n") == count


async def test_a_job_or_batch_beyond_its_limit_is_told_so_in_its_place(
    api_database: Database, api_url: str
) -> None:
    whole = len(line(0)) * 3 + 400
    async with serving(api_database, api_url, ManualClock(), limited(body=300, batch_body=whole)) as rig:
        results = await send(rig.caller, line(0) + line(1, description="x" * 300)[:380] + b"\n" + line(2))
        assert [each["status"] for each in results] == ["created", "error", "created"]
        assert results[1]["problem"]["status"] == 413

        async def too_much() -> AsyncIterator[bytes]:
            for n in range(10, 60):
                yield line(n)

        results = await send(rig.caller, too_much())
        assert {each["status"] for each in results[:-1]} == {"created"}
        assert results[-1]["problem"]["status"] == 413
        assert results[-1]["index"] == len(results) - 1
        said = await rig.caller.call(
            "POST", "/v1/jobs:batch", data=b"".join(line(n) for n in range(60)), headers=NDJSON
        )
        assert said.status == 413


async def test_a_client_that_goes_away_leaves_the_server_well(rig: Rig) -> None:
    address = urlsplit(rig.caller.url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        b"POST /v1/jobs:batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
        b"Content-Length: 1000000\r\n\r\n" + line(0)
    )
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert len(await send(rig.caller, line(1))) == 1


async def test_a_batch_that_breaks_does_not_look_complete(rig: Rig, api_database: Database) -> None:
    """Whoever counts results must not take the missing ones for the end."""
    await api_database.execute("alter table jobs rename to away")
    try:
        alone = await rig.caller.post("/v1/jobs", HOURLY)
        with pytest.raises(aiohttp.ClientPayloadError):
            await send(rig.caller, line(0))
    finally:
        await api_database.execute("alter table away rename to jobs")
    assert (alone.status, alone.json["type"]) == (500, "urn:cronwell:internal-error")
    assert b"away" not in alone.body
    assert len(await send(rig.caller, line(0))) == 1


class Body:
    """A request's body as the server hands it over."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self._parts = list(parts)

    async def receive(self) -> dict[str, Any]:
        part = self._parts.pop(0) if self._parts else b""
        return {"type": "http.request", "body": part, "more_body": bool(self._parts)}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
async def test_lines_are_the_same_however_the_body_is_cut(size: int) -> None:
    body = b"one\n\ntwo\r\n" + b"x" * 50 + b"\nthree\n  \nfour"
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    lines = Lines(longest=20, most=1000)
    found = [each async for chunk in lines.chunks(Body(parts).receive) for each in chunk]
    assert [(each.index, each.data) for each in found] == [
        (0, b"one"),
        (1, b"two\r"),
        (2, None),
        (3, b"three"),
        (4, b"four"),
    ]


async def test_a_whole_that_is_too_large_ends_behind_the_last_line_that_fits() -> None:
    lines = Lines(longest=20, most=9)
    chunks = lines.chunks(Body([b"one\ntw", b"o\nthree\n"]).receive)
    assert [each.data for each in await anext(chunks)] == [b"one", b"two"]
    with pytest.raises(TooLarge):
        await anext(chunks)


async def test_a_line_without_end_is_not_kept() -> None:
    tracemalloc.start()
    try:
        # The same bytes again and again: the body itself takes no memory.
        body = Body([b"x" * 65_536] * 2000)
        lines = Lines(longest=1_000_000, most=10**12)
        found = [each async for chunk in lines.chunks(body.receive) for each in chunk]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [each.data for each in found] == [None]
    assert peak < 5_000_000


async def test_what_is_spilled_comes_back_in_order_and_the_rest_is_waited_for() -> None:
    parts = [bytes([n % 256]) * 50_000 for n in range(100)]
    with Spill() as spill:
        for part in parts[:60]:
            spill.write(part)
        reading = asyncio.create_task(_read(spill))
        for part in parts[60:]:
            await asyncio.sleep(0)
            spill.write(part)
        spill.close()
        assert await reading == b"".join(parts)


async def _read(spill: Spill) -> bytes:
    return b"".join([part async for part in spill])


async def test_a_batch_of_nothing_but_errors_is_given_up(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said of two bytes takes hundreds, and nobody may be reading it."""
    monkeypatch.setattr(batch, "MOST_WRONG", 2000)
    reply = await api.call(
        "POST",
        "/v1/jobs:batch",
        data=b"1\n" * 10_000,
        headers={"Content-Type": "application/x-ndjson"},
    )
    results = [orjson.loads(line) for line in reply.body.splitlines()]
    assert 2000 < len(results) < 4002
    assert "was not read" in results[-1]["problem"]["detail"]
    assert results[-1]["problem"]["status"] == 413
    assert [each["index"] for each in results] == list(range(len(results))), "the last says where to go on"


async def test_a_chunk_is_judged_while_the_one_before_is_inserted(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "CHUNK_LINES", 1)
    judge, add = Jobs.judge_many, Jobs.add_many
    is_second_judged = asyncio.Event()
    judged = 0

    async def watched_judge(jobs: Jobs, *asked: Any) -> Judged:
        nonlocal judged
        found = await judge(jobs, *asked)
        judged += 1
        if judged == 2:
            is_second_judged.set()
        return found

    async def waiting_add(jobs: Jobs, *asked: Any) -> list[Created]:
        async with asyncio.timeout(10):
            await is_second_judged.wait()
        return await add(jobs, *asked)

    monkeypatch.setattr(Jobs, "judge_many", watched_judge)
    monkeypatch.setattr(Jobs, "add_many", waiting_add)
    results = await send(api, line(0) + line(1) + line(2))
    assert [(each["index"], each["status"]) for each in results] == [
        (0, "created"),
        (1, "created"),
        (2, "created"),
    ]


async def test_what_a_chunk_above_has_made_is_there_for_those_below(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "CHUNK_LINES", 1)
    follower = {"name": "after-0", "after": ["job-0"], "target": HOURLY["target"]}
    results = await send(api, line(0) + orjson.dumps(follower) + b"\n" + line(0, payload="another") + line(1))
    assert [each["status"] for each in results] == ["created", "created", "error", "created"]
    assert results[2]["problem"]["status"] == 409
    assert (await api.get("/v1/jobs/name:job-0")).json["payload"] != "another"


async def test_a_calendar_that_is_deleted_while_jobs_wait_to_be_inserted_is_told_for_each(
    rig: Rig, api_database: Database
) -> None:
    made = await rig.caller.call("PUT", "/v1/calendars/closed", {"dates": ["2027-01-01"]})
    assert made.status == 201
    schedule = {"cron": "0 3 * * *", "exclude": ["closed"]}
    async with api_database.transaction() as connection:
        await connection.execute("lock table jobs in exclusive mode")
        sent = asyncio.create_task(send(rig.caller, line(1, schedule=schedule) + line(2, schedule=schedule)))
        waiting = "select exists (select from pg_locks where not granted and relation = 'jobs'::regclass)"
        await until_async(lambda: api_database.fetchval(waiting))
        await connection.execute("delete from calendars where name = 'closed'")
    results = await sent
    assert [each["status"] for each in results] == ["error", "error"]
    assert all("closed" in each["problem"]["detail"] for each in results)
