"""Events: each is one line that a program can read, and moves its metrics; none is left out here."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import FunctionType
from typing import Any

import pytest
import structlog
from prometheus_client import REGISTRY, CollectorRegistry, Histogram

from cronwell import logs, meters, telemetry
from cronwell.config import LogSettings

SOON = timedelta(milliseconds=1500)
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@dataclass(frozen=True)
class Event:
    """One call, the line it logs (None: it logs nothing) and the metrics it moves, with how far."""

    emit: Callable[[], None]
    line: dict[str, Any] | None = None
    moves: dict[str, float] = field(default_factory=dict)
    sets: dict[str, float] = field(default_factory=dict)


EVENTS: dict[str, Event] = {
    "started": Event(
        lambda: telemetry.started("worker", pools=["a"]),
        {"level": "info", "event": "worker is running", "pools": ["a"]},
    ),
    "stopping": Event(
        lambda: telemetry.stopping("SIGTERM"), {"level": "info", "event": "stopping", "reason": "SIGTERM"}
    ),
    "stopped": Event(lambda: telemetry.stopped("api"), {"level": "info", "event": "api has stopped"}),
    "drain_requested": Event(lambda: telemetry.drain_requested("n-1"), {"level": "info", "node": "n-1"}),
    "child_drained": Event(lambda: telemetry.child_drained("api"), {"level": "warning", "child": "api"}),
    "node_changed": Event(
        lambda: telemetry.node_changed("is asked to drain", node="n-1", name="vm:1"),
        {"level": "info", "event": "process is asked to drain", "node": "n-1", "name": "vm:1"},
    ),
    "findings": Event(
        lambda: telemetry.findings("no_slot", found=3, mended=2, examples=["a"]),
        {"level": "warning", "kind": "no_slot", "found": 3, "mended": 2, "examples": ["a"]},
        {'cronwell_findings_total{kind="no_slot"}': 3, 'cronwell_rearmed_total{kind="no_slot"}': 2},
    ),
    "parked": Event(
        lambda: telemetry.parked(3),
        {"level": "debug", "event": "waiting for callbacks", "count": 3},
        {"cronwell_callbacks_awaited_total": 3},
    ),
    "told_too_late": Event(
        lambda: telemetry.told_too_late("checkpoint", execution="e", fence=3),
        {"level": "warning", "told": "checkpoint", "execution": "e", "fence": 3},
        {"cronwell_stale_results_total": 1},
    ),
    "late_starts": Event(lambda: telemetry.late_starts(3), moves={"cronwell_late_starts_total": 3}),
    "claims_shortened": Event(
        lambda: telemetry.claims_shortened(0.0123),
        {"level": "warning", "took_s": 0.012},
        sets={"cronwell_claims_short": 1},
    ),
    "claims_lengthened": Event(
        telemetry.claims_lengthened, {"level": "info"}, sets={"cronwell_claims_short": 0}
    ),
    "duties": Event(
        lambda: telemetry.duties(shards=22, members=3),
        sets={"cronwell_shards_held": 22, "cronwell_members": 3},
    ),
    "watermark": Event(
        lambda: telemetry.watermark(timedelta(seconds=58)), sets={"cronwell_watermark_ahead_seconds": 58}
    ),
    "fenced": Event(
        lambda: telemetry.fenced({7, 3}),
        {"level": "warning", "shards": [3, 7]},
        {"cronwell_fenced_total": 1},
    ),
    "coordination_fell_back": Event(
        lambda: telemetry.coordination_fell_back("away"),
        {"level": "warning", "reason": "away"},
        sets={"cronwell_coordination_fallback": 1},
    ),
    "coordination_restored": Event(
        telemetry.coordination_restored, {"level": "info"}, sets={"cronwell_coordination_fallback": 0}
    ),
    "alerting_changed": Event(
        lambda: telemetry.alerting_changed("rule", name="nightly", revision=2),
        {"level": "info", "event": "rule of alerts changed", "name": "nightly", "revision": 2},
    ),
    "alert_opened": Event(
        lambda: telemetry.alert_opened(rule="nightly", severity="critical", summary="job: failed"),
        {"level": "warning", "rule": "nightly", "severity": "critical", "summary": "job: failed"},
    ),
    "alert_resolved": Event(
        lambda: telemetry.alert_resolved(rule="nightly", summary="job: failed", outcome="succeeded again"),
        {"level": "info", "rule": "nightly", "summary": "job: failed", "outcome": "succeeded again"},
    ),
    "alert_told": Event(
        lambda: telemetry.alert_told("opened", messages=2),
        moves={'cronwell_alert_messages_total{event="opened"}': 2},
    ),
    "alerts_open": Event(lambda: telemetry.alerts_open(3), sets={"cronwell_alert_incidents": 3}),
    "rule_unread": Event(
        lambda: telemetry.rule_unread("nightly", ValueError("no")),
        {"level": "error", "rule": "nightly", "error": "ValueError: no"},
        {'cronwell_service_failures_total{service="alerting"}': 1},
    ),
    "chore_done": Event(
        lambda: telemetry.chore_done("scan"), moves={'cronwell_chores_done_total{chore="scan"}': 1}
    ),
    "paged": Event(
        lambda: telemetry.paged("page", kind="workers", words="none"),
        {"level": "critical", "event": "paging", "kind": "workers", "summary": "none"},
    ),
    "paged, over": Event(
        lambda: telemetry.paged("resolve", kind="workers", words="none"),
        {"level": "info", "event": "resolved", "kind": "workers"},
    ),
    "sentinel_warned": Event(
        lambda: telemetry.sentinel_warned("watermark", "low"),
        {"level": "warning", "kind": "watermark", "summary": "low"},
    ),
    "service_failed": Event(
        lambda: telemetry.service_failed("staging", ValueError("odd"), 0.123),
        {"level": "warning", "service": "staging", "error": "ValueError: odd", "retry_in_s": 0.12},
        {'cronwell_service_failures_total{service="staging"}': 1},
    ),
    "staged": Event(
        lambda: telemetry.staged(jobs=3, slots=5, skipped=2, took=SOON),
        {"level": "debug", "jobs": 3, "slots": 5, "skipped": 2, "ms": 1500.0},
        {
            'cronwell_slots_staged_total{verdict="staged"}': 5,
            'cronwell_slots_staged_total{verdict="skipped"}': 2,
            "cronwell_stage_seconds_count": 1,
            "cronwell_stage_seconds_sum": 1.5,
        },
    ),
    "backfilled": Event(
        lambda: telemetry.backfilled(4),
        {"level": "debug", "slots": 4},
        {'cronwell_slots_staged_total{verdict="backfilled"}': 4},
    ),
    "dependents_judged": Event(
        lambda: telemetry.dependents_judged(run=3, skipped=2, waiting=1),
        {"level": "debug", "run": 3, "skipped": 2, "waiting": 1},
        {
            'cronwell_dependents_judged_total{verdict="run"}': 3,
            'cronwell_dependents_judged_total{verdict="skipped"}': 2,
        },
    ),
    "dependents_waiting": Event(
        lambda: telemetry.dependents_waiting(waiting=4, oldest=SOON, stuck=1),
        sets={
            "cronwell_dependents_waiting": 4,
            "cronwell_dependents_oldest_seconds": 1.5,
            "cronwell_dependents_stuck": 1,
        },
    ),
    "dependent_stuck": Event(
        lambda: telemetry.dependent_stuck(job="load", slot=NOON, waited=timedelta(hours=2)),
        {"level": "warning", "job": "load", "slot": NOON.isoformat(), "waited_s": 7200},
    ),
    "dependent_unread": Event(
        lambda: telemetry.dependent_unread(job="j-1", error=ValueError("odd")),
        {"level": "error", "job": "j-1", "error": "ValueError: odd"},
        {'cronwell_service_failures_total{service="dependent"}': 1},
    ),
    "staged_until": Event(
        lambda: telemetry.staged_until(NOON), sets={"cronwell_staged_until_seconds": NOON.timestamp()}
    ),
    "claimed": Event(
        lambda: telemetry.claimed(count=7, took=SOON),
        moves={
            "cronwell_claim_batch_size_count": 1,
            "cronwell_claim_batch_size_sum": 7,
            "cronwell_claim_seconds_sum": 1.5,
        },
    ),
    "attempts_started": Event(
        lambda: telemetry.attempts_started(2, [1.5, 0.0, 4000.0]),
        moves={
            'cronwell_start_lateness_seconds_sum{priority="low"}': 4001.5,
            'cronwell_start_lateness_seconds_count{priority="low"}': 3,
            'cronwell_start_lateness_seconds_bucket{le="0.001",priority="low"}': 1,
            'cronwell_start_lateness_seconds_bucket{le="1.0",priority="low"}': 1,
            'cronwell_start_lateness_seconds_bucket{le="2.5",priority="low"}': 2,
            'cronwell_start_lateness_seconds_bucket{le="+Inf",priority="low"}': 3,
        },
    ),
    "attempts_ended": Event(
        lambda: telemetry.attempts_ended("http", "failed", [1.5, 0.5]),
        moves={
            'cronwell_attempts_total{result="failed",target="http"}': 2,
            'cronwell_attempt_seconds_sum{target="http"}': 2.0,
            'cronwell_attempt_seconds_count{target="http"}': 2,
        },
    ),
    "attempt_failed": Event(
        lambda: telemetry.attempt_failed(
            execution="x-1", job="j", result="failed", attempt=2, took=SOON, error="e" * 1000
        ),
        {
            "level": "warning",
            "job": "j",
            "execution": "x-1",
            "attempt": 2,
            "result": "failed",
            "error": "e" * 300,
            "ms": 1500.0,
        },
    ),
    "completed": Event(
        lambda: telemetry.completed(states={"succeeded": 3, "retrying": 1}, stale=2, took=SOON),
        {"level": "warning", "count": 2},
        {
            'cronwell_executions_total{state="succeeded"}': 3,
            'cronwell_executions_total{state="retrying"}': 1,
            "cronwell_complete_batch_size_sum": 6,
            "cronwell_complete_seconds_sum": 1.5,
            "cronwell_stale_results_total": 2,
        },
    ),
    "completed, nothing stale": Event(
        lambda: telemetry.completed(states={"succeeded": 1}, stale=0, took=SOON),
        None,
        {'cronwell_executions_total{state="succeeded"}': 1, "cronwell_stale_results_total": 0},
    ),
    "died": Event(
        lambda: telemetry.died(execution="x-1", job="j", attempts=4, error="odd"),
        {"level": "error", "execution": "x-1", "job": "j", "attempts": 4, "error": "odd"},
    ),
    "skipped_for_overlap": Event(
        lambda: telemetry.skipped_for_overlap(3),
        {"level": "info", "count": 3},
        {'cronwell_executions_total{state="skipped"}': 3},
    ),
    "running": Event(lambda: telemetry.running(9), sets={"cronwell_running": 9}),
    "lease_lost": Event(
        lambda: telemetry.lease_lost("w", 5), {"level": "error", "worker": "w", "attempts": 5}
    ),
    "worker_lost": Event(lambda: telemetry.worker_lost("w"), {"level": "warning", "worker": "w"}),
    "rescued": Event(
        lambda: telemetry.rescued(4), {"level": "warning", "count": 4}, {"cronwell_rescued_total": 4}
    ),
    "rezoned": Event(
        lambda: telemetry.rezoned("apply", count=3, tzdata="2026b"),
        {
            "level": "info",
            "event": "next slots were moved: the rules of their zones have changed",
            "count": 3,
            "tzdata": "2026b",
        },
    ),
    "rezoned, undecided": Event(
        lambda: telemetry.rezoned("ask", count=3, tzdata="2026b"),
        {
            "level": "warning",
            "event": "next slots wait for a decision: the rules of their zones have changed",
        },
    ),
    "finished_jobs": Event(lambda: telemetry.finished_jobs(2), {"level": "info", "count": 2}),
    "day_made": Event(lambda: telemetry.day_made("2026-05-05"), {"level": "info", "day": "2026-05-05"}),
    "day_dropped": Event(lambda: telemetry.day_dropped("2026-05-05"), {"level": "info", "day": "2026-05-05"}),
    "day_kept": Event(lambda: telemetry.day_kept("2026-05-05"), {"level": "warning", "day": "2026-05-05"}),
    "job_changed": Event(
        lambda: telemetry.job_changed("paused", job="1", name="nightly", note=None),
        {"level": "info", "event": "job paused", "job": "1", "name": "nightly", "note": None},
    ),
    "access_changed": Event(
        lambda: telemetry.access_changed("key revoked", key="cw_1", by="loopback"),
        {"level": "info", "event": "key revoked", "key": "cw_1", "by": "loopback"},
    ),
    "secret_changed": Event(
        lambda: telemetry.secret_changed("set", name="token", by="loopback", revision=2),
        {"level": "info", "event": "secret set", "name": "token", "by": "loopback", "revision": 2},
    ),
    "secrets_rewrapped": Event(
        lambda: telemetry.secrets_rewrapped(count=3, key="k1", by="loopback"),
        {"level": "info", "event": "secrets rewrapped", "count": 3, "key": "k1"},
    ),
    "keys_not_read": Event(
        lambda: telemetry.keys_not_read("no such file"),
        {"level": "warning", "event": "the keys for secrets cannot be read", "reason": "no such file"},
    ),
    "token_keys_unread": Event(
        lambda: telemetry.token_keys_unread("no such file"),
        {
            "level": "warning",
            "event": "the keys of the provider of tokens cannot be read",
            "error": "no such file",
        },
    ),
    "request_admitted": Event(lambda: telemetry.request_admitted("loopback")),
    "held_back": Event(
        lambda: telemetry.held_back("rate"), moves={'cronwell_held_back_total{cause="rate"}': 1}
    ),
    "hosts": Event(
        lambda: telemetry.hosts(is_open=2, recovering=1),
        sets={'cronwell_hosts{state="open"}': 2, 'cronwell_hosts{state="recovering"}': 1},
    ),
    "host_opened": Event(
        lambda: telemetry.host_opened("a.example", tenant=1, failures=20, probe_in=2.04, error="no answer"),
        {
            "level": "warning",
            "host": "a.example",
            "tenant": 1,
            "failures": 20,
            "probe_in_s": 2.0,
            "error": "no answer",
        },
        {'cronwell_breakers_total{event="opened"}': 1},
    ),
    "host_probed": Event(
        lambda: telemetry.host_probed("a.example", tenant=1),
        {"level": "info", "host": "a.example", "tenant": 1},
        {'cronwell_breakers_total{event="probed"}': 1},
    ),
    "host_recovering": Event(
        lambda: telemetry.host_recovering("a.example", tenant=1), {"level": "info", "host": "a.example"}
    ),
    "host_closed": Event(
        lambda: telemetry.host_closed("a.example", tenant=1, ill_for=61.23),
        {"level": "info", "host": "a.example", "ill_for_s": 61.2},
        {'cronwell_breakers_total{event="closed"}': 1},
    ),
    "limit_changed": Event(
        lambda: telemetry.limit_changed("shell", rate="1/s", concurrency=None),
        {"level": "info", "event": "limit changed", "target": "shell", "rate": "1/s"},
    ),
    "calendar_changed": Event(
        lambda: telemetry.calendar_changed("closed", revision=3),
        {"level": "info", "event": "calendar changed", "calendar": "closed", "revision": 3},
    ),
    "execution_changed": Event(
        lambda: telemetry.execution_changed("cancelled", execution="x-1", count=2),
        {"level": "info", "event": "execution cancelled", "execution": "x-1", "count": 2},
    ),
    "migrated": Event(lambda: telemetry.migrated("0001 core"), {"level": "info", "step": "0001 core"}),
    "child_died": Event(
        lambda: telemetry.child_died("api", -9, 0.5),
        {"level": "error", "child": "api", "exit_code": -9, "restart_in_s": 0.5},
    ),
    "queue": Event(
        lambda: telemetry.queue("gpu", depth=12, oldest=SOON),
        sets={
            'cronwell_queue_depth{pool="gpu"}': 12,
            'cronwell_queue_oldest_seconds{pool="gpu"}': 1.5,
        },
    ),
    "worker_moved": Event(
        lambda: telemetry.worker_moved("w", kept=3, dropped=1),
        {"level": "warning", "worker": "w", "kept": 3, "dropped": 1},
    ),
    "gave_up": Event(
        lambda: telemetry.gave_up("blocked", 75),
        {
            "level": "critical",
            "event": "this process ends itself",
            "reason": "blocked",
            "exit_code": 75,
        },
    ),
    "failed_over": Event(
        lambda: telemetry.failed_over("7/2", is_lossy=True, window=SOON),
        {
            "level": "error",
            "event": "another database server answers, and commits are lost",
            "incarnation": "7/2",
            "window_s": 1.5,
        },
        {"cronwell_database_failovers_total": 1, "cronwell_database_lossy_failovers_total": 1},
        {"cronwell_database_loss_window_seconds": 1.5},
    ),
    "heartbeat_age": Event(
        lambda: telemetry.heartbeat_age(SOON), sets={"cronwell_heartbeat_age_seconds": 1.5}
    ),
    "request_began": Event(lambda: telemetry.request_began("r-1")),
    "request_answered": Event(
        lambda: telemetry.request_answered(method="GET", route="/v1/jobs", status=200, took=SOON),
        moves={'cronwell_http_request_seconds_sum{method="GET",route="/v1/jobs",status="200"}': 1.5},
    ),
    "request_failed": Event(
        lambda: telemetry.request_failed(method="GET", path="/v1/jobs", error=ValueError("odd")),
        {"level": "error", "method": "GET", "path": "/v1/jobs"},
    ),
    "plan_failed": Event(
        lambda: telemetry.plan_failed(job="1", error=ValueError("odd")),
        {"level": "error", "job": "1", "error": "ValueError: odd"},
        {'cronwell_service_failures_total{service="plan"}': 1},
    ),
}


Log = Callable[[], str]
PAGES = (telemetry.changes, telemetry.processes, telemetry.work)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Log]:
    """What was written to standard error, by a logger that is set up anew and forgotten afterwards."""
    for module in (logs, *PAGES):
        monkeypatch.setattr(module, "_log", structlog.get_logger("cronwell"))
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    yield lambda: capsys.readouterr().err
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def samples() -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
    }


def value_of(name: str, among: Samples) -> float:
    """A sample by its name as /metrics writes it; one that was never touched is zero."""
    bare, _, labels = name.rstrip("}").partition("{")
    pairs = tuple(sorted((key, text.strip('"')) for key, text in _pairs(labels)))
    return among.get((bare, pairs), 0.0)


def _pairs(labels: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, labels.split(",")):
        key, _, text = part.partition("=")
        yield key, text


def test_every_event_is_tried_here() -> None:
    events = {
        name
        for name, value in vars(telemetry).items()
        if isinstance(value, FunctionType) and value.__module__.startswith(telemetry.__name__)
    }
    assert events == {name.partition(",")[0] for name in EVENTS}


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_one_line_of_json_and_moves_its_metrics(name: str, log: Log) -> None:
    event = EVENTS[name]
    logs.configure(LogSettings(level="debug", format="json"), role="worker")
    before = samples()
    event.emit()
    after = samples()
    lines = log().splitlines()
    if event.line is None:
        assert lines == []
    else:
        [text] = lines
        line = json.loads(text)
        assert {key: line.get(key) for key in event.line} == event.line
        assert line["role"] == "worker"
        assert datetime.fromisoformat(line["timestamp"]).utcoffset() == timedelta()
        assert line["event"]
    moved = {metric: value_of(metric, after) - value_of(metric, before) for metric in event.moves}
    assert moved == pytest.approx(event.moves)
    assert {metric: value_of(metric, after) for metric in event.sets} == event.sets


def test_every_metric_is_moved_by_some_event() -> None:
    metrics = {
        value._name
        for page in PAGES
        for value in vars(page).values()
        if hasattr(value, "_name") and hasattr(value, "describe")
    }
    named = " ".join(name for event in EVENTS.values() for name in (*event.moves, *event.sets))
    assert metrics
    assert {name for name in metrics if name not in named} == set()


def test_a_failed_request_is_logged_with_its_trace_on_one_line(log: Log) -> None:
    logs.configure(LogSettings(format="json"), role="api")

    def fail() -> None:
        raise ValueError("odd\nthing")

    with pytest.raises(ValueError) as caught:
        fail()
    telemetry.request_failed(method="GET", path="/", error=caught.value)
    [text] = log().splitlines()
    assert "in fail" in json.loads(text)["exception"]


def test_what_a_library_logs_is_one_line_of_json_too(log: Log) -> None:
    logs.configure(LogSettings(format="json"), role="api")
    logging.getLogger("some.library").warning("%s is odd", "this")
    try:
        raise ValueError("odd\nthing")
    except ValueError:
        logging.getLogger("some.library").exception("broken")
    first, second = (json.loads(line) for line in log().splitlines())
    assert first["event"] == "this is odd"
    assert (first["logger"], first["level"], first["role"]) == ("some.library", "warning", "api")
    assert "ValueError: odd" in second["exception"]


def test_what_a_request_leads_to_carries_its_id(log: Log) -> None:
    logs.configure(LogSettings(format="json"), role="api")
    telemetry.request_began("r-7")
    telemetry.job_changed("created", job="1", name="x")
    assert json.loads(log())["request_id"] == "r-7"


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_the_level_decides_what_is_said(level: str, heard: list[str], log: Log) -> None:
    logs.configure(LogSettings(level=level, format="json"), role="worker")
    telemetry.staged(jobs=1, slots=1, skipped=0, took=SOON)
    telemetry.stopping("SIGTERM")
    telemetry.rescued(1)
    telemetry.lease_lost("w", 1)
    assert [json.loads(line)["level"] for line in log().splitlines()] == heard


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("chosen", ["auto", "json", "text"])
def test_people_get_text_and_programs_get_json(
    chosen: str, is_terminal: bool, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    logs.configure(LogSettings(format=chosen), role="worker")
    telemetry.stopping("SIGTERM")
    wants_text = chosen == "text" or (chosen == "auto" and is_terminal)
    written = log()
    assert written.startswith("{") is not wants_text
    assert "SIGTERM" in written


def test_many_observations_at_once_are_counted_like_one_by_one() -> None:
    registry = CollectorRegistry()
    amounts = [0.0, 0.001, 0.0010001, 0.25, 59.9, 3600.0, 3601.0]
    single = Histogram("single", "", buckets=meters.LATENESS_BUCKETS, registry=registry)
    batch = meters.BatchHistogram("batch", "", buckets=meters.LATENESS_BUCKETS, registry=registry)
    for amount in amounts:
        single.observe(amount)
    batch.observe_all(amounts)
    told = [
        [(s.labels, s.value) for s in metric.samples if "created" not in s.name]
        for metric in registry.collect()
    ]
    assert told[0] == told[1]
