"""Ports for servers that tests start.

Below those that the kernel gives to connections, so that none is taken by somebody's connection before its server is up, or
while it is being started again.
"""

from __future__ import annotations

import random
import socket

FIRST, LAST = 10_000, 32_000


def free_port() -> int:
    """A port at which nobody listens."""
    while True:
        port = random.randint(FIRST, LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
