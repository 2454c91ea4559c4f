"""What rows take for their ideal, and which settings they give their workers."""

from __future__ import annotations

from cronwell.bench.rows import running, webhooks
from cronwell.config import Settings
from cronwell.errors import EgressRefused
from cronwell.targets.egress import Egress


def test_the_ideal_is_bound_by_the_delay_or_by_what_one_process_can_send() -> None:
    assert webhooks.ideal_rate(1000, 0.2, 6000.0) == 5000.0
    assert webhooks.ideal_rate(5000, 0.2, 6000.0) == 6000.0
    assert webhooks.ideal_rate(5000, 0.0, 6000.0) == 6000.0


def test_the_worker_of_webhooks_has_room_and_may_call_the_receiver_alone() -> None:
    settings = webhooks.settings_for(Settings(), 5000)
    assert settings.http.per_host == settings.http.connections == 5000
    assert settings.worker.concurrency > 5000
    assert webhooks.settings_for(Settings(), 256).worker.concurrency == Settings().worker.concurrency
    guard = Egress(settings.egress_allow)
    guard.check("127.0.0.1")
    for address in ("127.0.0.2", "10.0.0.1", "169.254.169.254", "::1"):
        assert _is_refused(guard, address)


def test_all_executions_of_the_running_row_have_places_spread_over_its_workers() -> None:
    plan = running.Plan(executions=1001, workers=2)
    settings = running.settings_for(Settings(), plan)
    assert 1001 <= 2 * settings.worker.concurrency <= 1001 * 1.02
    assert settings.worker.cancel_grace.total_seconds() <= running.CANCEL_SECONDS / 4


def _is_refused(guard: Egress, address: str) -> bool:
    try:
        guard.check(address)
    except EgressRefused:
        return True
    return False
