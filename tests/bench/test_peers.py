"""What the comparison with peers says: the protocol, the figures from start times, and the tables, with no peer installed."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Coroutine
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bench.peers import catalogue
from bench.peers.figures import Figures, drained, figures_of, kept_up, lateness, middle_of, multiple, recurred
from bench.peers.protocol import WORKS, Done, Misspoken, Ready, Report, Task, merge, parse
from bench.peers.run import Entrant, compare, main, task_of
from bench.peers.table import OWN, Entry, report_of, table_of

DRAIN = Task("drain", jobs=4)
STEADY = Task("steady", jobs=4, rate=2, seconds=2, start=100.0)
RECURRING = Task("recurring", schedules=2, seconds=3, start=100.0)


def test_a_worker_is_understood() -> None:
    assert parse('{"ready": true}\n') == Ready()
    assert parse('{"done": 12}') == Done(12)
    assert parse('{"starts": [1.5], "dues": [1.0], "keys": [7]}') == Report([1.5], [1.0], [7])
    assert parse('{"starts": [1.5], "dues": null}') == Report([1.5])


@pytest.mark.parametrize(
    "line",
    ["", "starting up", '"ready"', '{"ready": false}', '{"done": "3"}', '{"starts": [1, 2], "dues": [1]}'],
)
def test_what_is_not_in_the_protocol_is_refused(line: str) -> None:
    with pytest.raises(Misspoken):
        parse(line)


def test_workers_are_told_where_the_database_is_in_every_form() -> None:
    environ = STEADY.environ("postgresql://somebody:p%40ss@127.0.0.1:6000/work", "redis://127.0.0.1:1/0")
    assert (environ["PGHOST"], environ["PGPORT"], environ["PGDATABASE"]) == ("127.0.0.1", "6000", "work")
    assert (environ["PGUSER"], environ["PGPASSWORD"]) == ("somebody", "p@ss")
    assert environ["PEER_REDIS_URL"] == "redis://127.0.0.1:1/0"
    assert float(environ["PEER_START"]) == STEADY.start


def test_the_reports_of_all_workers_become_one() -> None:
    merged = merge([Report([1.0], [0.5], [3]), Report([2.0, 3.0], [1.5, 2.5], [4, 5]), Report([])])
    assert merged == Report([1.0, 2.0, 3.0], [0.5, 1.5, 2.5], [3, 4, 5])


def test_dues_count_only_if_every_worker_that_ran_something_has_them() -> None:
    assert merge([Report([1.0], [0.5]), Report([2.0])]).dues is None
    assert merge([Report([1.0], [0.5]), Report([])]).dues == [0.5]


def test_a_drain_lasts_until_the_store_has_recorded_the_last_job() -> None:
    report = Report([10.0, 10.5, 11.0, 11.5])
    assert drained(DRAIN, report, ended_at=12.0).per_second == 2.0
    assert drained(DRAIN, report, ended_at=None).per_second == pytest.approx(4 / 1.5)
    # A clock that is read before the last start cannot shorten it.
    assert drained(DRAIN, report, ended_at=10.1).per_second == pytest.approx(4 / 1.5)


def test_what_a_drain_starts_again_does_not_make_it_faster() -> None:
    found = drained(DRAIN, Report([10.0, 10.0, 11.0, 11.0, 12.0]), ended_at=12.0)
    assert (found.per_second, found.again, found.missed) == (2.0, 1, 0)


def test_a_drain_in_which_nothing_started_has_missed_everything() -> None:
    found = drained(DRAIN, Report([]), ended_at=None)
    assert (found.per_second, found.missed) == (0.0, 4)


def test_of_several_drains_the_middle_one_counts_and_no_miss_is_lost() -> None:
    rounds = [
        Figures(4, 4, per_second=30.0),
        Figures(4, 3, per_second=10.0, note="stopped when patience ran out"),
        Figures(4, 4, again=1, per_second=20.0),
    ]
    found = middle_of(rounds)
    assert (found.per_second, found.rounds) == (20.0, [30.0, 10.0, 20.0])
    assert (found.missed, found.again, found.note) == (1, 1, "stopped when patience ran out")
    assert middle_of(rounds[:1]) == rounds[0]


async def test_drains_that_are_soon_over_are_run_in_rounds_forth_and_back() -> None:
    ran: list[str] = []

    def entrant(who: str, per_second: float) -> Entrant:
        async def run(task: Task) -> Entry:
            ran.append(who)
            return Entry(who, "1", Figures(task.jobs, task.jobs, per_second=per_second + len(ran)))

        return Entrant(who, run)

    entrants = [entrant("quick", 100.0), entrant("slow", -1.9), entrant("quicker", 200.0)]
    known = [entries async for entries in compare(DRAIN, entrants, 3) if entries]
    assert ran == ["quick", "slow", "quicker", "quicker", "quick", "quick", "quicker"]
    assert [len(entries) for entries in known] == [1, 2, 3, 3, 3, 3, 3]
    quick, slow, quicker = known[-1]
    assert [len(each.figures.rounds) for each in (quick, slow, quicker) if each.figures] == [3, 0, 3]
    ran.clear()
    assert len([entries async for entries in compare(STEADY, entrants, 3)]) == len(ran) == 3


def test_a_steady_rate_is_judged_by_every_job_against_the_moment_it_was_due() -> None:
    found = kept_up(STEADY, Report([100.0, 100.6, 101.2], [100.0, 100.5, 101.0], [0, 1, 2]))
    assert found.lateness_ms == {"p50": 100.0, "p99": 200.0, "max": 200.0}
    assert (found.started, found.missed) == (3, 1)


def test_what_runs_twice_does_not_make_up_for_what_did_not_run() -> None:
    found = kept_up(STEADY, Report([100.0] * 4, [100.0] * 4, [0, 0, 1, 2]))
    assert (found.started, found.missed, found.again) == (3, 1, 1)


def test_a_steady_rate_without_dues_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="due"):
        kept_up(STEADY, Report([1.0]))


def test_recurring_slots_count_once_each_and_only_those_of_the_window() -> None:
    dues = [99.0, 100.0, 101.0, 101.0, 102.0, 103.0, 100.0]
    keys = [0, 0, 0, 0, 0, 0, 1]
    found = recurred(RECURRING, Report([due + 0.25 for due in dues], dues, keys))
    assert (found.expected, found.started, found.missed, found.again) == (6, 4, 2, 1)
    assert found.lateness_ms["max"] == 250.0


def test_a_coarse_schedule_has_fewer_slots_in_the_same_window() -> None:
    task = Task("recurring", schedules=3, seconds=20, period=60, start=120.0)
    found = recurred(task, Report([120.5, 120.5], [120.0, 120.0], [0, 1]))
    assert (found.expected, found.missed) == (3, 1)


def test_who_is_not_told_the_slot_is_measured_against_its_own_grid() -> None:
    found = recurred(RECURRING, Report([100.3, 101.4, 102.3, 100.0, 102.0], None, [0, 0, 0, 1, 1]))
    assert found.lateness_ms == {"p50": 0.0, "p99": 100.0, "max": 100.0}
    assert (found.expected, found.started, found.missed) == (6, 5, 1)


def test_early_by_the_difference_of_two_clocks_is_punctual() -> None:
    assert lateness([-0.002, -0.001]) == {"p50": 0.0, "p99": 0.0, "max": 0.0}
    assert lateness([]) == {}


@given(st.lists(st.floats(0, 1000), min_size=1))
def test_lateness_grows_with_the_share_and_ends_at_the_latest(seconds: list[float]) -> None:
    found = lateness(seconds)
    assert found["p50"] <= found["p99"] <= found["max"]
    assert found["max"] == round(1000 * max(seconds), 1)


def test_the_multiple_says_how_many_times_as_well_cronwell_does() -> None:
    assert multiple(Figures(1, 1, per_second=900.0), Figures(1, 1, per_second=300.0)) == 3.0
    punctual, late = (Figures(1, 1, lateness_ms={"p50": 1, "p99": at, "max": 99}) for at in (4.0, 10.0))
    assert multiple(punctual, late) == 2.5
    assert multiple(punctual, Figures(1, 0)) is None


def test_every_work_has_its_own_figures() -> None:
    report = Report([100.5], [100.0], [0])
    assert figures_of(DRAIN, report, 101.5).per_second == 1.0
    for task in (STEADY, RECURRING):
        found = figures_of(task, report)
        assert (found.per_second, found.lateness_ms["max"]) == (None, 500.0)


def test_the_table_shows_the_multiple_and_says_who_did_not_run() -> None:
    entries = [
        Entry(OWN, "1.0", Figures(4, 4, per_second=12_000.0)),
        Entry("Slow", "2.0", Figures(4, 3, again=1, per_second=4000.0, note="stopped when patience ran out")),
        Entry("Absent", "3.0", None, "not run: no go on this machine"),
    ]
    text = _shown(entries, "drain")
    assert "12,000" in text
    assert "3.0 x" in text
    assert "stopped when patience ran out; 1 started again" in text
    assert "not run: no go on this machine" in text


def test_the_table_says_which_schedules_are_coarser() -> None:
    late = {"p50": 1.0, "p99": 2.0, "max": 3.0}
    task = Task("recurring", schedules=2, seconds=3, period=60)
    text = _shown([Entry("Coarse", "1", Figures(2, 2, lateness_ms=late), task=task)], "recurring")
    assert "every 60 s, its finest" in text


def test_the_report_has_the_multiple_of_every_peer() -> None:
    entries = [
        Entry(OWN, "1", Figures(4, 4, per_second=9.0)),
        Entry("Peer", "2", Figures(4, 4, per_second=3.0)),
    ]
    report = json.loads(
        json.dumps(report_of({"machine": "two cores"}, 5.0, {"drain": DRAIN}, {"drain": entries}))
    )
    own, peer = report["works"]["drain"]["entries"]
    assert (own["cronwell_multiple"], peer["cronwell_multiple"]) == (None, 3.0)
    assert report["works"]["drain"]["jobs"] == 4


def test_every_peer_pins_its_version_and_says_how_it_is_configured() -> None:
    peers = catalogue.peers()
    assert {peer.name for peer in peers} == set(catalogue.ORDER)
    locks = {"python": "requirements.txt", "node": "package-lock.json", "go": "go.sum", "java": "pom.xml"}
    for peer in peers:
        assert peer.version in _pins(peer.folder), peer.name
        assert "http" not in (peer.folder / locks[peer.toolchain]).read_text(), peer.name
        assert set(peer.works) <= set(WORKS)
        for work in peer.works:
            assert len(peer.configuration(work)) > 50
            assert "http" not in peer.configuration(work)


def test_sizes_make_the_tasks() -> None:
    sizes = {"jobs": 10, "rate": 5, "seconds": 3, "schedules": 7, "limit": 1}
    assert task_of("drain", sizes, 2) == Task("drain", jobs=10, cores=2)
    assert task_of("steady", sizes, 2).jobs == 15
    assert task_of("recurring", sizes, 2).schedules == 7


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--size", "jobs=none"], "write a whole number from 1 on, not 'none'"),
        (["--size", "jobs=-5"], "write a whole number from 1 on, not '-5'"),
        (["--size", "jobs"], "with FIELD of jobs, rate, seconds, schedules, limit"),
        (["--size", "files=3"], "with FIELD of jobs, rate, seconds, schedules, limit"),
        (["--peers", "nobody"], "no 'nobody'; there are "),
        (["--work", "play"], "no 'play'; there are "),
        (["--peers", "none", "--no-own"], "there is nobody left to run"),
        (["--patience", "-1"], "write a number of seconds above 0, not '-1'"),
        (["--patience", "nan"], "write a number of seconds above 0, not 'nan'"),
        (["--output", "/nowhere/at/all/peers.json"], "there is no folder /nowhere/at/all"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_before_anything_is_built(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncio.run", lambda run: pytest.fail(f"{run} was begun"))
    with pytest.raises(SystemExit) as refusal:
        main(options)
    # argparse has told it already, and ends with a number.
    assert told in f"{refusal.value.code} {capsys.readouterr().err}"


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt, 130), (asyncio.CancelledError, 143)])
def test_one_who_stops_it_is_told_what_is_kept(
    stop: type[BaseException], code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(work: Coroutine[object, object, None]) -> None:
        work.close()
        raise stop

    monkeypatch.setattr("asyncio.run", run)
    with pytest.raises(SystemExit) as end:
        main(["--peers", "none"])
    assert (end.value.code, capsys.readouterr().err) == (code, "stopped; nothing is kept\n")


def _shown(entries: list[Entry], work: str) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(table_of(work, "title", entries))
    return out.getvalue()


def _pins(folder: Path) -> str:
    names = ("requirements.in", "package.json", "go.mod", "pom.xml")
    return "".join((folder / name).read_text() for name in names if (folder / name).exists())
