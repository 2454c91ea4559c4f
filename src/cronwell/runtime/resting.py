"""A look that takes long is followed by a rest, so that looking takes no more than a twentieth of the time."""

from __future__ import annotations

FACTOR = 20


def rest_after(took: float, least: float = 0.0) -> float:
    """Seconds to rest after a look that took so many; at least so many."""
    return max(least, FACTOR * took)
