"""Where the API keeps what a user names on the command line."""

from __future__ import annotations

from urllib.parse import quote
from uuid import UUID


def job_reference(given: str) -> str:
    """A job as the API names it: its id, or `name:` and its name. A name may be given alone."""
    return given if _is_uuid(given) else "name:" + given.removeprefix("name:")


def job_path(given: str) -> str:
    return f"/v1/jobs/{_quoted(job_reference(given))}"


def execution_path(execution_id: str) -> str:
    return f"/v1/executions/{_quoted(execution_id)}"


def dead_letter_path(execution_id: str) -> str:
    return f"/v1/dead-letters/{_quoted(execution_id)}"


def calendar_path(name: str) -> str:
    return f"/v1/calendars/{_quoted(name)}"


def override_path(job: str, slot: str) -> str:
    return f"{job_path(job)}/overrides/{_quoted(slot)}"


def backfill_path(backfill_id: str) -> str:
    return f"/v1/backfills/{_quoted(backfill_id)}"


def key_path(key_id: str) -> str:
    return f"/v1/keys/{_quoted(key_id)}"


def secret_path(name: str) -> str:
    return f"/v1/secrets/{_quoted(name)}"


def tenant_path(name: str) -> str:
    return f"/v1/tenants/{_quoted(name)}"


def limit_path(target: str) -> str:
    return f"/v1/limits/{_quoted(target)}"


def host_path(host: str) -> str:
    return f"/v1/hosts/{_quoted(host)}"


def rule_path(name: str) -> str:
    return f"/v1/alerts/rules/{_quoted(name)}"


def channel_path(name: str) -> str:
    return f"/v1/alerts/channels/{_quoted(name)}"


def node_path(node: str) -> str:
    return f"/v1/cluster/nodes/{_quoted(node)}"


def _quoted(text: str) -> str:
    # An argument that is not UTF-8 reaches us with its bytes escaped; the server may judge them.
    return quote(text, safe=":", errors="surrogateescape")


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
