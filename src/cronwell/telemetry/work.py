"""Events of the work itself: slots, executions, attempts, and what they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from cronwell.meters import (
    ALERT_INCIDENTS,
    ALERT_MESSAGES,
    ATTEMPT_SECONDS,
    ATTEMPTS,
    BREAKERS,
    CLAIM_SECONDS,
    CLAIM_SIZE,
    COMPLETE_SECONDS,
    COMPLETE_SIZE,
    DEPENDENTS,
    DEPENDENTS_OLDEST,
    DEPENDENTS_STUCK,
    DEPENDENTS_WAITING,
    EXECUTIONS,
    FAILURES,
    HELD_BACK,
    HOSTS,
    LATENESS,
    PARKED,
    PRIORITY_NAMES,
    RUNNING,
    SLOTS,
    STAGE_SECONDS,
    STALE,
)

_log: structlog.stdlib.BoundLogger = structlog.get_logger("cronwell")


def staged(*, jobs: int, slots: int, skipped: int, took: timedelta) -> None:
    SLOTS.labels("staged").inc(slots)
    SLOTS.labels("skipped").inc(skipped)
    STAGE_SECONDS.observe(took.total_seconds())
    _log.debug("staged", jobs=jobs, slots=slots, skipped=skipped, ms=round(took.total_seconds() * 1000, 1))


def backfilled(count: int) -> None:
    """Past slots were staged because somebody asked for them."""
    SLOTS.labels("backfilled").inc(count)
    _log.debug("backfilled", slots=count)


def dependents_judged(*, run: int, skipped: int, waiting: int) -> None:
    """Slots of jobs that follow others got their verdict, or go on to wait."""
    DEPENDENTS.labels("run").inc(run)
    DEPENDENTS.labels("skipped").inc(skipped)
    _log.debug("judged what follows", run=run, skipped=skipped, waiting=waiting)


def dependents_waiting(*, waiting: int, oldest: timedelta, stuck: int) -> None:
    DEPENDENTS_WAITING.set(waiting)
    DEPENDENTS_OLDEST.set(oldest.total_seconds())
    DEPENDENTS_STUCK.set(stuck)


def dependent_stuck(*, job: str, slot: datetime, waited: timedelta) -> None:
    """A slot has waited for its upstreams for very long. `explain` says for which."""
    _log.warning(
        "a slot waits for its upstreams",
        job=job,
        slot=slot.isoformat(),
        waited_s=round(waited.total_seconds()),
    )


def dependent_unread(*, job: str, error: Exception) -> None:
    """A job that follows others cannot be judged; it waits, so that the others go on."""
    FAILURES.labels("dependent").inc()
    _log.error("a definition cannot be read", job=job, error=f"{type(error).__name__}: {error}")


def claimed(*, count: int, took: timedelta) -> None:
    CLAIM_SIZE.observe(count)
    CLAIM_SECONDS.observe(took.total_seconds())


def attempts_started(priority: int, latenesses: Sequence[float]) -> None:
    """Attempts of one priority have started, each so many seconds after its instant."""
    LATENESS.labels(PRIORITY_NAMES[priority]).observe_all(latenesses)


def attempts_ended(target: str, result: str, durations: Sequence[float]) -> None:
    """Attempts of one kind of target have ended in the same way, each after so many seconds."""
    ATTEMPTS.labels(result, target).inc(len(durations))
    ATTEMPT_SECONDS.labels(target).observe_all(durations)


def attempt_failed(
    *, execution: object, job: str, result: str, attempt: int, took: timedelta, error: str | None
) -> None:
    """An attempt did not succeed."""
    _log.warning(
        "an attempt did not succeed",
        job=job,
        execution=str(execution),
        attempt=attempt,
        result=result,
        error=(error or "")[:300],
        ms=round(took.total_seconds() * 1000, 1),
    )


def held_back(cause: str) -> None:
    """An execution does not start now, because its target cannot take it."""
    HELD_BACK.labels(cause).inc()


def hosts(*, is_open: int, recovering: int) -> None:
    """How many hosts are not well."""
    HOSTS.labels("open").set(is_open)
    HOSTS.labels("recovering").set(recovering)


def host_opened(host: str, *, tenant: int, failures: int, probe_in: float, error: str | None) -> None:
    """A host keeps failing; it is left alone for a while."""
    BREAKERS.labels("opened").inc()
    _log.warning(
        "a host keeps failing and is left alone for a while",
        host=host,
        tenant=tenant,
        failures=failures,
        probe_in_s=round(probe_in, 1),
        error=error or "",
    )


def host_probed(host: str, *, tenant: int) -> None:
    """One call tries whether a host is back."""
    BREAKERS.labels("probed").inc()
    _log.info("one call tries whether a host is back", host=host, tenant=tenant)


def host_recovering(host: str, *, tenant: int) -> None:
    _log.info("a host answers again; calls come back step by step", host=host, tenant=tenant)


def host_closed(host: str, *, tenant: int, ill_for: float) -> None:
    """A host is well again."""
    BREAKERS.labels("closed").inc()
    _log.info("a host is well again", host=host, tenant=tenant, ill_for_s=round(ill_for, 1))


def completed(*, states: dict[str, int], stale: int, took: timedelta) -> None:
    for state, count in states.items():
        EXECUTIONS.labels(state).inc(count)
    COMPLETE_SIZE.observe(sum(states.values()) + stale)
    COMPLETE_SECONDS.observe(took.total_seconds())
    if stale:
        STALE.inc(stale)
        _log.warning("results were refused: their fence is no longer valid", count=stale)


def parked(count: int) -> None:
    """Attempts were taken up by whoever was called, and wait for their callbacks."""
    PARKED.inc(count)
    _log.debug("waiting for callbacks", count=count)


def told_too_late(what: str, *, execution: str, fence: int) -> None:
    """A checkpoint, or a callback, came for an attempt that is over, and changed nothing."""
    STALE.inc()
    _log.warning("what an attempt told was refused: it is over", told=what, execution=execution, fence=fence)


def died(*, execution: str, job: str, attempts: int, error: str | None) -> None:
    """An execution has no attempts left and is a dead letter."""
    _log.error("no attempts left", job=job, execution=execution, attempts=attempts, error=(error or "")[:300])


def skipped_for_overlap(count: int) -> None:
    EXECUTIONS.labels("skipped").inc(count)
    _log.info("skipped: an earlier execution of the job was not finished", count=count)


def running(count: int) -> None:
    RUNNING.set(count)


def finished_jobs(count: int) -> None:
    _log.info("jobs have no further slot and are finished", count=count)


def alert_opened(*, rule: str, severity: str, summary: str) -> None:
    """A rule has found something wrong."""
    _log.warning("an incident began", rule=rule, severity=severity, summary=summary)


def alert_resolved(*, rule: str, summary: str, outcome: str) -> None:
    _log.info("an incident is over", rule=rule, summary=summary, outcome=outcome)


def alert_told(event: str, *, messages: int) -> None:
    """Channels were given something to say."""
    ALERT_MESSAGES.labels(event).inc(messages)


def alerts_open(count: int) -> None:
    ALERT_INCIDENTS.set(count)


def rule_unread(rule: str, error: Exception) -> None:
    """A rule of alerts cannot be read by this release, or cannot be judged; the others are."""
    FAILURES.labels("alerting").inc()
    _log.error("a rule of alerts is passed over", rule=rule, error=f"{type(error).__name__}: {error}")


def plan_failed(*, job: str, error: Exception) -> None:
    """A job's slots cannot be computed; it was paused so that the others go on."""
    FAILURES.labels("plan").inc()
    _log.error(
        "a job was paused: its slots cannot be computed", job=job, error=f"{type(error).__name__}: {error}"
    )
