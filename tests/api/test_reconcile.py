"""Reconciliation over HTTP."""

from __future__ import annotations

from datetime import datetime, timedelta
from urllib.parse import quote

import pytest

from cronwell.control.views import write_time
from cronwell.runtime.postgres import Database
from tests.api.rig import Rig


async def _old_job(rig: Rig, database: Database) -> str:
    """A job of every minute that was made two hours ago, of which nothing has been staged since."""
    made = await rig.caller.create(name="old", schedule="* * * * *")
    for table, column in (("jobs", "created_at"), ("jobs", "defined_at")):
        await database.execute(f"update {table} set {column} = {column} - interval '2 hours'")
    await database.execute("select ensure_day((now() - interval '1 day')::date)")
    name: str = made["id"]
    return name


async def test_what_is_missing_in_the_last_hour_is_named(rig: Rig, api_database: Database) -> None:
    job = await _old_job(rig, api_database)
    found = (await rig.caller.get("/v1/reconcile")).json
    assert datetime.fromisoformat(found["to"]) - datetime.fromisoformat(found["from"]) == timedelta(hours=1)
    assert (found["expected"], found["missing"], found["accounted"], found["extra"]) == (60, 60, 0, 0)
    assert (found["jobs"], found["unreadable"], found["shard"], found["next_cursor"]) == (1, 0, None, None)
    assert len(found["differences"]) == 60
    first = found["differences"][0]
    assert (first["kind"], first["job_id"], first["job"]) == ("missing", job, "old")


async def test_a_range_and_a_shard_can_be_asked_for(rig: Rig, api_database: Database) -> None:
    job = await _old_job(rig, api_database)
    now = rig.clock.now()
    since, to = (quote(write_time(now - timedelta(minutes=back))) for back in (30, 20))
    shard = int(job[-2:], 16) % 64
    whole = await rig.caller.get(f"/v1/reconcile?from={since}&to={to}&shard={shard}")
    assert (whole.json["missing"], whole.json["shard"]) == (10, shard)
    other = await rig.caller.get(f"/v1/reconcile?from={since}&to={to}&shard={(shard + 1) % 64}")
    assert (other.json["missing"], other.json["jobs"]) == (0, 0)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("from=yesterday", "from"),
        ("to=2027-13-01T00:00:00Z", "to"),
        ("to=2100-01-01T00:00:00Z", "to"),
        ("from=2000-01-01T00:00:00Z&to=2000-01-01T01:00:00Z", "from"),
        ("from=2000-01-01T00:00:00Z&to=2000-01-03T00:00:00Z", "from"),
        ("from=2000-01-01T02:00:00Z&to=2000-01-01T01:00:00Z", "from"),
        ("shard=64", "shard"),
        ("shard=-1", "shard"),
        ("shard=x", "shard"),
        ("cursor=x", "cursor"),
        ("cursor=WyJ4Il0", "cursor"),
        ("since=1", "since"),
    ],
)
async def test_what_cannot_be_asked_is_refused(
    rig: Rig, api_database: Database, query: str, field: str
) -> None:
    await api_database.execute("select ensure_day(now()::date)")
    reply = await rig.caller.get(f"/v1/reconcile?{query}")
    assert (reply.status, reply.fields) == (422, [field])
