"""How processes of the benchmark are started that are not a role of Cronwell."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Processes that are started within leave a Ctrl-C, which the terminal sends to them too, to the one that ends them.

    Only what is ignored stays so in another program; by the time that a child could set it, it has imported for half a
    second. For the main thread alone, and not across an await: meanwhile we are deaf as well.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
