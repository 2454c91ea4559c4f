"""Events of processes: that they start, share work, lose it, and end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import structlog

from cronwell.meters import (
    CHORES,
    CLAIMS_SHORT,
    COORDINATION_FALLBACK,
    DEPTH,
    FAILOVERS,
    FAILURES,
    FENCED,
    FINDINGS,
    HEARTBEAT_AGE,
    LATE_STARTS,
    LOSS_WINDOW,
    LOSSY_FAILOVERS,
    MEMBERS,
    OLDEST,
    REARMED,
    RESCUED,
    SHARDS_HELD,
    STAGED_UNTIL,
    WATERMARK,
)

_log: structlog.stdlib.BoundLogger = structlog.get_logger("cronwell")


def started(role: str, **facts: object) -> None:
    _log.info(f"{role} is running", **facts)


def stopping(reason: str) -> None:
    _log.info("stopping", reason=reason)


def drain_requested(node: str) -> None:
    """Somebody asked this process to drain."""
    _log.info("stopping: somebody asked this process to drain", node=node)


def child_drained(role: str) -> None:
    _log.warning("a process was drained and is not started again", child=role)


def stopped(role: str) -> None:
    _log.info(f"{role} has stopped")


def service_failed(service: str, error: Exception, retry_in: float) -> None:
    """A round of a service failed and will be tried again."""
    FAILURES.labels(service).inc()
    _log.warning(
        "a round failed",
        service=service,
        error=f"{type(error).__name__}: {error}",
        retry_in_s=round(retry_in, 2),
    )


def keys_not_read(reason: str) -> None:
    """The keys for secrets could not be read; those that were read before are used on."""
    _log.warning("the keys for secrets cannot be read", reason=reason)


def staged_until(at: datetime) -> None:
    STAGED_UNTIL.set(at.timestamp())


def late_starts(count: int) -> None:
    """Executions that could not be started in time were asked for anew, and may start."""
    LATE_STARTS.inc(count)


def claims_shortened(seconds: float) -> None:
    """What others have claimed is in the way of claims, and not cleared away: they go around it."""
    CLAIMS_SHORT.set(1)
    _log.warning(
        "claims pass over what vacuum cannot clear away, and begin where the last ended; look for an old transaction",
        took_s=round(seconds, 3),
    )


def claims_lengthened() -> None:
    CLAIMS_SHORT.set(0)
    _log.info("claims look back to the beginning again")


def duties(*, shards: int, members: int) -> None:
    SHARDS_HELD.set(shards)
    MEMBERS.set(members)


def coordination_fell_back(reason: str) -> None:
    """Schedulers share their duties by way of PostgreSQL until etcd is well again."""
    COORDINATION_FALLBACK.set(1)
    _log.warning("etcd is not gone by; schedulers share by way of PostgreSQL", reason=reason)


def coordination_restored() -> None:
    COORDINATION_FALLBACK.set(0)
    _log.info("schedulers share by way of etcd again")


def watermark(ahead: timedelta) -> None:
    WATERMARK.set(ahead.total_seconds())


def fenced(shards: Iterable[int]) -> None:
    """Staging was refused: others have gone on with these shards."""
    FENCED.inc()
    _log.warning("shards have gone on to another epoch; they are asked for anew", shards=sorted(shards))


def lease_lost(worker: str, attempts: int) -> None:
    _log.error("this worker's lease has ended; its attempts are stopped", worker=worker, attempts=attempts)


def worker_moved(worker: str, *, kept: int, dropped: int) -> None:
    """The database is another server now: what it confirms goes on, the rest was stopped and will be tried again."""
    _log.warning(
        "another database server answers; this worker enters anew", worker=worker, kept=kept, dropped=dropped
    )


def gave_up(reason: str, exit_code: int) -> None:
    """The worker ends itself at once, because it cannot stop its attempts in any other way."""
    _log.critical("this process ends itself", reason=reason, exit_code=exit_code)


def failed_over(incarnation: str, *, is_lossy: bool, window: timedelta) -> None:
    """Another database server answers than before. What was committed in the window before may be lost; if `is_lossy`,
    something was."""
    FAILOVERS.inc()
    LOSSY_FAILOVERS.inc(is_lossy)
    LOSS_WINDOW.set(window.total_seconds())
    level = _log.error if is_lossy else _log.warning
    level(
        "another database server answers, and commits are lost"
        if is_lossy
        else "another database server answers; no commit is known to be lost",
        incarnation=incarnation,
        window_s=round(window.total_seconds(), 3),
    )


def chore_done(chore: str) -> None:
    CHORES.labels(chore).inc()


def findings(kind: str, *, found: int, mended: int, examples: Sequence[str]) -> None:
    """A whole walk of the scanner has found what should not be."""
    FINDINGS.labels(kind).inc(found)
    REARMED.labels(kind).inc(mended)
    _log.warning(
        "the scanner found what should not be",
        kind=kind,
        found=found,
        mended=mended,
        examples=list(examples),
    )


def paged(event: str, *, kind: str, words: str) -> None:
    """The sentinel calls somebody, or says that it is over."""
    level = _log.info if event == "resolve" else _log.critical
    level({"page": "paging", "repeat": "paging again"}.get(event, "resolved"), kind=kind, summary=words)


def sentinel_warned(kind: str, words: str) -> None:
    _log.warning("the sentinel warns", kind=kind, summary=words)


def worker_lost(worker: str) -> None:
    _log.warning("a worker has fallen silent; what it held will be tried again", worker=worker)


def rescued(count: int) -> None:
    RESCUED.inc(count)
    _log.warning("executions were taken back from lost workers", count=count)


def day_made(day: str) -> None:
    _log.info("made room for a day", day=day)


def day_dropped(day: str) -> None:
    _log.info("dropped a day of history", day=day)


def day_kept(day: str) -> None:
    _log.warning("a day past its retention is kept: it has unfinished executions", day=day)


def token_keys_unread(error: str) -> None:
    """The keys of whoever signs tokens cannot be read; those that are known go on to be good."""
    _log.warning("the keys of the provider of tokens cannot be read", error=error)


def migrated(step: str) -> None:
    _log.info("migrated", step=step)


def child_died(role: str, code: int, restart_in: float) -> None:
    _log.error(
        "a process died and is started again", child=role, exit_code=code, restart_in_s=round(restart_in, 2)
    )


def queue(pool: str, *, depth: int, oldest: timedelta) -> None:
    """How much is due and waits in a pool."""
    DEPTH.labels(pool).set(depth)
    OLDEST.labels(pool).set(oldest.total_seconds())


def heartbeat_age(oldest: timedelta) -> None:
    HEARTBEAT_AGE.set(oldest.total_seconds())
