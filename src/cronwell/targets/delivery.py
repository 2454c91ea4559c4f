"""What an http attempt sends: a signed Standard Webhooks delivery.

The id is the execution's on every attempt, so a receiver that keeps ids carries out each execution once. The
trace id follows from the execution and the span id from the attempt, so a receiver's traces of all attempts
of one execution join up.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, cast
from urllib.parse import quote

from yarl import URL

from cronwell import __version__
from cronwell.model import callback
from cronwell.model.job import HttpTarget
from cronwell.targets import signing, wire
from cronwell.targets.client import Origin
from cronwell.targets.exchange import Trouble
from cronwell.targets.port import Call

_BODILESS = frozenset({"GET", "DELETE"})
_USER_AGENT = f"cronwell/{__version__}"


class Letterhead(NamedTuple):
    """What is the same in every delivery to a target."""

    origin: Origin
    has_body: bool
    head: bytes
    """The first line and the headers that do not change, up to where the others follow."""


def build(call: Call, target: HttpTarget, timestamp: int, public_url: str = "") -> tuple[Origin, bytes]:
    """Build the request of an attempt. Raises ValueError if the signing secret is not one, and `Trouble` for its url.

    `public_url` is where receivers reach the API, for those that may call back.
    """
    # The values of secrets are in their places by now, and are not kept longer than for this one attempt.
    given = cast("tuple[tuple[str, str], ...]", tuple(target.headers.items()))
    make = _letterhead if call.hidden is None else _letterhead.__wrapped__
    origin, has_body, head = make(target.url, target.method, given)
    execution, slot = call.execution_id, _write_slot(call.slot)
    body = b""
    if has_body:
        is_whole = target.body == "delivery"
        body = _write_body(call, execution, slot) if is_whole else wire.write_json(call.payload)
    signature = signing.sign(call.secret, execution, timestamp, body)
    # None of these can be set by a user, and none can hold what ends a line: a job's name is quoted.
    headers = (
        f"webhook-id: {execution}\r\n"
        f"webhook-timestamp: {timestamp}\r\n"
        f"webhook-signature: {signature}\r\n"
        f"Idempotency-Key: {execution}\r\n"
        f"Cronwell-Job: {_quote(call.job_name)}\r\n"
        f"Cronwell-Slot: {slot}\r\n"
        f"Cronwell-Attempt: {call.attempt}\r\n"
        f"Cronwell-Fence: {call.fence}\r\n"
        f"traceparent: {wire.write_traceparent(execution, call.attempt)}\r\n"
    )
    if call.callback is not None:
        headers += f"{callback.HEADER}: {public_url}{callback.PATH}{call.callback}\r\n"
    if not has_body:
        return origin, b"%s%s\r\n" % (head, headers.encode("ascii"))
    return origin, b"%s%sContent-Length: %d\r\n\r\n%s" % (head, headers.encode("ascii"), len(body), body)


# A herd of jobs shares few targets.
@lru_cache(maxsize=4096)
def _letterhead(url: str, method: str, headers: tuple[tuple[str, str], ...]) -> Letterhead:
    try:
        # As it was written: quoting it anew would break addresses that carry a signature.
        read = URL(url, encoded=url.isascii())
        host, port, shown = read.raw_host, read.port, read.host_port_subcomponent
    except ValueError as error:
        raise Trouble("url", f"{url} cannot be called: {error}", is_retryable=False) from None
    if not host or port is None or read.scheme not in ("http", "https"):
        raise Trouble("url", f"{url} cannot be called: it is not a whole address", is_retryable=False)
    has_body = method not in _BODILESS
    sent = {
        "host": ("Host", shown),
        "accept": ("Accept", "*/*"),
        "accept-encoding": ("Accept-Encoding", "identity"),  # a small answer may unpack to gigabytes
        "user-agent": ("User-Agent", _USER_AGENT),
    }
    if has_body:
        sent["content-type"] = ("Content-Type", "application/json")
    sent.update((name.lower(), (name, value)) for name, value in headers)
    lines = [f"{method} {read.raw_path_qs} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.values())]
    if any(end in line for line in lines for end in "\r\n\0"):
        raise Trouble("url", f"{url} cannot be called: a line ends in its url or headers", is_retryable=False)
    head = "".join(f"{line}\r\n" for line in lines).encode()
    # However a name is written, its host is one, with one limit.
    origin = Origin(read.scheme == "https", host.lower(), port, read.authority.lower())
    return Letterhead(origin, has_body, head)


_quote = lru_cache(maxsize=4096)(quote)
_write_slot = lru_cache(maxsize=1024)(wire.write_moment)  # a herd shares it


def _write_body(call: Call, execution: str, slot: str) -> bytes:
    body = {
        "job": call.job_name,
        "execution": execution,
        "slot": slot,
        "attempt": call.attempt,
        "payload": call.payload,
    }
    if call.checkpoint is not None:
        body["checkpoint"] = call.checkpoint
    if call.upstream is not None:
        body["upstream"] = call.upstream
    return wire.write_json(body)
