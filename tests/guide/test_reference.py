"""The generated pages are what the code says, and the settings file that they show can be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from cronwell import config
from tests.guide import pages
from tests.guide.pages import ROOT
from tools import reference


@pytest.mark.parametrize("name", list(reference.PAGES))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    [text] = [text for path, text in reference.pages() if path.stem == name]
    stale = "run `make docs`, or `python tools/reference.py`, and commit what it wrote"
    assert (reference.FOLDER / f"{name}.md").read_text() == text, stale


def test_the_settings_file_that_is_shown_has_every_default(tmp_path: Path) -> None:
    [block] = pages.blocks(ROOT / "docs" / "reference" / "settings.md", "toml")
    file = tmp_path / "cronwell.toml"
    file.write_text(block.text)
    assert config.read({}, file) == config.Settings()
    lines = config.describe({}, file)
    assert {line.path for line in lines if line.origin == "default"} == set()


def test_what_is_stale_is_told_and_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for page in reference.FOLDER.glob("*.md"):
        (tmp_path / page.name).write_text(page.read_text())
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    stale = tmp_path / "metrics.md"
    stale.write_text("# Metrics\n\nBy hand.\n")
    assert reference.main(["--check"]) == 1
    assert "metrics.md is stale" in capsys.readouterr().out
    assert reference.main([]) == 0
    assert stale.read_text().startswith("# Metrics\n\nBy hand.\n\n<!-- ")
    assert "`cronwell_queue_depth`" in stale.read_text()
    assert reference.main(["--check"]) == 0
