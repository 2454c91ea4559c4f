"""Who this process is to the others: a random id, made once, and a name that people can find it by."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cache
from uuid import UUID, uuid4


@dataclass(frozen=True, slots=True)
class Identity:
    id: UUID
    name: str
    """Host and process number. In a container it may be that of the one before: the id tells them apart."""


@cache
def this_process() -> Identity:
    return Identity(uuid4(), f"{socket.gethostname()}:{os.getpid()}")
