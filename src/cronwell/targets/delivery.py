"""What an http attempt sends: a signed Standard Webhooks delivery.

The id is the execution's on every attempt, so a receiver that keeps ids carries out each execution once. The
trace id follows from the execution and the span id from the attempt, so a receiver's traces of all attempts
of one execution join up.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from multidict import CIMultiDict

from cronwell import __version__
from cronwell.model.job import HttpTarget
from cronwell.targets import signing, wire
from cronwell.targets.port import Call

_BODILESS = frozenset({"GET", "DELETE"})
_USER_AGENT = f"cronwell/{__version__}"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request, ready to be sent."""

    headers: CIMultiDict[str]
    body: bytes | None


def build(call: Call, target: HttpTarget, timestamp: int) -> Delivery:
    """Build the request of an attempt. Raises ValueError if the signing secret is not one."""
    slot = wire.write_moment(call.slot)
    has_body = target.method not in _BODILESS
    body = _write_body(call, slot) if has_body else b""
    headers = CIMultiDict(
        {
            "webhook-id": call.execution_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signing.sign(call.secret, call.execution_id, timestamp, body),
            "Idempotency-Key": call.execution_id,
            "Cronwell-Job": _quote(call.job_name),
            "Cronwell-Slot": slot,
            "Cronwell-Attempt": str(call.attempt),
            "Cronwell-Fence": str(call.fence),
            "traceparent": _traceparent(call),
            "User-Agent": _USER_AGENT,
            "Accept-Encoding": "identity",
        }
    )
    if has_body:
        headers["Content-Type"] = "application/json"
    for name, value in target.headers.items():
        headers[name] = value
    return Delivery(headers, body if has_body else None)


_quote = lru_cache(maxsize=4096)(quote)


def _write_body(call: Call, slot: str) -> bytes:
    return wire.write_json(
        {
            "job": call.job_name,
            "execution": call.execution_id,
            "slot": slot,
            "attempt": call.attempt,
            "payload": call.payload,
        }
    )


def _traceparent(call: Call) -> str:
    execution = call.execution_id.encode()
    trace = hashlib.blake2b(execution, digest_size=16).hexdigest()
    span = hashlib.blake2b(b"%s/%d" % (execution, call.attempt), digest_size=8).hexdigest()
    return f"00-{trace}-{span}-01"
