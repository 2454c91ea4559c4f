"""Where a report and its plots may go is known before anything is measured, and the try leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cronwell import errors
from cronwell.bench.keeping import check_file, check_folder
from cronwell.cli.bench import _drawing_into
from cronwell.cli.failures import Failure

ROOT = Path(__file__).parents[2]


def test_a_report_that_can_be_written_is_not_begun(tmp_path: Path) -> None:
    check_file(tmp_path / "report.json")
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_is_there_stays_as_it_was(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text("{}")
    os.utime(report, (1, 1))
    check_file(report)
    assert (report.read_text(), report.stat().st_mtime) == ("{}", 1)


def test_a_link_that_leads_to_no_report_yet_stays_one(tmp_path: Path) -> None:
    link = tmp_path / "latest.json"
    link.symlink_to(tmp_path / "today.json")
    check_file(link)
    assert (link.is_symlink(), link.exists()) == (True, False)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere/report.json", "there is no folder .*/nowhere; make it, or name another"),
        ("file/report.json", "Not a directory"),
        ("folder", "Is a directory"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(errors.ConfigError, match=told):
        check_file(tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "file"}


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no file system that takes no files")
def test_what_even_root_cannot_write_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="name another file"):
        check_file(Path("/proc/report.json"))
    for folder in (Path("/proc"), Path("/proc/plots")):
        with pytest.raises(errors.ConfigError, match="name another folder"):
            check_folder(folder)


def test_a_folder_for_plots_is_made_only_when_there_are_some(tmp_path: Path) -> None:
    check_folder(tmp_path / "plots")
    check_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "told"), [("file", "Not a directory"), ("nowhere/plots", "no folder .*/nowhere;")]
)
def test_a_folder_that_cannot_have_plots_is_refused(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.ConfigError, match=told):
        _drawing_into(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_is_lost_meanwhile_is_told_without_a_traceback(tmp_path: Path) -> None:
    draw = _drawing_into(tmp_path / "plots")
    (tmp_path / "plots").touch()
    with pytest.raises(Failure, match=r"plots could not be written into .*: File exists"):
        draw({"facts": {}, "rows": {}})


def test_a_quick_run_of_everything_is_no_evidence() -> None:
    full, quick, elsewhere = (_made(*given) for given in ([], ["ARGS=--quick"], ["KEEP=/tmp/reports"]))
    assert full.count("--output docs/evidence/") == 2
    assert quick.count("--output bench/results/") == quick.count("--quick") == 2
    assert elsewhere.count("--output /tmp/reports/") == 2
    assert ("docs/evidence" in quick, "docs/evidence" in elsewhere) == (False, False)
    assert ("1000000" in full, "1000000" in quick, "1000000" in elsewhere) == (True, False, True)


def _made(*variables: str) -> str:
    """What `make bench` would run."""
    done = subprocess.run(
        ["make", "--dry-run", "bench", *variables], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout
