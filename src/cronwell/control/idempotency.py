"""The same Idempotency-Key gives the same answer, and the change is made once."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import BaseModel

from cronwell import errors
from cronwell.runtime.clock import Clock
from cronwell.store.port import Answer, Store, Transaction


@dataclass(frozen=True, slots=True)
class RequestKey:
    """An Idempotency-Key with what it was sent with."""

    key: str
    fingerprint: bytes

    @classmethod
    def of(cls, key: str, *parts: bytes) -> RequestKey:
        """Bind a key to the parts of a request that make it the same request."""
        digest = hashlib.sha256()
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part)
        return cls(key, digest.digest())


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a request that changes something, as it is sent and as it is kept."""

    status: int
    body: str
    is_replay: bool = False


Act = Callable[[Transaction], Awaitable[tuple[int, BaseModel]]]


async def once(
    store: Store, clock: Clock, tenant_id: int, key: RequestKey | None, act: Act, *, is_frequent: bool = False
) -> Answered:
    """Run `act` in a transaction, and at most once for a key; a replay gets the first answer."""
    async with store.transaction(is_frequent=is_frequent) as transaction:
        if key is not None:
            known = await transaction.recall(tenant_id, key.key)
            if known is not None:
                return _replay(known, key)
        status, view = await act(transaction)
        body = view.model_dump_json()
        if key is not None:
            answer = Answer(key.fingerprint, status, body)
            await transaction.remember(tenant_id, key.key, answer, clock.now())
    return Answered(status, body)


def _replay(known: Answer, key: RequestKey) -> Answered:
    if known.fingerprint != key.fingerprint:
        raise errors.KeyInUse(
            f"Idempotency-Key {key.key!r} was used for another request; use a new key for a new request"
        )
    return Answered(known.status, known.body, is_replay=True)
