"""Rules and channels of alerts: what is refused and how, quiet hours, verdicts, and what is said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronwell import errors
from cronwell.model.alert_judging import Run, Success, judge_runs, judge_success
from cronwell.model.alert_messages import Alert, as_data, as_mail, as_message
from cronwell.model.alerts import DAYS, MASK, Channel, Condition, Quiet, Rule, is_own, own_job
from cronwell.model.execution import State
from cronwell.model.validation import validate

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RULE: dict[str, Any] = {"on": "tenant", "when": {"dead_letters": 3}, "channels": ["ops"]}
HOOK: dict[str, Any] = {"webhook": {"url": "https://example.com/hook"}}


def test_a_rule_has_its_defaults() -> None:
    rule = validate(Rule, RULE)
    assert (rule.severity, rule.quiet, rule.repeat, rule.when.kind) == ("critical", [], None, "dead_letters")
    assert rule.on.tenant is True


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"on": None}, "on", "valid dictionary"),
        ({"on": {}}, "on", "exactly one of job, tags, tenant"),
        ({"on": {"job": "a", "tenant": True}}, "on", "given: job, tenant"),
        ({"on": {"jobs": "a"}}, "on.jobs", "did you mean 'job'?"),
        ({"on": {"job": ".alerts/ops"}}, "on.job", "letters"),
        ({"on": {"tags": {}}}, "on.tags", "at least 1"),
        ({"on": {"tenant": False}}, "on.tenant", "True"),
        ({"when": {}}, "when", "exactly one of consecutive_failures"),
        ({"when": {"missed": "1h", "late": "1h"}}, "when", "given: late, missed"),
        ({"when": {"misses": "1h"}}, "when.misses", "did you mean 'missed'?"),
        ({"when": {"missed": 3600}}, "when.missed", "write a duration"),
        ({"when": {"missed": "0s"}}, "when.missed", "between 1s and 30d"),
        ({"when": {"late": "31d"}}, "when.late", "between 1s and 30d"),
        ({"when": {"running": "soon"}}, "when.running", "not a duration"),
        ({"when": {"consecutive_failures": 0}}, "when.consecutive_failures", "greater than or equal to 1"),
        ({"when": {"consecutive_failures": True}}, "when.consecutive_failures", "valid integer"),
        ({"when": {"dead_letters": 10_000}}, "when.dead_letters", "less than or equal to 9999"),
        ({"when": {"failure_rate": {"above": 1.0}}}, "when.failure_rate.above", "less than 1"),
        ({"when": {"failure_rate": {"abov": 0.5}}}, "when.failure_rate.abov", "did you mean 'above'?"),
        ({"when": {"queue_depth": {"above": -1}}}, "when.queue_depth.above", "greater than or equal to 0"),
        ({"when": {"workers": {}}}, "when.workers.at_least", "is required"),
        ({"when": {"workers": {"at_least": 1, "pool": "A"}}}, "when.workers.pool", "letters"),
        ({"on": {"job": "a"}, "when": {"workers": {"at_least": 1}}}, "body", "whole tenant"),
        ({"channels": []}, "channels", "at least 1"),
        ({"channels": ["a", "a"]}, "body", "named once"),
        ({"channels": ["a b"]}, "channels.0", "letters"),
        ({"severity": "bad"}, "severity", "'critical', 'warning' or 'info'"),
        ({"repeat": "1s"}, "repeat", "between 1m and 30d"),
        ({"quiet": [{"from": "9:00", "to": "10:00"}]}, "quiet.0.from", "a time of day"),
        ({"quiet": [{"from": "09:00", "to": "24:00"}]}, "quiet.0.to", "a time of day"),
        ({"quiet": [{"from": "09:00"}]}, "quiet.0.to", "is required"),
        ({"quiet": [{"from": "09:00", "to": "10:00", "days": ["Mo"]}]}, "quiet.0.days.0", "'MON'"),
        (
            {"quiet": [{"from": "09:00", "to": "10:00", "timezone": "Berlin"}]},
            "quiet.0.timezone",
            "did you mean Europe/Berlin?",
        ),
        ({"chanels": []}, "chanels", "did you mean 'channels'?"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_wrong_rule_is_refused_with_its_field(change: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(errors.Invalid) as refused:
        validate(Rule, {**RULE, **change})
    told = {each.field: str(each) for each in refused.value.problems}
    assert words in told.get(field, ""), told


@pytest.mark.parametrize(
    ("raw", "field", "words"),
    [
        ({}, "body", "exactly one of webhook, email, slack"),
        ({**HOOK, "email": {"to": ["a@example.com"]}}, "body", "given: webhook, email"),
        ({"webhok": {}}, "webhok", "did you mean 'webhook'?"),
        ({"webhook": {"url": "ftp://example.com"}}, "webhook.url", "whole URL"),
        ({"webhook": {"url": "https://u:p@example.com"}}, "webhook.url", "credentials"),
        ({"webhook": {**HOOK["webhook"], "method": "GET"}}, "webhook.method", "'POST' or 'PUT'"),
        (
            {"webhook": {**HOOK["webhook"], "headers": {"X": "a\r\nb"}}},
            "webhook.headers",
            "header cannot carry",
        ),
        ({"slack": {"url": "https://example.com", "body": "delivery"}}, "slack.body", "'payload'"),
        ({"email": {"to": []}}, "email.to", "at least 1"),
        ({"email": {"to": ["a@example.com\r\nBcc: b@example.com"]}}, "email.to.0", "match pattern"),
        ({"email": {"to": ["a@example.com, b@example.com"]}}, "email.to.0", "match pattern"),
        ({"email": {"to": ["Boss <a@example.com>"]}}, "email.to.0", "match pattern"),
        ({"email": {"to": ["a@-example.com"]}}, "email.to.0", "match pattern"),
        ({"email": {"to": ["ä@example.com"]}}, "email.to.0", "match pattern"),
        ({"email": {"to": ["a@example.com\n"]}}, "email.to.0", "match pattern"),
    ],
    ids=lambda each: str(each)[:50],
)
def test_a_wrong_channel_is_refused_with_its_field(raw: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(errors.Invalid) as refused:
        validate(Channel, raw)
    told = {each.field: str(each) for each in refused.value.problems}
    assert words in told.get(field, ""), told


def test_what_is_shown_of_a_channel_lets_nobody_in() -> None:
    hook = {"url": "https://example.com:8443/hook?token=t0p", "headers": {"Authorization": "Bearer t0p"}}
    shown = validate(Channel, {"webhook": hook, "description": "ops"}).shown()
    assert shown == {
        "description": "ops",
        "webhook": {"url": f"https://example.com:8443/hook?{MASK}", "headers": {"Authorization": MASK}},
    }
    chat = validate(Channel, {"slack": {"url": "https://hooks.example.com/services/T/B/t0p"}})
    assert chat.shown() == {"slack": {"url": f"https://hooks.example.com/{MASK}"}}
    assert chat.target() == {"http": {"url": "https://hooks.example.com/services/T/B/t0p", "body": "payload"}}
    assert validate(Channel, {"webhook": hook}).target() == {"http": hook}


def test_no_user_can_give_a_job_the_name_of_a_channels_own() -> None:
    assert is_own(own_job("ops"))
    with pytest.raises(errors.Invalid):
        validate(Rule, {**RULE, "on": {"job": own_job("ops")}})


FACES = st.times(timezones=st.none()).map(lambda face: f"{face:%H:%M}")


@given(
    begins=FACES,
    ends=FACES,
    minutes=st.integers(0, 7 * 24 * 60),
    days=st.sets(st.sampled_from(DAYS), min_size=1),
)
def test_quiet_hours_are_those_from_their_beginning_to_their_end(
    begins: str, ends: str, minutes: int, days: set[str]
) -> None:
    """Against another way to say it: walk back, minute by minute, to when they last began or ended."""
    quiet = validate(Quiet, {"from": begins, "to": ends, "days": sorted(days), "timezone": "Asia/Tokyo"})
    now = NOON + minutes * MINUTE
    wall = (now + timedelta(hours=9)).replace(tzinfo=None)
    length = (
        datetime.strptime(ends, "%H:%M") - datetime.strptime(begins, "%H:%M")  # noqa: DTZ007  # a face of the clock
    ) % timedelta(days=1) or timedelta(days=1)
    starts = [
        datetime.combine(wall.date() - timedelta(days=back), datetime.strptime(begins, "%H:%M").time())  # noqa: DTZ007  # as above
        for back in (0, 1)
    ]
    wanted = any(DAYS[start.weekday()] in days and start <= wall < start + length for start in starts)
    assert quiet.contains(now) is wanted


def runs(*states: State) -> list[Run]:
    """The newest first, a minute apart."""
    return [Run(state, NOON - n * MINUTE, NOON - n * MINUTE) for n, state in enumerate(states, start=1)]


@given(st.lists(st.sampled_from(State), max_size=20), st.integers(1, 10))
def test_consecutive_failures_are_those_since_the_last_success(states: list[State], limit: int) -> None:
    ended = [state for state in states if state in (State.SUCCEEDED, State.FAILED)]
    count = 0
    while count < len(ended) and ended[count] is State.FAILED:
        count += 1
    verdict = judge_runs(Condition(consecutive_failures=limit), runs(*states), NOON)
    assert (verdict.is_wrong, verdict.facts) == (count >= limit, {"consecutive_failures": count})


def test_a_rate_counts_what_ended_in_its_time() -> None:
    condition = validate(Condition, {"failure_rate": {"above": 0.5, "over": "3m30s", "at_least": 3}})
    failed, well = State.FAILED, State.SUCCEEDED
    assert judge_runs(condition, runs(failed, well, failed, well, well), NOON).is_wrong
    assert not judge_runs(condition, runs(failed, State.RUNNING, failed, failed), NOON).is_wrong
    assert not judge_runs(condition, runs(failed, well, well, failed, failed), NOON).is_wrong


@pytest.mark.parametrize(
    ("success", "since", "is_wrong"),
    [
        (Success(NOON - 61 * MINUTE, True), NOON - 90 * MINUTE, True),
        (Success(NOON - 60 * MINUTE, True), NOON - 90 * MINUTE, False),
        (Success(NOON - 90 * MINUTE, True), NOON - 30 * MINUTE, False),
        (Success(None, True), NOON - 61 * MINUTE, True),
        (Success(None, True), NOON - 59 * MINUTE, False),
        (Success(None, False), NOON - 61 * MINUTE, None),
    ],
)
def test_a_success_is_missed_after_its_time(success: Success, since: datetime, is_wrong: bool | None) -> None:
    verdict = judge_success(timedelta(hours=1), success, since, NOON)
    assert (None if verdict is None else verdict.is_wrong) is is_wrong


ALERT = Alert(
    event="resolved",
    incident="01a1",
    rule="nightly",
    severity="warning",
    summary="<!channel> & co: failed",
    opened_at=NOON,
    job="<!channel> & co",
    job_id="7",
    resolved_at=NOON + MINUTE,
    outcome="succeeded again",
    facts={"consecutive_failures": 2},
)


def test_programs_people_and_chats_are_told_the_same() -> None:
    assert as_data(ALERT) == {
        "event": "resolved",
        "incident": "01a1",
        "rule": "nightly",
        "severity": "warning",
        "summary": "<!channel> & co: failed",
        "job": {"id": "7", "name": "<!channel> & co"},
        "facts": {"consecutive_failures": 2},
        "opened_at": "2026-05-05T12:00:00Z",
        "resolved_at": "2026-05-05T12:01:00Z",
        "outcome": "succeeded again",
    }
    mail = as_mail(ALERT)
    assert mail["subject"] == "[warning] resolved: <!channel> & co: failed"
    assert mail["text"].splitlines()[2:] == [
        "Rule: nightly",
        "Job: <!channel> & co",
        "Since: 2026-05-05T12:00:00Z",
        "Until: 2026-05-05T12:01:00Z",
        "Now: succeeded again",
        "Incident: 01a1",
    ]


def test_a_chat_finds_nobody_to_call_in_a_message() -> None:
    message = as_message(ALERT)
    assert message["text"] == "[warning] resolved: &lt;!channel&gt; &amp; co: failed"
    assert "<" not in str(message)
