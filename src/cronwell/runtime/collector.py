"""The garbage collector of a process, calmed: it looks when there are many more objects than before, or when the process grows.

Executions come and go by the thousand without cycles, so most of what the collector looks at is in use. But a handler may leave
cycles behind, and few of them may hold much: what they take is seen by the process's memory before it is by their number.
"""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable
from datetime import timedelta

from cronwell.runtime.service import ErrorReport, Loop

OBJECTS = 300_000
"""So many more than there were bring a look: those of some 10,000 attempts. At the usual thresholds a busy worker took 220 µs of
processor time for an execution, at 50,000 objects 120, on a machine that was also doing other things. With thousands of requests
under way those 50,000 came up again and again: 107 and 87 µs for a delivery, and 81 and 80 without a collector (November 2026)."""
MEMORY = 64 * 1024 * 1024
SHARE = 0.25
"""So many more bytes, and so large a part of what the process had, bring a look, too."""
EVERY = timedelta(seconds=1)
# Not what is old: with a hundred thousand attempts under way a look at everything would hold up all of them.
_YOUNG = 1


def calm_collector() -> None:
    """Spare the collector what lives as long as the process, and let it look at the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS, 5, 10)


def collect_on_growth(*, on_error: ErrorReport, peak: Callable[[], int] | None = None) -> Loop:
    """The service that looks for garbage when the process has taken more memory than ever before; `peak` is for tests."""
    most_so_far = peak or peak_memory
    known = most_so_far()

    async def poll() -> timedelta:
        nonlocal known
        most = most_so_far()
        if most - known > max(MEMORY, known * SHARE):
            gc.collect(_YOUNG)
            known = most
        return EVERY

    return Loop("collector", poll, on_error=on_error)


def peak_memory() -> int:
    """The most memory that this process has had, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
