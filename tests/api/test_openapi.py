"""The OpenAPI document is whole, and what it says is what the server does, also under attack."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any
from urllib.request import urlopen

import orjson
import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import negative_data_rejection

from cronwell.api import openapi
from cronwell.api.app import ROUTERS, assemble
from cronwell.config import AuthSettings, DatabaseSettings, SecretSettings, Settings
from cronwell.control.keys import Keys
from cronwell.model.access import ALL_SCOPES, Caller
from cronwell.runtime.clock import DatabaseClock
from cronwell.runtime.postgres import Database
from tests.api.rig import Rig, serving
from tests.support import postgres

ROUTES = """
POST /v1/jobs                        POST /v1/jobs:batch                  GET /v1/jobs
GET /v1/jobs/{id}                    PUT /v1/jobs/{id}                    PATCH /v1/jobs/{id}
DELETE /v1/jobs/{id}                 POST /v1/jobs/{id}/pause             POST /v1/jobs/{id}/resume
POST /v1/jobs/{id}/trigger           GET /v1/jobs/{id}/status             GET /v1/jobs/{id}/executions
GET /v1/jobs/{id}/history            GET /v1/jobs/{id}/upcoming           GET /v1/executions
GET /v1/jobs/{id}/explain            GET /v1/calendars                    GET /v1/calendars/{name}
PUT /v1/calendars/{name}             DELETE /v1/calendars/{name}
GET /v1/jobs/{id}/overrides          PUT /v1/jobs/{id}/overrides/{slot}   DELETE /v1/jobs/{id}/overrides/{slot}
GET /v1/jobs/{id}/graph              POST /v1/executions/{id}/rerun
GET /v1/executions/{id}              POST /v1/executions/{id}/cancel      POST /v1/executions/{id}/retry
GET /v1/dead-letters                 POST /v1/dead-letters/redrive        POST /v1/dead-letters/{id}/dismiss
POST /v1/schedules/preview           GET /v1/cluster                      GET /healthz
GET /readyz                          GET /metrics                         GET /v1/forecast
GET /v1/reconcile                    GET /v1/tzdata/impact                POST /v1/tzdata/apply
POST /v1/tzdata/hold
POST /v1/jobs/{id}/backfills         GET /v1/jobs/{id}/backfills          GET /v1/backfills
GET /v1/backfills/{id}               POST /v1/backfills/{id}/pause        POST /v1/backfills/{id}/resume
POST /v1/backfills/{id}/cancel       POST /v1/cluster/nodes/{id}/drain
POST /v1/callbacks/{token}/complete  POST /v1/callbacks/{token}/fail
POST /v1/callbacks/{token}/progress  POST /v1/callbacks/{token}/checkpoint
POST /v1/callbacks/{token}/heartbeat
GET /v1/audit                        GET /v1/audit/check
GET /v1/alerts/rules                 GET /v1/alerts/rules/{name}          PUT /v1/alerts/rules/{name}
DELETE /v1/alerts/rules/{name}       GET /v1/alerts/channels              GET /v1/alerts/channels/{name}
PUT /v1/alerts/channels/{name}       DELETE /v1/alerts/channels/{name}    POST /v1/alerts/channels/{name}/test
GET /v1/alerts/incidents
POST /v1/keys                        GET /v1/keys                         GET /v1/keys/{id}
PUT /v1/secrets/{name}               GET /v1/secrets                      GET /v1/secrets/{name}
DELETE /v1/secrets/{name}            GET /v1/secret-keys                  POST /v1/secret-keys/rotate
POST /v1/keys/{id}/revoke            POST /v1/keys/{id}/rotate            POST /v1/tenants
GET /v1/tenants                      GET /v1/tenants/{name}               PATCH /v1/tenants/{name}
GET /v1/limits                       GET /v1/limits/{target}              PUT /v1/limits/{target}
DELETE /v1/limits/{target}           GET /v1/hosts                        GET /v1/hosts/{host}
POST /v1/hosts/{host}/close
"""

# More than the suite needs; a deeper search by hand: EXAMPLES=200 pytest tests/api/test_openapi.py
EXAMPLES = int(os.environ.get("EXAMPLES", "8"))

CONFIG = {
    "generation": {"max-examples": EXAMPLES, "deterministic": "EXAMPLES" not in os.environ},
    "checks": {
        # Rules between fields, such as "exactly one kind of target", are beyond a schema: 422 is a fair answer.
        "positive_data_acceptance": {"enabled": False},
        "negative_data_rejection": {
            "expected-statuses": ["400", "401", "404", "405", "409", "412", "413", "415", "422"]
        },
    },
}


@schemathesis.serializer("application/x-ndjson")
def _lines(_: object, value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value, default=str).encode() + b"\n"


@schemathesis.deserializer("application/x-ndjson")
def _first_line(_: object, response: schemathesis.Response) -> Any:
    lines = response.content.splitlines()
    # An empty batch has no results; any result stands in for what is not there.
    return orjson.loads(lines[0]) if lines else {"index": 0, "status": "created"}


@dataclass(frozen=True)
class Address:
    url: str
    key: str


@pytest.fixture(scope="module")
def served(server: str, migrated: str) -> Iterator[Address]:
    """A served interface on a thread of its own: schemathesis calls it without an event loop."""
    address: Future[Address] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        database_url = await postgres.create_database(server, template=migrated)
        database = await Database.connect(DatabaseSettings(), database_url, application_name="test")
        clock = await DatabaseClock.measured(database)
        settings = dataclasses.replace(
            Settings(), auth=AuthSettings(required=True), secrets=SecretSettings(key="ab" * 32)
        )
        async with serving(database, database_url, clock, settings) as rig:
            made = await Keys(rig.store, clock).create(
                Caller(1, ALL_SCOPES, "test"), "test", list(ALL_SCOPES)
            )
            rig.caller.session.headers["Authorization"] = f"Bearer {made.key}"
            await _furnish(rig)
            address.set_result(Address(rig.caller.url, made.key))
            await stop.wait()
        await database.close()
        await postgres.drop_database(server, database_url)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="server")
    thread.start()
    yield address.result(timeout=60)
    loop.call_soon_threadsafe(stop.set)
    thread.join(timeout=30)
    loop.close()


async def _furnish(rig: Rig) -> None:
    """Something of each kind, so that answers have something in them."""
    await rig.bury(2, name="daily-invoices")
    await rig.caller.create(name="paused")
    await rig.caller.post("/v1/jobs/name:paused/pause", {"note": "why not"})
    await rig.caller.post("/v1/jobs/name:paused/trigger")


DOCUMENT = openapi.document(assemble(ROUTERS, None), largest_page=Settings().limits.page)
schema = schemathesis.openapi.from_dict(DOCUMENT, config=SchemathesisConfig.from_dict(CONFIG))


@schema.parametrize()
def test_the_server_does_what_the_document_says(case: schemathesis.Case[Any], served: Address) -> None:
    # A wrong line of a batch fails by itself, inside an answer of 200.
    excluded: list[schemathesis.CheckFunction] = (
        [negative_data_rejection] if case.operation.path == "/v1/jobs:batch" else []
    )
    shown = {"Authorization": f"Bearer {served.key}"}
    case.call_and_validate(base_url=served.url, timeout=30, excluded_checks=excluded, headers=shown)


def test_the_document_is_served(served: Address) -> None:
    with urlopen(f"{served.url}/openapi.json", timeout=10) as answer:
        assert orjson.loads(answer.read()) == orjson.loads(orjson.dumps(DOCUMENT))


def test_every_route_is_in_the_document() -> None:
    paths = DOCUMENT["paths"]
    documented = {f"{method.upper()} {path}" for path, item in paths.items() for method in item}
    assert documented == {
        each.strip() for line in ROUTES.splitlines() for each in line.split("  ") if each.strip()
    }


def test_every_operation_has_a_name_a_summary_and_its_problems() -> None:
    operations = [each for item in DOCUMENT["paths"].values() for each in item.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    for each in operations:
        assert each["summary"].endswith(".")
        assert "422" in each["responses"]
        for status, response in each["responses"].items():
            if int(status) >= 400 and each["operationId"] != "get_readiness_readyz_get":
                assert list(response["content"]) == ["application/problem+json"]


def test_every_field_of_a_job_says_what_it_is() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    parts = (
        "JobSpec",
        "Target",
        "HttpTarget",
        "Callback",
        "ShellTarget",
        "HandlerTarget",
        "PublishTarget",
        "RedisStream",
        "SecretRef",
        "RetryPolicy-Input",
        "OutcomeRule",
        "AfterRule-Input",
        "Upstream",
    )
    described = {
        f"{part}.{field}": schema.get("description", "")
        for part in parts
        for field, schema in schemas[part]["properties"].items()
    }
    assert len(described) > 30
    assert [field for field, said in described.items() if not said.endswith(".")] == []
    patch = DOCUMENT["paths"]["/v1/jobs/{id}"]["patch"]["requestBody"]["content"]["application/json"][
        "schema"
    ]
    assert {name: each["description"] for name, each in patch["properties"].items()} == {
        field.removeprefix("JobSpec."): said
        for field, said in described.items()
        if field.startswith("JobSpec.")
    }


def test_every_moment_says_that_it_is_one() -> None:
    moments = {"slot", "since", "until", "at", "now", "after", "from", "to", "last_run", "next_run"}
    # What a change left behind, who gets mail, and times of every day are no moments, whatever they are called.
    others = {"AuditView.after", "Email.to", "Quiet.from", "Quiet.to"}
    found = {
        f"{name}.{field}": "date-time" in json.dumps(schema)
        for name, model in DOCUMENT["components"]["schemas"].items()
        for field, schema in model.get("properties", {}).items()
        # What a job follows is no moment, whatever it is called.
        if (field in moments or field.endswith("_at"))
        and f"{name}.{field}" not in others
        and not (field == "after" and name.startswith("Job"))
    }
    assert len(found) > 25
    assert [field for field, says_so in found.items() if not says_so] == []


def test_every_reference_leads_somewhere() -> None:
    names = DOCUMENT["components"]["schemas"]

    def walk(value: object) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                assert value["$ref"].removeprefix("#/components/schemas/") in names
            for below in value.values():
                walk(below)
        elif isinstance(value, list):
            for below in value:
                walk(below)

    walk(DOCUMENT)
