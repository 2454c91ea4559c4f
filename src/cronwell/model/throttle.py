"""What a target bears: how many of its executions may start a second, and be under way at once.

A limit is the whole installation's, and each worker keeps a share of it by itself: nobody is asked before a start. A target
goes by a name: `host:api.example.com` for what is called there, `handler:reports.make` for a function, and else the kind of
the target, such as `shell`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from cronwell.model.job import Target

ACCEPTED_TARGET = "host:NAME, host:NAME:PORT, handler:NAME or shell"
ACCEPTED_RATE = 'a rate such as "100/s", "600/m" or "20/h"'
HOST_PREFIX = "host:"
LONGEST_NAME = 280
MOST_CONCURRENCY = 1_000_000

_USUAL_PORTS = (80, 443)
_PER_SECOND = {"s": 1.0, "m": 60.0, "h": 3600.0}
_RATE = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)/([smh])", re.ASCII)
_HANDLER = re.compile(r"handler:[A-Za-z_][A-Za-z0-9_.:-]{0,199}", re.ASCII)
_KINDS = frozenset({"shell"})


@dataclass(frozen=True, slots=True)
class Limit:
    """What a target bears; None: as much as there is."""

    rate: float | None = None
    """Starts a second."""
    concurrency: int | None = None
    breaker: bool = True
    """Whether it is left alone for a while when it keeps failing."""

    @property
    def is_any(self) -> bool:
        """Whether anything is limited."""
        return self.rate is not None or self.concurrency is not None

    def share(self, workers: int, rank: int) -> Limit:
        """The part of worker number `rank`, from 0, of so many. All parts together are no more than the whole."""
        rate = None if self.rate is None else self.rate / workers
        places = None
        if self.concurrency is not None:
            places = self.concurrency // workers + (rank < self.concurrency % workers)
        return Limit(rate, places, self.breaker)


NO_LIMIT = Limit()


def target_name(target: Target) -> str:
    """The name that a target goes by."""
    if target.http is not None:
        return HOST_PREFIX + host_of(target.http.url)
    if target.handler is not None:
        return f"handler:{target.handler.name}"
    return target.kind


@lru_cache(maxsize=4096)
def host_of(url: str) -> str:
    """Whom a URL calls: the host, with its port unless that is 80 or 443."""
    parts = urlsplit(url)
    return _written(parts.hostname or "", parts.port)


def read_target(text: str) -> str:
    """The name of a target as somebody wrote it, in its one form. Raises ValueError."""
    if len(text) > LONGEST_NAME:
        raise ValueError(f"{text[:40]!r}… is too long for the name of a target")
    if text in _KINDS or _HANDLER.fullmatch(text):
        return text
    if text.startswith(HOST_PREFIX):
        return HOST_PREFIX + read_host(text.removeprefix(HOST_PREFIX))
    raise ValueError(f"{text!r} is not the name of a target")


def read_host(text: str) -> str:
    """A host as somebody wrote it, in its one form. Raises ValueError."""
    wrong = (
        f"{text[:100]!r} is not a host; write a name or an address, and its port where that is not 80 or 443"
    )
    if not text or len(text) > LONGEST_NAME or re.search(r"[/?#@\\\s%\x00-\x1f\x7f]", text):
        raise ValueError(wrong)
    try:
        parts = urlsplit(f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(wrong) from None
    labels = (host or "").removesuffix(".").split(".")
    if not host or port == 0 or (":" not in host and not all(0 < len(label) <= 63 for label in labels)):
        raise ValueError(wrong)
    return _written(host, port)


def read_rate(text: str) -> float:
    """How many a second. Raises ValueError."""
    match = _RATE.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise ValueError(f"{text[:40]!r} is not a rate; write {ACCEPTED_RATE}")
    return float(match[1]) / _PER_SECOND[match[2]]


def _written(host: str, port: int | None) -> str:
    name = host.lower().removesuffix(".")
    if not name.isascii():
        try:
            name = name.encode("idna").decode()
        except UnicodeError:
            name = name.encode("ascii", "replace").decode()
    if ":" in name:
        name = f"[{name}]"
    return name if port is None or port in _USUAL_PORTS else f"{name}:{port}"
