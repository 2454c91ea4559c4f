"""Answers of the API as examples for tests; `tests/cli/test_end_to_end.py` holds the commands against the real one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

JOB_ID = "01a1e0e7-7528-7ed2-ab96-ee1e180204a7"
EXECUTION_ID = "01a1e0e775287ed2ab96ee1e180204a7-s-20261115T203035Z"


def moment(ahead: timedelta = timedelta()) -> str:
    return (datetime.now(UTC) + ahead).isoformat().replace("+00:00", "Z")


def job(**fields: Any) -> dict[str, Any]:
    return {
        "name": "hello",
        "description": None,
        "schedule": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "window": None,
        "target": {
            "http": {"url": "https://example.com/run", "method": "POST", "headers": {"X-Team": "a"}},
            "shell": None,
            "handler": None,
        },
        "payload": {"range": "yesterday"},
        "retry": {
            "max_attempts": 4,
            "backoff": "exponential",
            "initial_delay": "10s",
            "max_delay": "1h",
            "jitter": 0.1,
            "outcomes": {},
        },
        "timeout": "10m",
        "priority": "normal",
        "pool": "default",
        "overlap": "skip",
        "max_running": None,
        "catch_up": "last",
        "catch_up_window": None,
        "catch_up_limit": 100,
        "tags": {"team": "billing"},
        "id": JOB_ID,
        "state": "active",
        "revision": 3,
        "next_fire_at": moment(timedelta(hours=2, minutes=5, seconds=30)),
        "pause": None,
        "created_at": moment(-timedelta(days=3)),
        "updated_at": moment(-timedelta(days=1)),
        "deleted_at": None,
        "warnings": [],
        "latest_executions": [],
    } | fields


def execution(**fields: Any) -> dict[str, Any]:
    return {
        "id": EXECUTION_ID,
        "job_id": JOB_ID,
        "job": "hello",
        "kind": "scheduled",
        "slot": moment(-timedelta(seconds=5)),
        "ready_at": moment(-timedelta(seconds=5)),
        "state": "succeeded",
        "reason": None,
        "attempt": 1,
        "fence": 1,
        "revision": 3,
        "priority": "normal",
        "pool": "default",
        "worker": "f07e62e2-c1fb-4c64-be9a-7de2ebeb7c95",
        "claimed_at": moment(-timedelta(seconds=5)),
        "started_at": "2026-11-15T20:30:35.000200Z",
        "finished_at": "2026-11-15T20:30:35.012200Z",
        "lateness_ms": 0.2,
        "cancel_requested_at": None,
        "output": "done",
        "output_truncated": False,
        "error": None,
        "error_kind": None,
        "progress": None,
    } | fields


def page(*items: dict[str, Any], next_cursor: str | None = None) -> dict[str, Any]:
    return {"items": list(items), "next_cursor": next_cursor}


def problem(status: int, title: str, detail: str = "", **members: Any) -> dict[str, Any]:
    return {
        "type": "urn:cronwell:x",
        "title": title,
        "status": status,
        "detail": detail,
        "errors": [],
    } | members
