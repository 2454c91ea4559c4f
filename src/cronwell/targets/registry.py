"""The functions that handler targets call: how users register them, and what they are given.

    from cronwell import Context, handler

    @handler
    async def refresh(ctx: Context) -> str:
        for page in range(10):
            if ctx.cancelled:
                break
            ctx.heartbeat({"page": page})
        return "refreshed"

A function is registered under its name, or under the one given: `@handler("billing.refresh")`. It takes the
context or nothing. What it returns is kept as the attempt's output; what it raises fails the attempt, which is
then retried by the job's policy, unless it raises `PermanentFailure`, or `RetryAfter` to say when.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, overload
from uuid import UUID

from cronwell import durations, errors
from cronwell.model import checkpoint
from cronwell.targets.port import Call, Signals

F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,199}", re.ASCII)


class PermanentFailure(Exception):
    """Raised by a handler when trying again cannot help: the execution fails now, whatever attempts are left."""


class RetryAfter(Exception):
    """Raised by a handler to be tried again after `delay`: seconds, a timedelta, or text such as "5m"."""

    def __init__(self, delay: float | timedelta | str, message: str | None = None) -> None:
        if isinstance(delay, str):
            delay = durations.parse(delay)
        elif not isinstance(delay, timedelta):
            delay = timedelta(seconds=delay)
        self.delay = max(delay, timedelta())
        super().__init__(message or f"asked to be tried again after {durations.write(self.delay)}")


class Context:
    """What a handler may know about its attempt, and how it speaks with the worker. Safe to use from threads."""

    __slots__ = ("_call", "_is_stopped", "_signals", "was_told")

    def __init__(self, call: Call, signals: Signals) -> None:
        self._call = call
        self._signals = signals
        self._is_stopped = False
        self.was_told = False
        """Whether the function has seen that it should stop. If it then ends, it ended for that."""

    @property
    def payload(self) -> Any:
        """The job's payload, or the one that a trigger gave instead."""
        return self._call.payload

    @property
    def upstream(self) -> dict[str, Any]:
        """What the jobs that this one follows ended with, by their names: `state`, `execution`, `output`, and whether that
        is cut (`output_truncated`)."""
        return self._call.upstream or {}

    @property
    def job(self) -> str:
        """The job's name."""
        return self._call.job_name

    @property
    def job_id(self) -> UUID:
        return self._call.job_id

    @property
    def execution_id(self) -> str:
        """The same for every attempt: the key to make effects idempotent with."""
        return self._call.execution_id

    @property
    def slot(self) -> datetime:
        """The nominal instant that this execution is for, in UTC."""
        return self._call.slot

    @property
    def attempt(self) -> int:
        """1 for the first try."""
        return self._call.attempt

    @property
    def fence(self) -> int:
        """Grows with each attempt: a store that refuses lower numbers is safe from attempts that were given up."""
        return self._call.fence

    @property
    def deadline(self) -> datetime:
        """When the attempt is timed out, by this machine's clock."""
        return datetime.now(UTC) + timedelta(seconds=self._signals.deadline - time.monotonic())

    def remaining(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self._signals.deadline - time.monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether to stop now: a user cancelled the execution, the worker stops, or the time is up."""
        if self._is_stopped or self._signals.cancelled.is_set():
            self.was_told = True
        return self.was_told

    def heartbeat(self, progress: Any = None) -> None:
        """Show progress: any JSON value; the latest one is written with the worker's next heartbeat."""
        self._signals.report(progress)

    @property
    def last_checkpoint(self) -> Any:
        """What an attempt of this execution before this one left with `checkpoint`; None where there is nothing."""
        return self._call.checkpoint

    def checkpoint(self, value: Any) -> Awaitable[None]:
        """Leave something for the next attempt, in place of what was left before: any JSON value of up to 64 KiB.

        In a plain function it is written when this returns; an async one awaits it. Raises TooLarge, and FenceRejected where
        the attempt has been given up: then another one may have begun, and this one should stop.
        """
        return self._signals.save(self._call, checkpoint.write(value))

    def stop(self) -> None:
        """Make `cancelled` true for good: the worker has stopped the attempt, or given up on it."""
        self._is_stopped = True


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered function."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    takes_context: bool
    place: str

    def __call__(self, context: Context) -> Any:
        return self.function(context) if self.takes_context else self.function()


class Registry:
    """Handlers by name."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def add(self, function: Callable[..., Any], name: str | None = None) -> Handler:
        """Register a function. Raises ConfigError if it cannot be a handler or if its name is taken."""
        made = _inspect(function, name)
        taken = self._handlers.get(made.name)
        # The same line of code may come twice: a module that is run and then imported, or reloaded.
        if taken is not None and taken.place != made.place:
            raise errors.ConfigError(
                f"two handlers are called {made.name!r}: {taken.place} and {made.place}; "
                'give one of them another name with @handler("name")'
            )
        self._handlers[made.name] = made
        return made

    def get(self, name: str) -> Handler | None:
        return self._handlers.get(name)

    def names(self) -> tuple[str, ...]:
        """Every registered name, in order."""
        return tuple(sorted(self._handlers))

    def describe_missing(self, name: str) -> str:
        """Say that there is no such handler, and which there are, the nearest first."""
        said = f"this worker has no handler called {name!r}"
        known = self.names()
        if not known:
            return (
                f"{said}, nor any other; name the module that registers it: cronwell worker --import MODULE"
            )
        if close := difflib.get_close_matches(name, known, 1):
            said += f"; did you mean {close[0]!r}?"
        shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        return f"{said}; it has: {shown}"


REGISTRY = Registry()
"""Where `@handler` registers."""


@overload
def handler(function: F, /) -> F: ...
@overload
def handler(name: str, /) -> Callable[[F], F]: ...
def handler(function_or_name: F | str, /) -> F | Callable[[F], F]:
    """Register a function as a handler, under its own name or a given one; the function stays as it is."""
    if isinstance(function_or_name, str):
        name = function_or_name

        def register(function: F) -> F:
            REGISTRY.add(function, name)
            return function

        return register
    REGISTRY.add(function_or_name)
    return function_or_name


def load(modules: Sequence[str]) -> None:
    """Import modules for the handlers they register; the current directory is searched first."""
    here = str(Path.cwd())
    if modules and here not in sys.path:
        sys.path.insert(0, here)
    for module in modules:
        try:
            importlib.import_module(module)
        except errors.ConfigError:
            raise
        # A module may do anything while it is imported, also leave.
        except (Exception, SystemExit) as error:
            raise errors.ConfigError(_explain_import(module, error)) from error


def _explain_import(module: str, error: BaseException) -> str:
    said = f"cannot import {module!r} for its handlers"
    if "/" in module or module.endswith(".py"):
        dotted = module.removesuffix(".py").strip("./").replace("/", ".")
        return f"{said}: it is a path; write its dotted name: {dotted}"
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        return f"{said}: there is no module {error.name!r}; looked in {Path.cwd()} and along sys.path"
    return f"{said}: {type(error).__name__}: {error}"


def _inspect(function: Callable[..., Any], name: str | None) -> Handler:
    if not callable(function):
        raise errors.ConfigError(f"@handler takes a function, not {function!r}")
    place = _place(function)
    chosen = name if name is not None else str(getattr(function, "__name__", ""))
    if not _NAME.fullmatch(chosen):
        raise errors.ConfigError(
            f"{chosen!r} cannot be a handler's name ({place}); write a letter, then letters, digits, or any of _ . : -"
        )
    plain = inspect.unwrap(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise errors.ConfigError(f"{place} yields; a handler is a function that returns")
    return Handler(
        name=chosen,
        function=function,
        is_async=inspect.iscoroutinefunction(function)
        or inspect.iscoroutinefunction(getattr(function, "__call__", None)),  # noqa: B004  an object's own
        takes_context=_takes_context(function, place),
        place=place,
    )


def _takes_context(function: Callable[..., Any], place: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return True  # written in C: it will say itself if it cannot take one argument
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    required = [
        p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if len(required) > 1 or any(p.kind is p.KEYWORD_ONLY for p in required):
        raise errors.ConfigError(
            f"{place} takes {len(required)} arguments; a handler takes the context or nothing"
        )
    return bool(positional) or takes_any


def _place(function: Callable[..., Any]) -> str:
    plain = inspect.unwrap(function)
    name = f"{getattr(plain, '__module__', '?')}.{getattr(plain, '__qualname__', repr(plain))}"
    code = getattr(plain, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name
