"""Every event that Cronwell emits: one log line, and the metrics that go with it.

The rest of the code calls a function here by the name of what happened. What is logged at which level, and what is
counted, is decided in this file alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    COORDINATION_FALLBACK,
    DEPENDENTS,
    DEPENDENTS_OLDEST,
    DEPENDENTS_STUCK,
    DEPENDENTS_WAITING,
    DEPTH,
    EXECUTIONS,
    FAILOVERS,
    FAILURES,
    FENCED,
    FINDINGS,
    HEARTBEAT_AGE,
    HELD_BACK,
    HOSTS,
    LATE_STARTS,
    LATENESS,
    LOSS_WINDOW,
    LOSSY_FAILOVERS,
    MEMBERS,
    OLDEST,
    PARKED,
    PRIORITY_NAMES,
    REARMED,
    REQUESTS,
    RESCUED,
    RUNNING,
    SHARDS_HELD,
    SLOTS,
    STAGE_SECONDS,
    STAGED_UNTIL,
    STALE,
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


def secret_changed(what: str, *, name: str, by: str, **facts: object) -> None:
    """Somebody set or deleted a secret; its value is never told."""
    _log.info(f"secret {what}", name=name, by=by, **facts)


def secrets_rewrapped(*, count: int, key: str, by: str) -> None:
    """Secrets are encrypted by way of another key of the installation."""
    _log.info("secrets rewrapped", count=count, key=key, by=by)


def keys_not_read(reason: str) -> None:
    """The keys for secrets could not be read; those that were read before are used on."""
    _log.warning("the keys for secrets cannot be read", reason=reason)


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


def staged_until(at: datetime) -> None:
    STAGED_UNTIL.set(at.timestamp())


def late_starts(count: int) -> None:
    """Executions that could not be started in time were asked for anew, and may start."""
    LATE_STARTS.inc(count)


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


def limit_changed(target: str, *, rate: str | None, concurrency: int | None) -> None:
    """What a target bears is another from now on."""
    _log.info("limit changed", target=target, rate=rate, concurrency=concurrency)


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


def rezoned(action: str, *, count: int, tzdata: str) -> None:
    """The rules of zones have changed, and with them next slots; those that wait are listed by `tzdata impact`."""
    done = {"apply": "were moved", "hold": "were held", "ask": "wait for a decision"}[action]
    level = _log.warning if action == "ask" else _log.info
    level(f"next slots {done}: the rules of their zones have changed", count=count, tzdata=tzdata)


def finished_jobs(count: int) -> None:
    _log.info("jobs have no further slot and are finished", count=count)


def day_made(day: str) -> None:
    _log.info("made room for a day", day=day)


def day_dropped(day: str) -> None:
    _log.info("dropped a day of history", day=day)


def day_kept(day: str) -> None:
    _log.warning("a day past its retention is kept: it has unfinished executions", day=day)


def job_changed(change: str, *, job: str, name: str, **facts: object) -> None:
    _log.info(f"job {change}", job=job, name=name, **facts)


def calendar_changed(name: str, *, revision: int) -> None:
    """A calendar was written; revision 0: it was deleted."""
    _log.info("calendar changed", calendar=name, revision=revision)


def alerting_changed(what: str, *, name: str, revision: int) -> None:
    """A rule or a channel of alerts was written; revision 0: it was deleted."""
    _log.info(f"{what} of alerts changed", name=name, revision=revision)


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


def access_changed(change: str, **facts: object) -> None:
    """Who may come in is no longer the same."""
    _log.info(change, **facts)


def token_keys_unread(error: str) -> None:
    """The keys of whoever signs tokens cannot be read; those that are known go on to be good."""
    _log.warning("the keys of the provider of tokens cannot be read", error=error)


def node_changed(change: str, *, node: str, name: str) -> None:
    _log.info(f"process {change}", node=node, name=name)


def execution_changed(change: str, *, execution: str, **facts: object) -> None:
    _log.info(f"execution {change}", execution=execution, **facts)


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


def plan_failed(*, job: str, error: Exception) -> None:
    """A job's slots cannot be computed; it was paused so that the others go on."""
    FAILURES.labels("plan").inc()
    _log.error(
        "a job was paused: its slots cannot be computed", job=job, error=f"{type(error).__name__}: {error}"
    )
