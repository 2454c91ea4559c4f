"""Limits of targets: what they are called, how they are shared, and what a valve lets through."""

from __future__ import annotations

import heapq
import random as chance

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronwell.model.breaker import Breaker, BreakerRules
from cronwell.model.job import Target
from cronwell.model.throttle import Limit, host_of, read_rate, read_target, target_name
from cronwell.model.valve import BURST, PATIENCE, WAITING, Room, Valve


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://API.Example.com/run?x=1", "api.example.com"),
        ("https://api.example.com:443/", "api.example.com"),
        ("http://api.example.com.:80/", "api.example.com"),
        ("http://api.example.com:8080/", "api.example.com:8080"),
        ("http://[::1]:9/", "[::1]:9"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
    ],
)
def test_a_target_goes_by_its_host_however_that_is_written(url: str, host: str) -> None:
    assert host_of(url) == host
    assert read_target(f"host:{host}") == f"host:{host}"
    assert target_name(Target.model_validate({"http": {"url": url}})) == f"host:{host}"


def test_other_targets_go_by_their_name_or_kind() -> None:
    assert target_name(Target.model_validate({"handler": {"name": "a.b"}})) == "handler:a.b"
    assert target_name(Target.model_validate({"shell": {"command": "true"}})) == "shell"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "host:",
        "host:a b",
        "host:a/b",
        "host:a:0",
        "host:a:99999",
        "host:u@h",
        "host:a%2fb",
        "handler:",
        "handler:1",
        "host:" + "a" * 64,
        "host:" + "a." * 200,
        "shell:x",
        "host:\x00",
        "host:[::1",
        "host:a..b",
    ],
)
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"target|host"):
        read_target(text)


@pytest.mark.parametrize(
    "text", ["", "100", "0/s", "0.000/s", "-1/s", "1/d", "1 /s", "s", "1e3/s", "99999999/s", "∞/s"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="rate"):
        read_rate(text)


@pytest.mark.parametrize(
    ("text", "rate"), [("100/s", 100.0), ("600/m", 10.0), ("1/h", 1 / 3600), ("0.5/s", 0.5)]
)
def test_a_rate_is_read(text: str, rate: float) -> None:
    assert read_rate(text) == pytest.approx(rate)


@given(st.integers(1, 10_000), st.integers(1, 60))
def test_all_shares_together_are_the_limit(concurrency: int, workers: int) -> None:
    shares = [Limit(float(concurrency), concurrency).share(workers, rank) for rank in range(workers)]
    assert sum(share.concurrency or 0 for share in shares) == concurrency
    assert sum(share.rate or 0 for share in shares) == pytest.approx(concurrency)


def _simulate(
    limit: Limit, arrivals: list[float], workers: int, *, takes: float, seed: int
) -> tuple[list[float], int]:
    """When each of these starts, over so many workers, any of which takes up what comes back; and how often one was held."""
    random = chance.Random(seed)
    valves = [Valve() for _ in range(workers)]
    for rank, valve in enumerate(valves):
        valve.limit(limit, workers, rank)
    # Events: (time, order, what, valve number)
    events: list[tuple[float, int, str, int]] = [
        (at, number, "new", 0) for number, at in enumerate(sorted(arrivals))
    ]
    heapq.heapify(events)
    starts: list[float] = []
    held = 0
    order = len(events)
    while events:
        now, _, what, here = heapq.heappop(events)
        order += 1
        if what == "end":
            valves[here].leave(now, takes)
        elif what == "start":
            starts.append(now)
            heapq.heappush(events, (now + takes, order, "end", here))
        else:
            here = random.randrange(workers)
            verdict = valves[here].ask(now, is_back=what == "back")
            if verdict.is_held:
                held += 1
                heapq.heappush(events, (now + verdict.wait, order, "back", 0))
            else:
                valves[here].enter()
                heapq.heappush(events, (now + verdict.wait, order, "start", here))
    return starts, held


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from([2.0, 10.0, 50.0]),
    st.integers(1, 5),
    st.integers(1, 400),
    st.floats(0, 5),
    st.integers(0, 99),
)
def test_a_rate_is_kept_by_all_workers_together_and_nothing_is_left(
    rate: float, workers: int, count: int, span: float, seed: int
) -> None:
    random = chance.Random(seed)
    arrivals = [1000 + random.random() * span for _ in range(count)]
    starts, held = _simulate(Limit(rate), arrivals, workers, takes=0.01, seed=seed)
    assert len(starts) == count
    starts.sort()
    allowed = rate + rate * BURST + workers + 1
    for first, start in enumerate(starts):
        within = sum(start <= other < start + 1.0 for other in starts[first : first + int(allowed) + 2])
        assert within <= allowed
    # Work-conserving: not much longer than the rate takes for all of them.
    assert starts[-1] - arrivals[0] <= span + 1.8 * count / rate + 8.0
    # And hardly ever written back more often than the share of a worker asks for.
    assert held <= count * (workers + 2)


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 20),
    st.integers(1, 4),
    st.integers(1, 150),
    st.sampled_from([0.05, 0.5, 3.0]),
    st.integers(0, 99),
)
def test_concurrency_is_kept_by_all_workers_together_and_nothing_is_left(
    concurrency: int, workers: int, count: int, takes: float, seed: int
) -> None:
    starts, _ = _simulate(
        Limit(None, concurrency),
        [1000.0 + number / 1000 for number in range(count)],
        workers,
        takes=takes,
        seed=seed,
    )
    assert len(starts) == count
    for start in starts:
        assert sum(start - takes < other <= start for other in starts) <= concurrency


def test_those_who_come_back_go_first_and_the_line_is_in_order() -> None:
    valve = Valve()
    valve.limit(Limit(1.0), 1, 0)
    now = 1000.0
    waits = [valve.ask(now) for _ in range(6)]
    assert [verdict.is_held for verdict in waits] == [False, False, True, True, True, True]
    times = [verdict.wait for verdict in waits if verdict.is_held]
    assert times == sorted(times)
    assert times[0] > PATIENCE
    assert valve.ask(now + 1.5).is_held, "a new one joins the end of the line"
    assert not valve.ask(now + times[0], is_back=True).is_held


def test_no_more_wait_in_their_places_than_a_few() -> None:
    valve = Valve()
    valve.limit(Limit(1000.0), 1, 0)
    verdicts = [valve.ask(1000.0) for _ in range(5000)]
    assert sum(verdict.wait > 0 and not verdict.is_held for verdict in verdicts) <= WAITING + 1


def test_a_host_that_answers_nobody_takes_half_of_the_places() -> None:
    valve = Valve(Breaker(BreakerRules(20, 1.0, 60.0)), Room(places=100, per_host=10))
    let_in = 0
    for _ in range(100):
        verdict = valve.ask(1000.0)
        if verdict.wait == 0:
            valve.enter()
            let_in += 1
        else:
            assert verdict.asks_again
    assert let_in == 50
    assert valve.ask(1000.0 + PATIENCE).is_held, "it gives its place up"
    for _ in range(45):
        valve.leave(1002.0, 1.0)
    while valve.ask(1002.1).wait == 0:
        valve.enter()
    assert valve.running == 10 + 45 + 1, "what is under way, and what the host answers in a second"
    assert valve.ask(1002.1).asks_again


def test_a_limit_that_is_gone_is_forgotten() -> None:
    valve = Valve()
    valve.limit(Limit(0.01), 3, 1)
    assert not valve.is_idle
    held = [valve.ask(1000.0) for _ in range(5)]
    assert held[-1].is_held
    valve.limit(None, 3, 1)
    assert valve.ask(1000.0).wait == 0
    assert valve.is_idle
