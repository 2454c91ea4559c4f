"""Cronwell: a distributed cron and job scheduler.

What a module of handlers needs is here: `from cronwell import Context, handler`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
_PUBLIC = frozenset({"Context", "PermanentFailure", "RetryAfter", "handler"})


def __getattr__(name: str) -> Any:
    # On demand: most of what imports this package never registers a handler.
    if name in _PUBLIC:
        return getattr(import_module("cronwell.targets.registry"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
