"""The breaker of a host: few calls while it is ill, and all of them soon after it is well."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from cronwell.model.breaker import FULL, JITTER, Breaker, BreakerRules

RULES = BreakerRules(failures=5, first_wait=2.0, longest_wait=60.0)


def _call(breaker: Breaker, now: float, *, is_well: bool, random: float = 0.5) -> bool:
    """One call, if it may go through; whether it did."""
    if breaker.wait(now) > 0:
        return False
    is_trial = breaker.enter()
    if is_well:
        breaker.succeed(is_trial=is_trial)
    else:
        breaker.fail(now, random, is_trial=is_trial)
    return True


def _ill(rules: BreakerRules = RULES) -> Breaker:
    breaker = Breaker(rules)
    for _ in range(rules.failures):
        assert _call(breaker, 0.0, is_well=False)
    assert breaker.state == "open"
    return breaker


@given(st.lists(st.floats(0.01, 5.0), min_size=1, max_size=300), st.floats(0, 0.999))
def test_an_ill_host_is_called_no_more_often_than_its_waits_allow(pauses: list[float], random: float) -> None:
    breaker = _ill()
    now, calls, last = 0.0, 0, 0.0
    for pause in pauses:
        now += pause
        if _call(breaker, now, is_well=False, random=random):
            grown = min(RULES.first_wait * 2.0**calls, RULES.longest_wait)
            assert now - last >= grown * (1 - JITTER) - 1e-9
            calls, last = calls + 1, now
    assert breaker.state == "open"
    assert breaker.waits == calls + 1


@given(st.integers(0, 12), st.integers(1, 50))
def test_a_host_that_is_well_again_is_called_at_full_pace_after_a_few_rounds(
    failed_trials: int, at_once: int
) -> None:
    breaker = _ill()
    now = 0.0
    for _ in range(failed_trials):
        now = breaker.probe_at
        assert _call(breaker, now, is_well=False)
    now = breaker.probe_at
    rounds: list[int] = []
    while breaker.state != "closed":
        trials: list[bool] = []
        while len(trials) < at_once and breaker.wait(now) == 0:
            trials.append(breaker.enter())
        rounds.append(len(trials))
        assert trials
        assert all(trials)
        for _ in trials:
            breaker.succeed(is_trial=True)
        now += 0.01
    assert rounds[0] == 1
    assert all(later <= 2 * earlier for earlier, later in itertools.pairwise(rounds))
    assert sum(rounds) < 2 * FULL
    assert breaker.wait(now) == 0
    assert not breaker.enter()
    assert breaker.is_idle


def test_a_failure_on_the_way_back_opens_it_for_longer() -> None:
    breaker = _ill()
    first = breaker.probe_at
    states = []
    for is_well in (True, False):
        assert _call(breaker, first, is_well=is_well)
        states.append(breaker.state)
    assert states == ["recovering", "open"]
    assert breaker.probe_at - first > RULES.first_wait


def test_what_began_before_it_opened_decides_nothing() -> None:
    breaker = _ill()
    breaker.succeed(is_trial=False)
    assert breaker.state == "open"
    probe_at = breaker.probe_at
    breaker.fail(1.0, 0.5, is_trial=False)
    assert breaker.probe_at == probe_at


def test_a_trial_that_says_nothing_lets_the_next_one_try() -> None:
    breaker = _ill()
    now = breaker.probe_at
    assert breaker.wait(now) == 0
    assert breaker.enter()
    assert breaker.wait(now) > 0, "one at a time"
    breaker.leave(is_trial=True)
    assert breaker.wait(now) == 0


def test_answers_in_between_keep_it_closed_and_none_may_open_it_where_it_is_off() -> None:
    breaker = Breaker(RULES)
    for number in range(100):
        assert _call(breaker, float(number), is_well=number % RULES.failures == 0)
    assert breaker.state == "closed"
    off = Breaker(BreakerRules(0, 1.0, 1.0))
    for number in range(100):
        assert _call(off, float(number), is_well=False)
    assert off.state == "closed"


def test_what_others_have_found_out_is_believed() -> None:
    breaker = Breaker(RULES)
    breaker.adopt("open", since=1.0, failures=9, waits=3, probe_at=50.0)
    assert breaker.wait(10.0) == 40.0
    assert _call(breaker, 50.0, is_well=False)
    assert breaker.probe_at - 50.0 > 2 * RULES.first_wait, "it goes on where the others were"
    breaker.adopt("closed", since=1.0, failures=0, waits=0, probe_at=0.0)
    assert breaker.wait(51.0) == 0
    assert not breaker.enter()
