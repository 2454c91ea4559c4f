"""Events of what users ask for, and their requests."""

from __future__ import annotations

from datetime import timedelta

import structlog

from cronwell.meters import REQUESTS

_log: structlog.stdlib.BoundLogger = structlog.get_logger("cronwell")


def secret_changed(what: str, *, name: str, by: str, **facts: object) -> None:
    """Somebody set or deleted a secret; its value is never told."""
    _log.info(f"secret {what}", name=name, by=by, **facts)


def secrets_rewrapped(*, count: int, key: str, by: str) -> None:
    """Secrets are encrypted by way of another key of the installation."""
    _log.info("secrets rewrapped", count=count, key=key, by=by)


def limit_changed(target: str, *, rate: str | None, concurrency: int | None) -> None:
    """What a target bears is another from now on."""
    _log.info("limit changed", target=target, rate=rate, concurrency=concurrency)


def rezoned(action: str, *, count: int, tzdata: str) -> None:
    """The rules of zones have changed, and with them next slots; those that wait are listed by `tzdata impact`."""
    done = {"apply": "were moved", "hold": "were held", "ask": "wait for a decision"}[action]
    level = _log.warning if action == "ask" else _log.info
    level(f"next slots {done}: the rules of their zones have changed", count=count, tzdata=tzdata)


def job_changed(change: str, *, job: str, name: str, **facts: object) -> None:
    _log.info(f"job {change}", job=job, name=name, **facts)


def calendar_changed(name: str, *, revision: int) -> None:
    """A calendar was written; revision 0: it was deleted."""
    _log.info("calendar changed", calendar=name, revision=revision)


def alerting_changed(what: str, *, name: str, revision: int) -> None:
    """A rule or a channel of alerts was written; revision 0: it was deleted."""
    _log.info(f"{what} of alerts changed", name=name, revision=revision)


def access_changed(change: str, **facts: object) -> None:
    """Who may come in is no longer the same."""
    _log.info(change, **facts)


def node_changed(change: str, *, node: str, name: str) -> None:
    _log.info(f"process {change}", node=node, name=name)


def execution_changed(change: str, *, execution: str, **facts: object) -> None:
    _log.info(f"execution {change}", execution=execution, **facts)


def request_began(request_id: str) -> None:
    """What this request leads to is logged with its id."""
    structlog.contextvars.bind_contextvars(request_id=request_id)


def request_admitted(caller: str) -> None:
    """And with who sent it."""
    structlog.contextvars.bind_contextvars(caller=caller)


def request_answered(*, method: str, route: str, status: int, took: timedelta) -> None:
    REQUESTS.labels(method, route, str(status)).observe(took.total_seconds())


def request_failed(*, method: str, path: str, error: BaseException) -> None:
    _log.error("a request failed", method=method, path=path, exc_info=error)
