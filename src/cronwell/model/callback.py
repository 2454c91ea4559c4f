"""The address by which an attempt that was answered with 202 is ended later, and which only we can have written.

The token in it names the attempt: tenant, execution, fence, and the worker that delivered it. A fence alone would not do,
because a database server that was promoted without the last claims gives the same fences again. It is signed, and it is all
that whoever calls back has to show: it opens one attempt, and nothing once that is over.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from cronwell.model.execution import ExecutionKey, Kind

PATH = "/v1/callbacks/"
HEADER = "Cronwell-Callback"

_KINDS = tuple(Kind)
# A version, tenant, job, kind, slot in microseconds, fence, worker.
_FORM = struct.Struct(">Bi16sBqq16s")
_VERSION = 1
_MAC_BYTES = 32
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# So that a signature of something else, made with the same key, is never one of ours.
_PURPOSE = b"cronwell callback\0"


@dataclass(frozen=True, slots=True)
class Token:
    """Which attempt a callback is about."""

    tenant_id: int
    key: ExecutionKey
    fence: int
    worker: UUID
    """Who delivered it."""

    def write(self, key: bytes) -> str:
        """The token as it stands in an address, signed."""
        content = _FORM.pack(
            _VERSION,
            self.tenant_id,
            self.key.job_id.bytes,
            _KINDS.index(self.key.kind),
            (self.key.slot - _EPOCH) // _MICROSECOND,
            self.fence,
            self.worker.bytes,
        )
        return _write(content + _sign(key, content))


@dataclass(frozen=True, slots=True)
class Unproven:
    """What a token says, before it is known whether we wrote it."""

    token: Token
    content: bytes
    mac: bytes

    def is_signed_with(self, key: bytes) -> bool:
        """Compare in a time that does not depend on where they differ."""
        return hmac.compare_digest(self.mac, _sign(key, self.content))


def read(text: str) -> Unproven | None:
    """A token as it was sent; None where it cannot be one."""
    try:
        raw = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    # The same bytes can be written in other ways, none of which is ours.
    if len(raw) != _FORM.size + _MAC_BYTES or _write(raw) != text:
        return None
    content, mac = raw[: _FORM.size], raw[_FORM.size :]
    version, tenant_id, job, kind, slot, fence, worker = _FORM.unpack(content)
    if version != _VERSION or kind >= len(_KINDS):
        return None
    try:
        key = ExecutionKey(UUID(bytes=job), _KINDS[kind], _EPOCH + slot * _MICROSECOND)
    except OverflowError:
        return None
    return Unproven(Token(tenant_id, key, fence, UUID(bytes=worker)), content, mac)


def _write(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _sign(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, _PURPOSE + content, hashlib.sha256)
