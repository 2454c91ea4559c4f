"""The source keeps its shape: short files, telling names, promises on top, reasons beside exceptions."""

from __future__ import annotations

from collections.abc import Callable

from tests.shape import rules
from tests.shape.tree import ROOT, SOURCE, TESTS, files, shown

LONGEST_FILE = 400
VAGUE_NAMES = frozenset({"base", "common", "helper", "helpers", "manager", "misc", "shared", "util", "utils"})
# The one way to wait in a test for what announces itself by no event: look again until a deadline.
POLLING = frozenset({"until", "until_async", "until_blocking"})

PYTHON = [path for folder in ("src", "tests", "tools", "bench") for path in files(ROOT / folder, "*.py")]


def test_the_shape_tests_see_the_source() -> None:
    assert SOURCE / "errors.py" in PYTHON
    assert TESTS / "shape" / "rules.py" in PYTHON


def test_no_source_file_is_longer_than_a_reader_can_hold() -> None:
    lengths = {shown(path): len(path.read_text().splitlines()) for path in files(SOURCE, "*.*")}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_no_module_is_named_for_nothing() -> None:
    named = [
        part for path in files(SOURCE, "*.py") for part in path.relative_to(SOURCE).with_suffix("").parts
    ]
    assert VAGUE_NAMES.isdisjoint(named)


def test_every_source_module_says_what_it_is() -> None:
    assert [shown(path) for path in files(SOURCE, "*.py") if rules.lacks_docstring(path.read_text())] == []


def test_every_type_ignore_has_a_code_and_a_reason() -> None:
    assert _broken(rules.unreasoned_ignores) == []


def test_no_work_is_put_off_in_comments() -> None:
    assert _broken(rules.postponed_work) == []


def test_no_test_waits_for_a_while() -> None:
    waits = []
    for path in files(TESTS, "*.py"):
        exempt = POLLING if (TESTS / "support") in path.parents else frozenset[str]()
        waits += [
            f"{shown(path)}:{line}" for line in rules.waits_for_a_while(path.read_text(), exempt=exempt)
        ]
    assert waits == []


def test_no_test_replaces_our_own_code_with_a_mock() -> None:
    assert [shown(path) for path in files(TESTS, "*.py") if "unittest" + ".mock" in path.read_text()] == []


def _broken(rule: Callable[[str], list[int]]) -> list[str]:
    return [f"{shown(path)}:{line}" for path in PYTHON for line in rule(path.read_text())]
