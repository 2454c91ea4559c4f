"""How handlers are registered and loaded, and what is said when they cannot be."""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import cronwell
from cronwell import errors
from cronwell.targets.registry import REGISTRY, Context, Registry, handler, load


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Register into an empty registry, and load from an empty directory."""
    monkeypatch.setattr(REGISTRY, "_handlers", {})
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_the_package_exports_what_a_module_of_handlers_needs() -> None:
    exported = vars(cronwell) | {name: getattr(cronwell, name) for name in ("Context", "handler")}
    assert exported["handler"] is handler
    assert exported["Context"] is Context
    assert issubclass(cronwell.PermanentFailure, Exception)
    assert issubclass(cronwell.RetryAfter, Exception)
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = cronwell.no_such_thing


def test_a_function_is_registered_under_its_name_or_a_given_one_and_stays_as_it_is() -> None:
    @handler
    def refresh() -> str:
        return "refreshed"

    @handler("billing.send:mail-1")
    async def send(ctx: Context) -> None: ...

    assert refresh() == "refreshed"
    assert REGISTRY.names() == ("billing.send:mail-1", "refresh")
    found, sent = REGISTRY.get("refresh"), REGISTRY.get("billing.send:mail-1")
    assert found is not None
    assert sent is not None
    assert (found.is_async, found.takes_context) == (False, False)
    assert (sent.is_async, sent.takes_context) == (True, True)


def test_a_name_that_is_taken_names_both_places() -> None:
    @handler("refresh")
    def first() -> None: ...

    with pytest.raises(errors.ConfigError) as caught:

        @handler("refresh")
        def second() -> None: ...

    said = str(caught.value)
    assert "two handlers are called 'refresh'" in said
    assert said.count(f"{__file__}:") == 2
    assert "first" in said
    assert "second" in said


def test_the_same_line_of_code_may_come_twice() -> None:
    for _ in range(2):

        @handler
        def again() -> None: ...

    assert REGISTRY.names() == ("again",)


class Callables:
    async def method(self, ctx: Context) -> None: ...

    async def __call__(self, ctx: Context) -> None: ...


async def takes_two(ctx: Context, factor: int = 2) -> None: ...


def takes_any(*args: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (Callables().method, True),
        (Callables(), True),
        (functools.partial(takes_two, factor=3), True),
        (takes_two, True),
        (takes_any, False),
    ],
)
def test_whatever_can_be_called_with_a_context_can_be_a_handler(function: Any, is_async: bool) -> None:
    made = Registry().add(function, "name")
    assert (made.is_async, made.takes_context) == (is_async, True)


def yields() -> Iterator[int]:
    yield 1


async def yields_asynchronously() -> AsyncIterator[int]:
    yield 1


def needs_two(ctx: Context, more: int) -> None: ...


def needs_a_keyword(*, ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (yields, "yields"),
        (yields_asynchronously, "yields"),
        (needs_two, "takes 2 arguments; a handler takes the context or nothing"),
        (needs_a_keyword, "a handler takes the context or nothing"),
        (3, "takes a function, not 3"),
    ],
)
def test_what_cannot_be_a_handler_is_refused_at_once(function: Any, said: str) -> None:
    with pytest.raises(errors.ConfigError, match=said):
        Registry().add(function, "name")


@pytest.mark.parametrize("name", ["", "9", "with space", "ä", "<lambda>", "x" * 201])
def test_a_name_that_no_job_could_write_is_refused(name: str) -> None:
    with pytest.raises(errors.ConfigError, match="cannot be a handler's name"):
        handler(name)(takes_any)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(errors.ConfigError, match="<lambda>"):
        handler(lambda: None)


def test_modules_are_loaded_from_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "billing").mkdir()
    (tmp_path / "billing" / "jobs.py").write_text(
        "from cronwell import Context, handler\n\n@handler\ndef refresh(ctx: Context):\n    return ctx.attempt\n"
    )
    load(["billing.jobs"])
    load(["billing.jobs"])
    assert REGISTRY.names() == ("refresh",)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("no_such_module", "there is no module 'no_such_module'; looked in"),
        ("broken.no_such_part", "there is no module 'broken.no_such_part'"),
        ("broken.py", "write its dotted name: broken"),
        ("./broken.py", "write its dotted name: broken"),
        ("a/broken.py", "write its dotted name: a.broken"),
        ("broken.syntax", "SyntaxError"),
        ("broken.needs", "ModuleNotFoundError: No module named 'no_such_dependency'"),
        ("broken.leaves", "SystemExit: 3"),
        ("broken.raises", "ZeroDivisionError"),
        ("", "cannot import ''"),
    ],
)
def test_a_module_that_cannot_be_loaded_stops_the_start_and_says_why(
    tmp_path: Path, module: str, said: str
) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "syntax.py").write_text("def (")
    (folder / "needs.py").write_text("import no_such_dependency")
    (folder / "leaves.py").write_text("import sys; sys.exit(3)")
    (folder / "raises.py").write_text("1 / 0")
    with pytest.raises(errors.ConfigError) as caught:
        load([module])
    assert said in str(caught.value)
    assert repr(module) in str(caught.value)


def test_a_name_that_is_taken_is_told_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(
        "from cronwell import handler\n@handler('x')\ndef a(): ...\n@handler('x')\ndef b(): ...\n"
    )
    with pytest.raises(errors.ConfigError, match=r"^two handlers are called 'x'"):
        load(["twice"])


def test_many_handlers_are_not_all_listed() -> None:
    registry = Registry()
    for number in range(25):
        registry.add(takes_any, f"h{number:02}")
    assert registry.describe_missing("other").endswith("h19 and 5 more")
