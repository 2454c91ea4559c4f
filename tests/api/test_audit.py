"""The audit: each change that somebody asked for, once, with who and from where; and nothing can be taken from it."""

from __future__ import annotations

import re
from typing import Any

import asyncpg
import orjson
import pytest

from cronwell.control.paging import write_cursor
from cronwell.runtime.postgres import Database
from cronwell.scheduler.chores.sealing import Sealing
from tests.api.rig import HOURLY, Caller, Rig


async def _changes(api: Caller, object_: str | None = None, **query: str) -> list[dict[str, Any]]:
    """Changes of a thing, the oldest first."""
    asked = {**({} if object_ is None else {"object": object_}), **query}
    text = "&".join(f"{name}={value}" for name, value in asked.items())
    reply = await api.get(f"/v1/audit?limit=1000&{text}")
    assert reply.status == 200, reply.body
    items: list[dict[str, Any]] = reply.json["items"]
    return items[::-1]


async def test_the_life_of_a_job_is_written_down(api: Caller) -> None:
    made = await api.create()
    path = f"/v1/jobs/{made['id']}"
    await api.call("PATCH", path, {"priority": "high"})
    await api.post(f"{path}/pause", {"note": "why"})
    await api.post(f"{path}/resume")
    triggered = (await api.post(f"{path}/trigger")).json
    await api.call("DELETE", path)
    found = await _changes(api, f"job:{made['id']}")
    assert [each["action"] for each in found] == [
        "created",
        "changed",
        "paused",
        "resumed",
        "triggered",
        "deleted",
    ]
    first, changed, paused, *_ = found
    assert first["before"] is None
    assert first["after"]["spec"] == HOURLY
    assert "priority" not in changed["before"]["spec"]
    assert changed["after"]["spec"]["priority"] == "high"
    assert paused["after"]["pause_note"] == "why"
    assert found[4]["after"] == {"execution": triggered["id"]}
    assert {each["actor"] for each in found} == {"loopback"}
    assert {each["source"] for each in found} == {"127.0.0.1"}


async def test_a_change_is_found_by_the_request_that_made_it(api: Caller) -> None:
    reply = await api.call(
        "POST", "/v1/jobs", {**HOURLY, "name": "traced"}, headers={"X-Request-Id": "trace-1"}
    )
    assert reply.status == 201
    [found] = await _changes(api, request_id="trace-1")
    assert (found["request_id"], found["object"]) == ("trace-1", f"job:{reply.json['id']}")
    assert await _changes(api, request_id="trace-2") == []


async def test_what_was_refused_is_no_change(api: Caller) -> None:
    await api.create(name="once")
    before = len(await _changes(api))
    assert (await api.post("/v1/jobs", {**HOURLY, "name": "once"})).status == 409
    assert (await api.post("/v1/jobs", {**HOURLY, "schedule": "nonsense"})).status == 422
    assert (await api.get("/v1/jobs")).status == 200
    assert len(await _changes(api)) == before


async def test_every_job_of_a_batch_is_written_down(api: Caller) -> None:
    lines = b"\n".join(orjson.dumps({**HOURLY, "name": f"batch-{n}"}) for n in range(30))
    reply = await api.call(
        "POST", "/v1/jobs:batch", data=lines, headers={"Content-Type": "application/x-ndjson"}
    )
    ids = {orjson.loads(line)["id"] for line in reply.body.splitlines()}
    found = [each for each in await _changes(api, action="created") if each["object"].startswith("job:")]
    assert ids <= {each["object"].removeprefix("job:") for each in found}


async def test_what_is_done_to_executions_is_written_down(rig: Rig) -> None:
    api = rig.caller
    [first, second, third] = await rig.bury(3, name="dead")
    await api.post(f"/v1/executions/{first}/retry")
    await api.post(f"/v1/executions/{first}/cancel")
    await api.post(f"/v1/dead-letters/{second}/dismiss")
    await api.post("/v1/dead-letters/redrive", {"ids": [str(third)]})
    assert [each["action"] for each in await _changes(api, f"execution:{first}")] == ["retried", "cancelled"]
    assert [each["action"] for each in await _changes(api, f"execution:{second}")] == ["dismissed"]
    assert (await _changes(api, "dead-letters:"))[-1]["after"]["count"] == 1


async def test_calendars_overrides_backfills_keys_and_tenants_are_written_down(api: Caller) -> None:
    await api.call("PUT", "/v1/calendars/closed", {"dates": ["2030-01-01"]})
    await api.call("PUT", "/v1/calendars/closed", {"dates": ["2030-01-02"]})
    await api.call("DELETE", "/v1/calendars/closed")
    assert [each["action"] for each in await _changes(api, "calendar:closed")] == [
        "created",
        "changed",
        "deleted",
    ]
    job = await api.create(name="followed")
    slot = job["next_fire_at"]
    await api.call("PUT", f"/v1/jobs/{job['id']}/overrides/{slot}", {"action": "skip"})
    overridden = [each for each in await _changes(api) if each["object"].startswith(f"override:{job['id']}/")]
    assert [each["action"] for each in overridden] == ["created"]
    key = (await api.post("/v1/keys", {"name": "k", "scopes": ["read"]})).json
    await api.post(f"/v1/keys/{key['id']}/revoke")
    noted = await _changes(api, f"key:{key['id']}")
    assert [each["action"] for each in noted] == ["created", "revoked"]
    secret = key["key"].rpartition("_")[2]
    assert all(secret not in str(each) and "digest" not in (each["after"] or {}) for each in noted)


async def test_a_number_is_kept_as_it_was_written(rig: Rig, api_database: Database) -> None:
    """As a number of the database it would have three hundred digits, and a payload of them would stop the chain."""
    made = await rig.caller.create(name="numbers", payload=[1e308] * 1000)
    size = await api_database.fetchval(
        "select max(length(after::text)) from audit where object = $1", f"job:{made['id']}"
    )
    assert size < 20_000


async def test_drains_and_rules_of_zones_are_written_down(api: Caller) -> None:
    await api.post("/v1/tzdata/apply")
    assert [each["action"] for each in await _changes(api, "tzdata:")][-1] == "tzdata apply"


async def test_entries_are_chained_and_the_chain_is_whole(rig: Rig) -> None:
    api = rig.caller
    await api.create(name="chained")
    sealing = Sealing(rig.store)
    assert await sealing.run_once() > 0
    assert await sealing.run_once() == 0
    found = (await api.get("/v1/audit/check")).json
    assert (found["is_whole"], found["broken_link"], found["waiting"]) == (True, None, 0)
    newest = (await _changes(api))[-1]
    assert (newest["number"], newest["digest"]) == (found["checked"], found["head"])
    assert re.fullmatch(r"[0-9a-f]{64}", found["head"])


@pytest.mark.parametrize(
    "tampering",
    [
        "update audit set actor = 'somebody else' where tenant_id = 1 and id = (select entry from audit_seals where number = 2 and tenant_id = 1)",
        "delete from audit where tenant_id = 1 and id = (select entry from audit_seals where number = 2 and tenant_id = 1)",
        "delete from audit_seals where tenant_id = 1 and number = 2",
        "update audit_seals set digest = sha256('x') where tenant_id = 1 and number = 2",
        "update audit set after = '{}' where tenant_id = 1 and id = (select entry from audit_seals where number = 2 and tenant_id = 1)",
    ],
)
async def test_whoever_gets_round_the_lock_is_found_out(
    tampering: str, rig: Rig, api_database: Database
) -> None:
    for name in ("one", "two", "three"):
        await rig.caller.create(name=name)
    await Sealing(rig.store).run_once()
    with pytest.raises(asyncpg.RaiseError, match="only ever added to"):
        await api_database.execute(tampering)

    links = await _tampered(api_database, tampering)
    numbers = [row["number"] for row in links]
    broken = [row["number"] for row in links if not row["is_whole"]]
    assert broken or numbers != list(range(1, len(numbers) + 1))
    assert min([*broken, 4]) <= 3


async def _tampered(database: Database, tampering: str) -> list[asyncpg.Record]:
    """The chain after a change that a superuser makes, who can switch triggers off; it is undone."""
    async with database.transaction() as connection:
        await connection.execute("set local session_replication_role = replica")
        await connection.execute("savepoint whole")
        await connection.execute(tampering)
        links = await connection.fetch(_CHECK)
        await connection.execute("rollback to savepoint whole")
    return links


_CHECK = """
select s.number, a.id is not null
    and s.digest = sha256(coalesce(b.digest, '') || audit_content(a)) and (s.number = 1 or b.number is not null) as is_whole
from audit_seals as s
left join audit as a on a.tenant_id = s.tenant_id and a.id = s.entry
left join audit_seals as b on b.tenant_id = s.tenant_id and b.number = s.number - 1
where s.tenant_id = 1
order by s.number
"""


async def test_what_schedulers_and_workers_do_is_nobodys_change(rig: Rig) -> None:
    made = await rig.caller.create(name="quiet")
    before = len(await _changes(rig.caller))
    worker = await rig.register()
    await rig.claim(worker)
    assert len(await _changes(rig.caller)) == before
    assert made["name"] == "quiet"


async def test_pages_go_on_where_the_last_one_ended(api: Caller) -> None:
    for n in range(5):
        await api.create(name=f"paged-{n}")
    first = (await api.get("/v1/audit?limit=2")).json
    second = (await api.get(f"/v1/audit?limit=2&cursor={first['next_cursor']}")).json
    ids = [each["id"] for each in first["items"] + second["items"]]
    assert ids == sorted(ids, reverse=True)
    assert len(set(ids)) == 4
    for place in ("x", "²", "9" * 30):
        assert (await api.get(f"/v1/audit?cursor={write_cursor(place)}")).status == 422
