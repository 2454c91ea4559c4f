"""Secrets at rest: each value is encrypted with a key of its own, which is encrypted with the installation's.

Both are AES-256-GCM, and both are bound to the tenant, the name and the revision: what is moved to another place in the
database cannot be opened there. The installation's key never touches a value, so a new one means that only the small keys
are encrypted anew. A value's key is made for one revision and used once, so its nonce cannot come twice.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

KEY_BYTES = 32
NONCE_BYTES = 12
RANDOM_BYTES = KEY_BYTES + 2 * NONCE_BYTES


@dataclass(frozen=True, slots=True, repr=False)
class Key:
    """A key of the installation. Its id follows from it, tells nothing of it, and is kept with what it has encrypted."""

    raw: bytes

    @property
    def id(self) -> str:
        return hmac.digest(self.raw, b"cronwell secrets key id", hashlib.sha256)[:8].hex()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value belongs."""

    tenant_id: int
    name: str
    revision: int

    def bound(self, part: bytes) -> bytes:
        """What is authenticated with the ciphertext. The name comes last, so that no two places are written alike."""
        return (
            b"cronwell secret 1 "
            + part
            + struct.pack(">qq", self.tenant_id, self.revision)
            + self.name.encode()
        )


@dataclass(frozen=True, slots=True, repr=False)
class Sealed:
    """A value as it is kept. Each part begins with its nonce."""

    key_id: str
    wrapped_key: bytes
    ciphertext: bytes


class CannotOpen(Exception):
    """The key is another one, or what is kept is not what was written to this place."""


def seal(value: str, place: Place, key: Key, random: bytes) -> Sealed:
    """Encrypt a value with `RANDOM_BYTES` of fresh random bytes."""
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"sealing takes {RANDOM_BYTES} random bytes")
    own, rest = random[:KEY_BYTES], random[KEY_BYTES:]
    return Sealed(
        key.id,
        _encrypt(key.raw, own, place.bound(b"key "), rest[:NONCE_BYTES]),
        _encrypt(own, value.encode(), place.bound(b"value "), rest[NONCE_BYTES:]),
    )


def unseal(sealed: Sealed, place: Place, key: Key) -> str:
    """The value; raises CannotOpen."""
    own = _decrypt(key.raw, sealed.wrapped_key, place.bound(b"key "))
    return _decrypt(own, sealed.ciphertext, place.bound(b"value ")).decode()


def rewrap(wrapped_key: bytes, place: Place, old: Key, new: Key, nonce: bytes) -> bytes:
    """A value's key, encrypted with another key of the installation; raises CannotOpen."""
    aad = place.bound(b"key ")
    return _encrypt(new.raw, _decrypt(old.raw, wrapped_key, aad), aad, nonce)


def _encrypt(key: bytes, plain: bytes, aad: bytes, nonce: bytes) -> bytes:
    # Here: a worker that meets no secret starts without it, a tenth of a second sooner.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  # as said

    return nonce + AESGCM(key).encrypt(nonce, plain, aad)


def _decrypt(key: bytes, kept: bytes, aad: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415  # as above
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  # as above

    try:
        return AESGCM(key).decrypt(kept[:NONCE_BYTES], kept[NONCE_BYTES:], aad)
    except (InvalidTag, ValueError):
        # Without its cause: nothing of what was tried is told.
        raise CannotOpen from None
