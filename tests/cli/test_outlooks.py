"""Commands that look at all jobs at once: the forecast, the reconciliation, and new rules of zones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cronwell.cli.forecast import plot
from tests.cli import examples
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedApi

FROM, TO = "2026-05-05T12:00:00Z", "2026-05-06T12:00:00Z"


def _forecast(**fields: Any) -> dict[str, Any]:
    minutes = [0] * 1440
    minutes[0], minutes[180], minutes[181], minutes[1439] = 10, 400, 400, 100
    return {
        "from": FROM,
        "to": TO,
        "jobs": 1234,
        "total": 910,
        "peak": {"at": "2026-05-05T15:00:00Z", "count": 400},
        "is_sampled": False,
        "share": 1.0,
        "minutes": minutes,
    } | fields


class TestForecast:
    def test_bars_are_plotted_with_the_peak_marked(self, run: Run, api: ScriptedApi) -> None:
        api.on("GET", "/v1/forecast", _forecast())
        result = run("forecast")
        head, *bars, mark, axis, peak = result.stdout.splitlines()
        assert head == "910 fires of 1,234 jobs in the next 24 hours"
        assert len(bars) == 8
        assert bars[0] == f"{800:>8} " + " " * 12 + "█"
        assert bars[-1] == f"{0:>8} " + "▁" + " " * 11 + "█" + " " * 82 + "█"
        assert mark == " " * 9 + " " * 12 + "▲"
        assert axis.split() == ["12:00", "15:00", "18:00", "21:00", "00:00", "03:00", "06:00", "09:00"]
        assert axis.index("15:00") == mark.index("▲")
        assert peak.startswith("peak: 400 in the minute from 2026-05-05 15:00:00 (")
        assert result.stderr == ""

    @pytest.mark.parametrize(("width", "columns"), [(200, 96), (105, 96), (104, 48), (57, 48), (40, 24)])
    def test_a_narrow_terminal_gets_wider_columns(self, width: int, columns: int) -> None:
        *bars, mark, _ = plot(_forecast(), width)
        assert max(map(len, bars)) == 9 + columns, "the last minute has fires"
        assert mark.index("▲") == bars[0].index("█")

    def test_estimates_say_so(self, run: Run, api: ScriptedApi) -> None:
        api.on("GET", "/v1/forecast", _forecast(is_sampled=True, share=0.002))
        result = run("forecast")
        assert result.stdout.startswith("about 910 fires of about 1,234 jobs")
        assert "peak: about 400" in result.stdout
        assert result.stderr == "estimated from 0.20% of the jobs\n"

    def test_nothing_to_come_is_told_without_a_plot(self, run: Run, api: ScriptedApi) -> None:
        api.on("GET", "/v1/forecast", _forecast(total=0, minutes=[0] * 1440))
        assert len(run("forecast").stdout.splitlines()) == 1

    def test_json_is_the_answer_itself(self, run: Run, api: ScriptedApi) -> None:
        api.on("GET", "/v1/forecast", _forecast())
        assert json.loads(run("forecast", "--json").stdout) == _forecast()


def _page(**fields: Any) -> dict[str, Any]:
    page = {"jobs": 1, "expected": 10, "accounted": 10, "missing": 0, "extra": 0, "unreadable": 0}
    return {"from": FROM, "to": TO, "shard": 0, **page, "differences": [], "next_cursor": None} | fields


def _difference(kind: str) -> dict[str, Any]:
    return {"kind": kind, "job_id": examples.JOB_ID, "job": "hello", "slot": "2026-05-05T12:30:00Z"}


class TestReconcile:
    RANGE = ("--from", "2026-05-05T12:00Z", "--to", "2026-05-05T13:00Z")

    def test_every_shard_is_asked_and_the_numbers_add_up(self, run: Run, api: ScriptedApi) -> None:
        api.on("GET", "/v1/reconcile", _page())
        result = run("reconcile", *self.RANGE)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == "expected 640, accounted for 640, missing 0, extra 0; 64 jobs\n"
        assert [each.query["shard"] for each in api.requests] == [[str(shard)] for shard in range(64)]
        assert {(*each.query["from"], *each.query["to"]) for each in api.requests} == {
            ("2026-05-05T12:00:00Z", "2026-05-05T13:00:00Z")
        }

    def test_what_is_missing_is_named_and_fails(self, run: Run, api: ScriptedApi) -> None:
        api.on(
            "GET",
            "/v1/reconcile",
            _page(
                accounted=9,
                missing=1,
                extra=1,
                differences=[_difference("missing"), _difference("extra")],
            ),
        )
        result = run("reconcile", *self.RANGE, "--shard", "3")
        assert result.exit_code == 1
        head, missing, extra, total = result.stdout.splitlines()
        assert head.split() == ["WHAT", "JOB", "SLOT", "JOB", "ID"]
        assert missing.split()[:4] == ["missing", "hello", "2026-05-05", "12:30:00"]
        assert extra.startswith("extra")
        assert total == "expected 10, accounted for 9, missing 1, extra 1; 1 jobs"
        assert len(api.requests) == 1

    def test_what_is_extra_does_not_fail(self, run: Run, api: ScriptedApi) -> None:
        api.on("GET", "/v1/reconcile", _page(extra=1, differences=[_difference("extra")], unreadable=2))
        result = run("reconcile", *self.RANGE, "--shard", "3")
        assert result.exit_code == 0
        assert "slots of 2 jobs cannot be computed" in result.stderr

    def test_pages_and_days_are_asked_one_after_the_other(self, run: Run, api: ScriptedApi) -> None:
        api.on("GET", "/v1/reconcile", _page(next_cursor="more"))
        api.on("GET", "/v1/reconcile", _page())
        api.on("GET", "/v1/reconcile", _page(missing=1, accounted=9))
        result = run(
            "reconcile", "--from", "2026-05-05T12:00Z", "--to", "2026-05-06T18:00Z", "--shard", "3", "--json"
        )
        assert result.exit_code == 1
        document = json.loads(result.stdout)
        assert (document["expected"], document["missing"], document["jobs"], document["shard"]) == (
            30, 1, 1, 3
        )  # fmt: skip
        assert [(each.query["from"], each.query.get("cursor")) for each in api.requests] == [
            (["2026-05-05T12:00:00Z"], None),
            (["2026-05-05T12:00:00Z"], ["more"]),
            (["2026-05-06T12:00:00Z"], None),
        ]
        assert api.last.query["to"] == ["2026-05-06T18:00:00Z"]

    def test_by_default_the_hour_before_the_servers_now_is_asked_for(
        self, run: Run, api: ScriptedApi
    ) -> None:
        api.on("GET", "/v1/cluster", {"now": "2026-05-05T13:00:00.5Z"})
        api.on("GET", "/v1/reconcile", _page())
        assert run("reconcile", "--shard", "0").exit_code == 0
        assert api.last.query["from"] == ["2026-05-05T12:00:00.500000Z"]

    @pytest.mark.parametrize(
        "options", [["--from", "x"], ["--from", "2026-05-05T14:00Z", "--to", "2026-05-05T13:00Z"], ["--shard", "64"]]
    )  # fmt: skip
    def test_wrong_options_are_told_before_anything_is_asked(
        self, run: Run, api: ScriptedApi, options: list[str]
    ) -> None:
        api.on("GET", "/v1/cluster", {"now": TO})
        assert run("reconcile", *options).exit_code == 2
        assert [each.path for each in api.requests if each.path == "/v1/reconcile"] == []


def _shift(**fields: Any) -> dict[str, Any]:
    return {
        "job_id": examples.JOB_ID,
        "job": "hello",
        "timezone": "Europe/Berlin",
        "tzdata": "2026a",
        "next_slot": "2026-05-05T17:00:00Z",
        "local": "2026-05-05T19:00:00+02:00",
        "moves_to": "2026-05-05T16:00:00Z",
        "moves_to_local": "2026-05-05T18:00:00+02:00",
        "staged": 0,
    } | fields


def _impact(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    counts = {"stale": 5, "moved": len(items)}
    return {"tzdata": "2026b", "setting": "ask", **counts, "items": list(items), "next_cursor": None} | fields


SETTLED = {"tzdata": "2026b", "changed": 2, "unchanged": 3, "next_cursor": None}


class TestTzdata:
    def test_what_moves_is_listed_from_all_pages(self, run: Run, api: ScriptedApi) -> None:
        api.on("GET", "/v1/tzdata/impact", _impact(_shift(), next_cursor="more"))
        api.on("GET", "/v1/tzdata/impact", _impact(_shift(job="ends", moves_to=None, moves_to_local=None)))
        result = run("tzdata", "impact")
        assert result.exit_code == 0
        head, first, second = result.stdout.splitlines()
        assert head.startswith("JOB")
        assert "2026-05-05 17:00:00" in first
        assert "-1h" in first
        assert "2026-05-05T18:00:00+02:00" in first
        assert "never again" in second
        assert "2 of 10 jobs" in result.stderr
        assert "cronwell tzdata apply" in result.stderr

    def test_nothing_that_moves_is_told(self, run: Run, api: ScriptedApi) -> None:
        api.on("GET", "/v1/tzdata/impact", _impact())
        result = run("tzdata", "impact", "--apply")
        assert (result.stdout, result.stderr) == ("", "nothing moves under tzdata 2026b\n")
        assert len(api.requests) == 1

    @pytest.mark.parametrize(("option", "told"), [("--apply", "moved: 2"), ("--hold", "held: 2")])
    def test_what_is_listed_is_settled_when_asked(
        self, run: Run, api: ScriptedApi, option: str, told: str
    ) -> None:
        api.on("GET", "/v1/tzdata/impact", _impact(_shift()))
        api.on("POST", f"/v1/tzdata/{option[2:]}", SETTLED)
        result = run("tzdata", "impact", option)
        assert result.stdout.splitlines()[-1].startswith(told)
        assert "hello" in result.stdout
        document = json.loads(run("tzdata", "impact", option, "--json").stdout)
        assert (len(document["items"]), document["settled"]["changed"]) == (1, 2)

    def test_both_at_once_are_refused(self, run: Run, api: ScriptedApi) -> None:
        assert run("tzdata", "impact", "--apply", "--hold").exit_code == 2
        assert api.requests == []

    @pytest.mark.parametrize("action", ["apply", "hold"])
    def test_all_jobs_are_settled_until_there_are_no_more(
        self, run: Run, api: ScriptedApi, action: str
    ) -> None:
        api.on("POST", f"/v1/tzdata/{action}", SETTLED | {"next_cursor": "more"})
        api.on("POST", f"/v1/tzdata/{action}", SETTLED)
        document = json.loads(run("tzdata", action, "--json").stdout)
        assert (document["changed"], document["unchanged"]) == (4, 6)
        assert [each.json for each in api.requests] == [{}, {"cursor": "more"}]

    def test_jobs_can_be_named(self, run: Run, api: ScriptedApi) -> None:
        api.on("POST", "/v1/tzdata/hold", SETTLED)
        result = run("tzdata", "hold", "hello", examples.JOB_ID)
        assert result.stdout == "held: 2, the same under tzdata 2026b: 3\n"
        assert api.last.json == {"jobs": ["name:hello", examples.JOB_ID]}

    def test_many_names_are_sent_in_parts(self, run: Run, api: ScriptedApi) -> None:
        api.on("POST", "/v1/tzdata/apply", SETTLED)
        run("tzdata", "apply", *(f"job-{number}" for number in range(150)))
        assert [len(each.json["jobs"]) for each in api.requests] == [100, 50]
