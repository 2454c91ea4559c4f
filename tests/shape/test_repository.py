"""The repository keeps its shape: locks without addresses, no one's machine in it, a changelog that is kept."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.shape import rules
from tests.shape.tree import ROOT, shown, texts

LOCKS = ("requirements.lock", "requirements-dev.lock")
PIN = re.compile(r"^([a-z0-9._-]+)(?:\[[a-z0-9,_-]+\])?==(\S+)", re.MULTILINE)


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_address(name: str) -> None:
    lock = (ROOT / name).read_text()
    assert re.findall(r"\S*(?:://|@ file|--index|--find-links|--extra)\S*", lock) == []


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_of_a_lock_has_a_hash(name: str) -> None:
    entries = re.split(
        r"\n(?=[a-z0-9])", re.sub(r"^#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
    )
    assert [
        entry.split()[0] for entry in entries if not PIN.match(entry) or "--hash=sha256:" not in entry
    ] == []


def test_both_locks_pin_the_same_versions() -> None:
    run, dev = (set(PIN.findall((ROOT / name).read_text())) for name in LOCKS)
    assert run - dev == set()


def test_every_direct_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    wanted = [*project["project"]["dependencies"], *groups["build"], *groups["dev"]]
    names = {re.split(r"[^a-z0-9._-]", entry)[0] for entry in wanted if isinstance(entry, str)}
    assert names - {name for name, _ in PIN.findall((ROOT / "requirements-dev.lock").read_text())} == set()


def test_nothing_points_to_one_machine_or_registry() -> None:
    found = [f"{shown(path)}:{line}" for path, text in texts() for line in rules.places_of_one_machine(text)]
    assert found == []


def test_the_changelog_says_what_is_unreleased() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d{2}-\d{2}", heading) for heading in headings[1:])


def test_the_readme_starts_with_the_two_commands() -> None:
    first_block = (ROOT / "README.md").read_text().split("```")[1]
    assert re.findall(r"^make \w+", first_block, re.MULTILINE) == ["make run", "make test"]


def test_decisions_are_numbered_and_complete() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [path.name[:4] for path in decisions] == [
        f"{number:04d}" for number in range(1, len(decisions) + 1)
    ]
    assert {shown(path): missing for path in decisions if (missing := _missing_headings(path))} == {}


def _missing_headings(decision: Path) -> list[str]:
    headings = re.findall(r"^## (.*)$", decision.read_text(), re.MULTILINE)
    return [
        each for each in ("Context", "Choice", "What is given up", "How to undo it") if each not in headings
    ]
