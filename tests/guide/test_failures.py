"""The page about failures knows every fault that the rig injects, and says of each what is asked for."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from cronwell import telemetry
from tests.faults import nemesis
from tests.guide.pages import ROOT

PAGE = ROOT / "docs" / "operations" / "failures.md"
PARTS = ("Seen", "Promised", "Do", "Shown by")
NO_FAULT = "none"


def _entries() -> dict[str, str]:
    """The text of each entry, by its title."""
    pieces = re.split(r"^### (.*)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {title: text.partition("\n## ")[0] for title, text in zip(pieces[::2], pieces[1::2], strict=True)}


def _quoted(text: str) -> set[str]:
    """What is in backquotes, each in one line."""
    return {" ".join(each.split()) for each in re.findall(r"`([^`]+)`", text)}


def test_every_fault_of_the_rig_has_its_entry() -> None:
    shown = _quoted(" ".join(text.partition("**Shown by:**")[2] for text in _entries().values()))
    names = {re.sub(r" \(\w+\)$", "", fault.name) for fault in nemesis.everything()}
    assert names - shown == {NO_FAULT}


def test_every_entry_says_what_is_seen_and_promised_and_what_to_do() -> None:
    lacking = [
        (title, part)
        for title, text in _entries().items()
        for part in PARTS
        if f"- **{part}:**" not in text and "- **Seen, promised, to do:**" not in text
    ]
    assert lacking == []
    assert len(_entries()) >= 18


def test_every_scenario_that_is_named_exists_and_each_is_named() -> None:
    tree = ast.parse((ROOT / "tests" / "faults" / "test_scenarios.py").read_text())
    there = {each.name.removeprefix("test_") for each in tree.body if isinstance(each, ast.AsyncFunctionDef)}
    named = set(re.findall(r"SCENARIO=(\w+)", PAGE.read_text()))
    assert named == {name for name in there if not name.startswith("_")} - {"mixed"}


def test_every_event_that_an_operator_is_told_of_exists() -> None:
    """What reads like a line of the log: words, in lower case, that are no command, setting, route or fault."""
    symptoms = PAGE.read_text().partition("\n\nThree things hold")[0]
    seen = symptoms + " ".join(
        text.partition("**Seen:**")[2].partition("**Promised:**")[0] for text in _entries().values()
    )
    words = {
        each
        for each in _quoted(seen)
        if re.fullmatch(r"(?:an?|another|etcd|executions|results|shards|this|no attempts)\b[^…:]* .*", each)
    }
    source = " ".join(
        " ".join(each.read_text() for each in Path(telemetry.__file__).parent.glob("*.py")).split()
    )
    assert len(words) >= 12
    assert [each for each in words if f'"{each.partition(" …")[0]}' not in source] == []
