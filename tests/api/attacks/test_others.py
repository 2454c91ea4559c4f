"""What is another tenant's: asked for by its id on every route, it is not there, and stays as it was."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio
from fastapi.routing import APIRoute

from cronwell.api.app import ROUTERS
from cronwell.api.routes import health
from cronwell.model.access import Scope
from cronwell.model.execution import State
from cronwell.runtime.acting import acting_for
from cronwell.runtime.postgres import Database
from cronwell.store.port import Ended, HostState, Incident, Job
from cronwell.store.postgres.store import PostgresStore
from tests.api.attacks.conftest import As, Fortress
from tests.api.rig import serving

JOB = {
    "name": "secret-plan",
    "schedule": "@hourly",
    "target": "https://example.com/secret",
    "tags": {"a": "secret"},
}
HELD = (
    "jobs",
    "job_revisions",
    "cursors",
    "executions",
    "attempts",
    "skips",
    "calendars",
    "calendar_uses",
    "overrides",
    "backfills",
    "idempotency_keys",
    "alert_channels",
    "alert_rules",
    "alert_incidents",
    "api_keys",
    "gates",
    "holds",
    "secrets",
    "secret_uses",
    "dependencies",
    "waiting_slots",
    "audit",
    "audit_seals",
    "audit_unsealed",
    "target_limits",
    "hosts",
)


@dataclass(frozen=True, slots=True)
class Estate:
    """What belongs to the others."""

    owner: As
    ids: dict[str, str]
    """By what stands for each in a path."""


@pytest_asyncio.fixture(loop_scope="session")
async def estate(fortress: Fortress) -> Estate:
    owner = await fortress.key("theirs")
    await owner.call("PUT", "/v1/calendars/secret-days", {"dates": ["2030-01-01"]})
    await owner.call("PUT", "/v1/secrets/secret-token", {"value": "a secret value"})
    schedule = {"cron": "0 * * * *", "exclude": "secret-days"}
    payload = {"token": {"secret": "secret-token"}}
    job = (await owner.call("POST", "/v1/jobs", {**JOB, "schedule": schedule, "payload": payload})).json
    sequel = {"name": "secret-sequel", "target": JOB["target"], "after": ["secret-plan"]}
    assert (await owner.call("POST", "/v1/jobs", sequel)).status == 201
    triggered = (await owner.call("POST", f"/v1/jobs/{job['id']}/trigger", {"payload": "secret"})).json
    rig = fortress.rig
    worker = await rig.register()
    [claim] = await rig.claim(worker, at=rig.clock.now() + timedelta(seconds=1))
    now = rig.clock.now()
    await rig.store.complete(
        [
            Ended(
                tenant_id=fortress.tenant_ids["theirs"],
                key=claim.key,
                fence=claim.fence,
                worker=claim.worker,
                state=State.FAILED,
                result=State.FAILED,  # type: ignore[arg-type]  # spelled alike
                started_at=now,
                finished_at=now,
                error="secret",
                error_kind="http",
                output="secret",
            )
        ]
    )
    slot = job["next_fire_at"]
    await owner.call("PUT", f"/v1/jobs/{job['id']}/overrides/{slot}", {"action": "skip"})
    past = (now - timedelta(hours=3)).isoformat().replace("+00:00", "Z")
    backfill = (
        await owner.call("POST", f"/v1/jobs/{job['id']}/backfills", {"from": past, "note": "secret"})
    ).json
    await owner.call("PUT", "/v1/alerts/channels/secret-channel", {"slack": {"url": "https://example.com/x"}})
    rule = {"on": {"job": "secret-plan"}, "when": {"dead_letters": 0}, "channels": ["secret-channel"]}
    await owner.call("PUT", "/v1/alerts/rules/secret-rule", rule)
    tenant_id = fortress.tenant_ids["theirs"]
    incident = Incident(tenant_id, uuid4(), "secret-rule", "", None, "info", "secret", "{}", now)
    async with rig.store.transaction() as transaction:
        await transaction.open_incident(incident)
    keys = (await owner.call("GET", "/v1/keys")).json["items"]
    await owner.call("PUT", "/v1/limits/host:secret-days.example", {"rate": "1/s"})
    await rig.store.note_hosts(
        [
            HostState(
                *(
                    fortress.tenant_ids["theirs"],
                    "secret-days.example",
                    "open",
                    now,
                    9,
                    1,
                    now,
                    "secret",
                    now,
                ),
            )
        ]
    )
    return Estate(
        owner,
        {
            "/v1/jobs/{id}": job["id"],
            "/v1/jobs/name:{id}": "name:secret-plan",
            "/v1/executions/{id}": triggered["id"],
            "/v1/dead-letters/{id}": triggered["id"],
            "/v1/calendars/{name}": "secret-days",
            "/v1/alerts/channels/{name}": "secret-channel",
            "/v1/alerts/rules/{name}": "secret-rule",
            "/v1/backfills/{id}": backfill["id"],
            "/v1/secrets/{name}": "secret-token",
            "/v1/keys/{id}": keys[0]["id"],
            "/v1/limits/{target}": "host:secret-days.example",
            "/v1/hosts/{host}": "secret-days.example",
            "{slot}": slot,
        },
    )


ROUTES = [
    (method, route.path_format)
    for router in ROUTERS
    if router is not health.router
    for route in router.routes
    if isinstance(route, APIRoute) and "{" in route.path_format and "/v1/tenants" not in route.path_format
    if "/v1/cluster" not in route.path_format and "/v1/callbacks" not in route.path_format
    for method in sorted(route.methods or ())
]
CHANNEL = {"webhook": {"url": "https://example.com/ours"}}
BODIES: dict[str, Any] = {
    "PUT /v1/calendars/{name}": {"dates": ["2031-01-01"]},
    "PUT /v1/limits/{target}": {"rate": "2/s"},
    "PUT /v1/jobs/{id}": JOB,
    "PATCH /v1/jobs/{id}": {"payload": "ours"},
    "PUT /v1/jobs/{id}/overrides/{slot}": {"action": "skip"},
    "POST /v1/jobs/{id}/backfills": {"from": "2026-01-01T00:00:00Z"},
}
# A name is each tenant's own: what another has under it is not touched by making one.
MAKES_OURS: dict[str, object] = {
    "PUT /v1/calendars/{name}": {"dates": ["2031-01-01"]},
    "PUT /v1/limits/{target}": {"rate": "5/s"},
    "PUT /v1/secrets/{name}": {"value": "ours"},
    "PUT /v1/alerts/channels/{name}": CHANNEL,
    "PUT /v1/alerts/rules/{name}": {"on": "tenant", "when": {"dead_letters": 0}, "channels": ["ours"]},
}


async def test_an_id_of_another_tenant_is_not_found_on_any_route(
    fortress: Fortress, estate: Estate, api_database: Database
) -> None:
    before = await _everything(api_database, fortress.tenant_ids["theirs"])
    ours = await fortress.key("ours")
    await ours.call("PUT", "/v1/alerts/channels/ours", CHANNEL)
    wrong = [told for method, path in ROUTES for told in await _reached(method, path, ours, estate)]
    assert (len(ROUTES) > 25, wrong) == (True, [])
    assert await _everything(api_database, fortress.tenant_ids["theirs"]) == before


async def _reached(method: str, path: str, ours: As, estate: Estate) -> list[str]:
    """What a route answers to an id of another tenant, where it is not what it answers to one that nobody has."""
    place = re.match(r"/v1/[a-z-]+(?:/[a-z-]+)?/\{\w+\}", path)
    assert place is not None, path
    named = [estate.ids[place[0]]]
    if place[0] == "/v1/jobs/{id}":
        named.append(estate.ids["/v1/jobs/name:{id}"])
    wrong = []
    for reference in named:
        address = path.replace(place[0], place[0].partition("{")[0] + reference)
        address = address.replace("{slot}", estate.ids["{slot}"])
        if path.endswith("/explain"):
            address += "?at=2027-01-01T00:00:00Z"
        if f"{method} {path}" in MAKES_OURS:
            made = await ours.call(method, address, MAKES_OURS[f"{method} {path}"])
            await ours.call("DELETE", address)
            wrong += [] if made.status == 201 else [f"{method} {address}: {made.status}"]
            continue
        known = await ours.call(method, address, BODIES.get(f"{method} {path}"))
        nowhere = address.replace(reference, "01234567-89ab-7def-8123-456789abcdef")
        unknown = await ours.call(method, nowhere, BODIES.get(f"{method} {path}"))
        told = known.body.replace(reference.removeprefix("name:").encode(), b"")
        for own in (b"secret-plan", b"secret-days", b"secret-token", b"/v1/secrets/", b"there is no secret "):
            told = told.replace(own, b"")
        if (known.status, unknown.status) != (404, 404) or b"secret" in told:
            wrong.append(f"{method} {address}: {known.status} {known.body!r}, {unknown.status}")
    return wrong


async def test_a_job_of_another_tenant_cannot_be_followed(fortress: Fortress, estate: Estate) -> None:
    ours = await fortress.key("ours")
    for reference in (estate.ids["/v1/jobs/{id}"], "secret-plan", "01234567-89ab-7def-8123-456789abcdef"):
        asked = {"name": "spy", "target": JOB["target"], "after": [reference]}
        reply = await ours.call("POST", "/v1/jobs", asked)
        assert (reply.status, reply.json["errors"][0]["message"]) == (422, f"there is no job {reference!r}")


LISTS = [
    "/v1/jobs",
    "/v1/jobs?tag=a:secret",
    "/v1/jobs?name_prefix=secret",
    "/v1/executions",
    "/v1/executions?q=secret",
    "/v1/dead-letters",
    "/v1/calendars",
    "/v1/limits",
    "/v1/hosts",
    "/v1/alerts/channels",
    "/v1/alerts/rules",
    "/v1/alerts/incidents",
    "/v1/backfills",
    "/v1/secrets",
    "/v1/keys?limit=1000",
    "/v1/tzdata/impact",
    "/v1/reconcile",
    "/v1/forecast",
]


async def test_no_list_tells_of_another_tenant(fortress: Fortress, estate: Estate) -> None:
    ours = await fortress.key("ours")
    replies = {path: await ours.call("GET", path) for path in LISTS}
    assert {path: reply.status for path, reply in replies.items() if reply.status != 200} == {}
    # A full hour is nobody's: a forecast that is asked for just before one names it too.
    secrets = ("secret", *(told for place, told in estate.ids.items() if place != "{slot}"))
    assert {
        path: told for path, reply in replies.items() for told in secrets if told.encode() in reply.body
    } == {}


async def test_a_cursor_of_another_tenants_list_leads_through_ours(
    fortress: Fortress, estate: Estate
) -> None:
    await estate.owner.call("POST", "/v1/jobs", {**JOB, "name": "secret-second"})
    page = (await estate.owner.call("GET", "/v1/jobs?limit=1")).json
    ours = await fortress.key("ours")
    reply = await ours.call("GET", f"/v1/jobs?cursor={page['next_cursor']}")
    assert (reply.status, reply.json["items"]) == (200, [])


async def test_an_idempotency_key_of_another_tenant_is_not_replayed(
    fortress: Fortress, estate: Estate
) -> None:
    body = {**JOB, "name": "once"}
    first = await estate.owner.call("POST", "/v1/jobs", body, **{"Idempotency-Key": "shared"})
    ours = await fortress.key("ours")
    second = await ours.call("POST", "/v1/jobs", body, **{"Idempotency-Key": "shared"})
    assert (first.status, second.status) == (201, 201)
    assert first.json["id"] != second.json["id"]


async def test_a_calendar_of_another_tenant_cannot_be_followed(fortress: Fortress, estate: Estate) -> None:
    ours = await fortress.key("ours")
    job = {**JOB, "name": "spy", "schedule": {"cron": "0 * * * *", "exclude": "secret-days"}}
    reply = await ours.call("POST", "/v1/jobs", job)
    assert reply.status == 422
    assert (await ours.call("POST", "/v1/schedules/preview", {"schedule": job["schedule"]})).status == 422


async def test_a_secret_of_another_tenant_cannot_be_named(fortress: Fortress, estate: Estate) -> None:
    ours = await fortress.key("ours")
    for fields in (
        {"payload": {"secret": "secret-token"}},
        {"target": {"http": {"url": "https://example.com", "headers": {"X": {"secret": "secret-token"}}}}},
    ):
        reply = await ours.call("POST", "/v1/jobs", {**JOB, "name": "spy", **fields})
        assert (reply.status, b"there is no secret" in reply.body) == (422, True)


async def test_who_acts_for_a_tenant_cannot_read_even_the_ciphertext_of_its_secrets(
    fortress: Fortress, estate: Estate, api_database: Database
) -> None:
    with acting_for(fortress.tenant_ids["theirs"]):
        assert await api_database.fetchval("select count(*) from secrets") == 1
        for column in ("ciphertext", "wrapped_key"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await api_database.fetchval(f"select {column} from secrets")


async def test_the_database_itself_holds_a_tenant_to_its_rows(
    fortress: Fortress, estate: Estate, api_database: Database
) -> None:
    """Statements that forget to say whose rows they mean find those of nobody else."""
    theirs, ours = fortress.tenant_ids["theirs"], fortress.tenant_ids["ours"]
    empty = set()
    for table in HELD:
        everything = f"select count(*) from {table} where tenant_id = {theirs}"
        delete = f"delete from {table} where tenant_id = {theirs}"
        there = await api_database.fetchval(everything)
        empty |= set() if there else {table}
        with acting_for(ours):
            assert await api_database.fetchval(everything) == 0, table
            if table.startswith("audit") or table in ("gates", "holds"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await api_database.execute(delete)
            else:
                assert await api_database.execute(delete) == "DELETE 0"
            assert await api_database.fetchval("select count(*) from tenants") == 1
        assert await api_database.fetchval(everything) == there
    assert empty <= {
        "job_revisions",
        "attempts",
        "skips",
        "idempotency_keys",
        "audit_seals",
        "gates",
        "holds",
        "waiting_slots",
    }


async def test_a_request_acts_for_its_tenant_whatever_the_code_asks_for(
    fortress: Fortress, estate: Estate, api_database: Database, api_url: str
) -> None:
    """A mistake in a statement, or before it, does not reach over: here all jobs that are asked for are theirs."""
    theirs = fortress.tenant_ids["theirs"]

    class Mistaken(PostgresStore):
        async def list_jobs(self, tenant_id: int, *rest: Any) -> list[Job]:
            return await super().list_jobs(theirs, *rest)

        async def get_job(self, tenant_id: int, job_id: UUID, now: datetime) -> Job | None:
            return await super().get_job(theirs, job_id, now)

    settings = fortress.rig.settings
    async with serving(api_database, api_url, fortress.rig.clock, settings, kind=Mistaken) as mistaken:
        ours = As(mistaken.caller, (await fortress.key("ours")).credential)
        for query in ("", "?tag=a:secret", "?name_prefix=secret", "?state=active"):
            assert (await ours.call("GET", f"/v1/jobs{query}")).json["items"] == []
        assert (await ours.call("GET", f"/v1/jobs/{estate.ids['/v1/jobs/{id}']}")).status == 404
        owner = As(mistaken.caller, estate.owner.credential)
        assert len((await owner.call("GET", "/v1/jobs")).json["items"]) == 2


async def test_who_does_not_say_for_whom_they_act_sees_nothing(
    fortress: Fortress, estate: Estate, api_database: Database
) -> None:
    async with api_database.transaction() as connection:
        await connection.execute("set local role cronwell_tenant")
        assert await connection.fetchval("select count(*) from jobs") == 0


async def test_every_table_with_a_tenant_is_held(api_database: Database) -> None:
    tables = await api_database.fetch(
        """
        select c.relname, c.relrowsecurity and c.relforcerowsecurity as is_held
        from pg_class as c
        join pg_attribute as a on a.attrelid = c.oid and a.attname = 'tenant_id'
        where c.relkind in ('r', 'p') and not c.relispartition and c.relnamespace = 'public'::regnamespace
        """
    )
    assert {row["relname"] for row in tables if row["is_held"]} == set(HELD)
    assert [row["relname"] for row in tables if not row["is_held"]] == []


async def test_an_operator_acts_for_all_and_nobody_else_does(fortress: Fortress) -> None:
    operator = await fortress.key("ours", Scope.OPERATOR)
    names = [each["name"] for each in (await operator.call("GET", "/v1/tenants")).json["items"]]
    assert {"default", "ours", "theirs"} <= set(names)
    assert (await operator.call("GET", "/v1/jobs")).status == 403


async def _everything(database: Database, tenant_id: int) -> list[list[str]]:
    return [
        sorted(
            row["told"]
            for row in await database.fetch(
                f"select t::text as told from {table} as t where tenant_id = $1",
                tenant_id,
            )
        )
        for table in HELD
    ]
