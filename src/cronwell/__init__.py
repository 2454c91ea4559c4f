"""Cronwell: a distributed cron and job scheduler.

What a module of handlers needs is here: `from cronwell import Context, handler`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cronwell.targets.registry import Context, PermanentFailure, RetryAfter, handler

__all__ = ["Context", "PermanentFailure", "RetryAfter", "__version__", "handler"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # On demand: most of what imports this package never registers a handler.
    if name in __all__:
        return getattr(import_module("cronwell.targets.registry"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
