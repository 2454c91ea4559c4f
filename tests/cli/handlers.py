"""Handlers that the end-to-end tests let a worker import."""

from __future__ import annotations

from cronwell.targets.registry import Context, handler


@handler("greet")
def greet(context: Context) -> str:
    """Answer with what it was given."""
    return f"hello {context.payload['name']}"
