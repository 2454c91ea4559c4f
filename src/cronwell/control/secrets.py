"""What a user can do with secrets: set them, see that they are there, delete them; and have their keys changed.

A value comes in and never goes out again: no verb tells it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence

from pydantic import Field

from cronwell import errors, telemetry
from cronwell.control.paging import read_cursor, write_cursor
from cronwell.control.views import Moment, Page, View
from cronwell.model.access import Caller
from cronwell.model.envelope import NONCE_BYTES, RANDOM_BYTES, CannotOpen, Key, Place, rewrap, seal
from cronwell.runtime.clock import Clock
from cronwell.runtime.keyring import Keyring
from cronwell.store.port import KeptSecret, Rewrapped, SealedSecret, Store

LONGEST = 65_536
"""Bytes of a value."""
COUNTED, NAMED = 1000, 5
"""Jobs that name a secret are counted up to so many, and so many of them are named."""
REWRAPPED = 500
"""So many secrets are rewrapped at a time."""
_TRIES = 5


class SecretView(View):
    """A secret, as far as it is shown: everything but its value."""

    name: str
    revision: int
    """Grows each time it is set."""
    key_id: str
    """The key of the installation that it is encrypted with."""
    created_at: Moment
    updated_at: Moment


class SecretDetail(SecretView):
    jobs: int
    """How many jobs name it, counted up to 1,000."""
    named_by: list[str]
    """Some of them."""


class KeyUse(View):
    """A key of the installation."""

    id: str
    is_first: bool
    """Whether new secrets are encrypted with it."""
    is_known: bool
    """Whether the API that answers has it."""
    secrets: int
    """How many secrets are encrypted with it."""


class KeyUses(View):
    items: list[KeyUse]


class Unreadable(View):
    """A secret that could not be rewrapped, because its key is not known or it was tampered with."""

    tenant_id: int
    name: str
    key_id: str


class Rotated(View):
    """What one request to rotate has done."""

    key_id: str
    """The key that secrets are encrypted with now."""
    rewrapped: int
    left: int
    """How many secrets are still encrypted with other keys."""
    unreadable: list[Unreadable] = Field(default_factory=list)
    next_cursor: str | None
    """For the next request; null where all have been looked at."""


class Secrets:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock, keyring: Keyring) -> None:
        self._store = store
        self._clock = clock
        self._keyring = keyring

    async def put(self, caller: Caller, name: str, value: str) -> tuple[SecretView, bool]:
        """Set a secret; True where it is new. Workers use the new value within seconds."""
        size = len(value.encode())
        if size > LONGEST:
            raise errors.TooLarge(f"the value has {size} bytes, and a secret has {LONGEST} at the most")
        key = await self._keyring.first()
        for _ in range(_TRIES):
            before = await self._store.get_secret(caller.tenant_id, name)
            place = Place(caller.tenant_id, name, 1 if before is None else before.revision + 1)
            # In a thread: the first time loads a library.
            sealed = await asyncio.to_thread(seal, value, place, key, secrets.token_bytes(RANDOM_BYTES))
            kept = await self._store.put_secret(SealedSecret(place, sealed), self._clock.now())
            if kept is not None:
                telemetry.secret_changed("set", name=name, by=caller.name, revision=kept.revision)
                return _view(kept), kept.revision == 1
        raise errors.Conflict(f"the secret {name!r} is being changed by others in this moment; send it again")

    async def get(self, caller: Caller, name: str) -> SecretDetail:
        kept = await self._find(caller, name)
        users = await self._store.secret_users(caller.tenant_id, name, COUNTED)
        return SecretDetail(**_view(kept).model_dump(), jobs=len(users), named_by=users[:NAMED])

    async def page(self, caller: Caller, *, cursor: str | None, limit: int) -> Page[SecretView]:
        """Secrets by name."""
        place = read_cursor(cursor, 1)
        found = await self._store.list_secrets(
            caller.tenant_id, None if place is None else place[0], limit + 1
        )
        shown = found[:limit]
        following = write_cursor(shown[-1].name) if len(found) > limit else None
        return Page(items=[_view(each) for each in shown], next_cursor=following)

    async def delete(self, caller: Caller, name: str, *, is_forced: bool = False) -> None:
        """Forget a secret that no job names; or, if that is forced, whichever it is."""
        if await self._store.drop_secret(caller.tenant_id, name, is_forced=is_forced):
            telemetry.secret_changed("deleted", name=name, by=caller.name)
            return
        await self._find(caller, name)
        users = await self._store.secret_users(caller.tenant_id, name, COUNTED)
        shown = ", ".join(users[:NAMED]) + (f" and {len(users) - NAMED} more" if len(users) > NAMED else "")
        raise errors.IllegalState(
            f"jobs name the secret {name!r}: {shown}; change them first, or delete it with ?force=true "
            "(`cronwell secret delete --force`), after which their attempts fail until it is set again"
        )

    async def keys(self) -> KeyUses:
        """The keys of the installation, and how many secrets of all tenants are encrypted with each."""
        known = list(await self._keyring.keys(believed_seconds=0))
        counts = await self._store.count_secrets()
        ids = [*known, *sorted(counts.keys() - set(known))]
        return KeyUses(
            items=[
                KeyUse(
                    id=each, is_first=each == known[0], is_known=each in known, secrets=counts.get(each, 0)
                )
                for each in ids
            ]
        )

    async def rotate(self, caller: Caller, *, cursor: str | None) -> Rotated:
        """Encrypt the keys of some secrets, of whichever tenants, with the first key of the installation."""
        place = read_cursor(cursor, 2)
        try:
            after = None if place is None else (int(place[0]), place[1])
        except ValueError:
            raise errors.Invalid.field("cursor", "is not a cursor of a rotation") from None
        if after is not None and not 0 <= after[0] < 2**31:
            raise errors.Invalid.field("cursor", "is not a cursor of a rotation")
        keys = await self._keyring.keys(believed_seconds=0)
        first = next(iter(keys.values()))
        found = await self._store.wrapped_otherwise(first.id, after, REWRAPPED)
        rewrapped = await asyncio.to_thread(_rewrapped, found, keys, first)
        count = await self._store.rewrap_secrets([each for each in rewrapped if each is not None])
        if count:
            telemetry.secrets_rewrapped(count=count, key=first.id, by=caller.name)
        last = found[-1].place if len(found) == REWRAPPED else None
        counts = await self._store.count_secrets()
        return Rotated(
            key_id=first.id,
            rewrapped=count,
            left=sum(secrets for key_id, secrets in counts.items() if key_id != first.id),
            unreadable=[
                Unreadable(tenant_id=each.place.tenant_id, name=each.place.name, key_id=each.sealed.key_id)
                for each, done in zip(found, rewrapped, strict=True)
                if done is None
            ],
            next_cursor=None if last is None else write_cursor(str(last.tenant_id), last.name),
        )

    async def _find(self, caller: Caller, name: str) -> KeptSecret:
        kept = await self._store.get_secret(caller.tenant_id, name)
        if kept is None:
            raise errors.NotFound(f"there is no secret {name!r}")
        return kept


def _rewrapped(found: Sequence[SealedSecret], keys: Mapping[str, Key], first: Key) -> list[Rewrapped | None]:
    """The secrets' own keys under the first key of the installation; None where one cannot be opened."""
    made: list[Rewrapped | None] = []
    for each in found:
        old = keys.get(each.sealed.key_id)
        try:
            if old is None:
                raise CannotOpen
            nonce = secrets.token_bytes(NONCE_BYTES)
            wrapped = rewrap(each.sealed.wrapped_key, each.place, old, first, nonce)
        except CannotOpen:
            made.append(None)
        else:
            made.append(Rewrapped(each.place, each.sealed.key_id, first.id, wrapped))
    return made


def _view(kept: KeptSecret) -> SecretView:
    return SecretView(
        name=kept.name,
        revision=kept.revision,
        key_id=kept.key_id,
        created_at=kept.created_at,
        updated_at=kept.updated_at,
    )
