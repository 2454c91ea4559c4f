"""Every metric that Cronwell keeps. Names and labels are part of the outside interface; `telemetry` moves them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Sequence

from prometheus_client import Counter, Gauge, Histogram

LATENESS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
PRIORITY_NAMES = ("high", "normal", "low")


class BatchHistogram(Histogram):
    """A histogram that takes many observations at once, for the time that a few take."""

    def observe_all(self, amounts: Sequence[float]) -> None:
        self._sum.inc(sum(amounts))
        places = Counts(bisect_left(self._upper_bounds, amount) for amount in amounts)
        for place, count in places.items():
            self._buckets[place].inc(count)


SLOTS = Counter("cronwell_slots_staged", "Slots that got their verdict from staging", ["verdict"])
STAGE_SECONDS = Histogram("cronwell_stage_seconds", "Time to stage one batch", buckets=_SECONDS)
STAGED_UNTIL = Gauge(
    "cronwell_staged_until_seconds", "Unix time up to which slots are staged", multiprocess_mode="mostrecent"
)
WATERMARK = Gauge(
    "cronwell_watermark_ahead_seconds",
    "How far ahead of the clock all slots of a scheduler's shards are accounted for; below 0 they are late",
    multiprocess_mode="livemin",
)
SHARDS_HELD = Gauge("cronwell_shards_held", "Shards that schedulers here stage", multiprocess_mode="livesum")
MEMBERS = Gauge("cronwell_members", "Schedulers that share the duties", multiprocess_mode="livemax")
COORDINATION_FALLBACK = Gauge(
    "cronwell_coordination_fallback",
    "1 while a scheduler here goes by PostgreSQL because etcd cannot be gone by",
    multiprocess_mode="livemax",
)
LATE_STARTS = Counter(
    "cronwell_late_starts", "Executions that a busy worker started late, after asking the store anew"
)
CLAIMS_SHORT = Gauge(
    "cronwell_claims_short",
    "Workers here whose claims do not look back to the beginning, because something holds back vacuum",
    multiprocess_mode="livesum",
)
FENCED = Counter("cronwell_fenced", "Stagings refused because a shard had gone on to another epoch")
LATENESS = BatchHistogram(
    "cronwell_start_lateness_seconds",
    "Start of an attempt after its instant",
    ["priority"],
    buckets=LATENESS_BUCKETS,
)
ATTEMPTS = Counter("cronwell_attempts", "Attempts that ended, by outcome", ["result", "target"])
ATTEMPT_SECONDS = BatchHistogram(
    "cronwell_attempt_seconds", "How long attempts ran", ["target"], buckets=LATENESS_BUCKETS
)
EXECUTIONS = Counter("cronwell_executions", "Executions that reached a state", ["state"])
CLAIM_SIZE = Histogram("cronwell_claim_batch_size", "Executions taken by one claim", buckets=_SIZES)
CLAIM_SECONDS = Histogram("cronwell_claim_seconds", "Time of one claim", buckets=_SECONDS)
COMPLETE_SIZE = Histogram("cronwell_complete_batch_size", "Results written at once", buckets=_SIZES)
COMPLETE_SECONDS = Histogram(
    "cronwell_complete_seconds", "Time to write one batch of results", buckets=_SECONDS
)
RUNNING = Gauge("cronwell_running", "Attempts running or held by workers", multiprocess_mode="livesum")
HEARTBEAT_AGE = Gauge(
    "cronwell_heartbeat_age_seconds",
    "Age of the oldest heartbeat of a living worker",
    multiprocess_mode="mostrecent",
)
STALE = Counter(
    "cronwell_stale_results",
    "Results, checkpoints and callbacks refused because their fence was no longer valid",
)
PARKED = Counter(
    "cronwell_callbacks_awaited", "Attempts that were answered with 202 and wait for their callback"
)
RESCUED = Counter("cronwell_rescued", "Executions taken back from lost workers")
DEPTH = Gauge(
    "cronwell_queue_depth", "Executions that are due and wait", ["pool"], multiprocess_mode="mostrecent"
)
OLDEST = Gauge(
    "cronwell_queue_oldest_seconds",
    "How long the oldest due one waits",
    ["pool"],
    multiprocess_mode="mostrecent",
)
HELD_BACK = Counter(
    "cronwell_held_back",
    "Executions written back to be ready later: their target could not take them",
    ["cause"],
)
HOSTS = Gauge(
    "cronwell_hosts",
    "Hosts that keep failing, or are being let come back, as the worker that knows of most sees it",
    ["state"],
    multiprocess_mode="livemax",
)
BREAKERS = Counter("cronwell_breakers", "What breakers of hosts did", ["event"])
FAILOVERS = Counter(
    "cronwell_database_failovers",
    "Times that another database server answered than before, as each process saw it",
)
LOSSY_FAILOVERS = Counter(
    "cronwell_database_lossy_failovers", "Failovers after which commits were missing that a process had seen"
)
LOSS_WINDOW = Gauge(
    "cronwell_database_loss_window_seconds",
    "The longest time before the last failover of which commits may be lost",
    multiprocess_mode="livemax",
)
FINDINGS = Counter("cronwell_findings", "What the scanner found that should not be, by each walk", ["kind"])
REARMED = Counter("cronwell_rearmed", "What the scanner has mended of that", ["kind"])
ALERT_INCIDENTS = Gauge(
    "cronwell_alert_incidents", "Incidents of alerts that go on", multiprocess_mode="mostrecent"
)
ALERT_MESSAGES = Counter("cronwell_alert_messages", "Messages that channels of alerts were given", ["event"])
DEPENDENTS = Counter(
    "cronwell_dependents_judged", "Slots of jobs that follow others, as they were judged", ["verdict"]
)
DEPENDENTS_WAITING = Gauge(
    "cronwell_dependents_waiting",
    "Slots of jobs that follow others for which some of these have ended and others have not",
    multiprocess_mode="mostrecent",
)
DEPENDENTS_OLDEST = Gauge(
    "cronwell_dependents_oldest_seconds", "How long the oldest of them waits", multiprocess_mode="mostrecent"
)
DEPENDENTS_STUCK = Gauge(
    "cronwell_dependents_stuck",
    "How many of them have waited for longer than scheduler.stuck_after",
    multiprocess_mode="mostrecent",
)
CHORES = Counter("cronwell_chores_done", "Rounds of a scheduler's chores that were done", ["chore"])
FAILURES = Counter("cronwell_service_failures", "Rounds of a service that failed", ["service"])
REQUESTS = Histogram(
    "cronwell_http_request_seconds",
    "Time to answer a request",
    ["method", "route", "status"],
    buckets=_SECONDS,
)
