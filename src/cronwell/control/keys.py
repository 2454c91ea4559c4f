"""What an administrator can do with the keys of a tenant."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from cronwell import errors, telemetry
from cronwell.control.drafts import read_id
from cronwell.control.paging import read_cursor, write_cursor
from cronwell.control.views import Moment, Page, View
from cronwell.model.access import (
    KEY_PREFIX_BYTES,
    KEY_SECRET_BYTES,
    Caller,
    Scope,
    Secret,
    new_secret,
    read_scopes,
    write_scopes,
)
from cronwell.model.identity import RANDOM_BITS, new_job_id
from cronwell.runtime.clock import Clock
from cronwell.store.port import ApiKey, Store

LONGEST_OVERLAP = timedelta(days=30)


class KeyView(View):
    """An API key, as far as it is shown."""

    id: UUID
    name: str
    prefix: str
    """How the key begins: enough to tell which one somebody has."""
    scopes: list[str]
    state: str
    """`active`, `expired` or `revoked`."""
    created_at: Moment
    created_by: str
    expires_at: Moment | None
    revoked_at: Moment | None
    last_used_at: Moment | None
    """To the minute."""
    replaces: UUID | None
    """The key that this one was made to replace."""


class NewKey(KeyView):
    key: str
    """The key itself. It is shown now and never again."""


class Keys:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(
        self, caller: Caller, name: str, scopes: Sequence[str], *, expires_at: datetime | None = None
    ) -> NewKey:
        """Make a key with scopes that the caller has."""
        now = self._clock.now()
        if expires_at is not None and expires_at <= now:
            raise errors.Invalid.field("expires_at", f"lies in the past (now is {now.isoformat()})")
        secret, key = self._new(caller, name, self._granted(caller, scopes), expires_at=expires_at)
        await self._store.insert_key(key)
        telemetry.access_changed("key created", key=key.prefix, by=caller.name)
        return _shown_once(key, secret, now)

    async def page(self, caller: Caller, *, cursor: str | None, limit: int) -> Page[KeyView]:
        """The tenant's keys, newest first."""
        place = read_cursor(cursor, 1)
        after = None if place is None else read_id(place[0])
        found = await self._store.list_keys(caller.tenant_id, after, limit + 1)
        shown = found[:limit]
        following = write_cursor(str(shown[-1].id)) if len(found) > limit else None
        now = self._clock.now()
        return Page(items=[_view(each, now) for each in shown], next_cursor=following)

    async def get(self, caller: Caller, reference: str) -> KeyView:
        return _view(await self._find(caller, reference), self._clock.now())

    async def revoke(self, caller: Caller, reference: str) -> KeyView:
        """Let a key open nothing from now on."""
        key = await self._find(caller, reference)
        now = self._clock.now()
        revoked = await self._store.revoke_key(caller.tenant_id, key.id, now)
        telemetry.access_changed("key revoked", key=key.prefix, by=caller.name)
        return _view(revoked or key, now)

    async def rotate(self, caller: Caller, reference: str, *, overlap: timedelta) -> NewKey:
        """Make a key like another, which stays good for the time of the overlap."""
        if overlap > LONGEST_OVERLAP:
            raise errors.Invalid.field(
                "overlap",
                "is too long",
                accepted=f"up to {LONGEST_OVERLAP.days}d; revoke the old key when it is gone",
            )
        old = await self._find(caller, reference)
        now = self._clock.now()
        scopes = self._granted(caller, old.scopes)
        secret, key = self._new(caller, old.name, scopes, expires_at=old.expires_at, replaces=old.id)
        if not await self._store.replace_key(old.id, key, good_until=now + overlap):
            raise errors.IllegalState(f"the key {old.prefix} is {_state(old, now)}; make a new one")
        telemetry.access_changed("key rotated", key=old.prefix, by=caller.name)
        return _shown_once(key, secret, now)

    def _granted(self, caller: Caller, scopes: Sequence[str]) -> frozenset[Scope]:
        wanted = read_scopes(scopes)
        if not wanted:
            raise errors.Invalid.field("scopes", "are missing", accepted=write_scopes(caller.scopes))
        if beyond := wanted - caller.scopes:
            raise errors.Forbidden(
                f"nobody gives away more than they have: {caller.name} lacks {write_scopes(beyond)}"
            )
        return wanted

    def _new(
        self,
        caller: Caller,
        name: str,
        scopes: frozenset[Scope],
        *,
        expires_at: datetime | None,
        replaces: UUID | None = None,
    ) -> tuple[Secret, ApiKey]:
        now = self._clock.now()
        secret = new_secret(secrets.token_bytes(KEY_PREFIX_BYTES + KEY_SECRET_BYTES))
        key = ApiKey(
            tenant_id=caller.tenant_id,
            id=new_job_id(now, secrets.randbits(RANDOM_BITS)),
            name=name,
            prefix=secret.prefix,
            digest=secret.digest,
            scopes=[scope for scope in Scope if scope in scopes],
            created_at=now,
            created_by=caller.name,
            expires_at=expires_at,
            replaces=replaces,
        )
        return secret, key

    async def _find(self, caller: Caller, reference: str) -> ApiKey:
        key_id = read_id(reference)
        key = None if key_id is None else await self._store.get_key(caller.tenant_id, key_id)
        if key is None:
            raise errors.NotFound(f"there is no key {reference[:100]!r}")
        return key


def _state(key: ApiKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "active" if key.is_good(now) else "expired"


def _view(key: ApiKey, now: datetime) -> KeyView:
    return KeyView(
        id=key.id,
        name=key.name,
        prefix=key.prefix,
        scopes=list(key.scopes),
        state=_state(key, now),
        created_at=key.created_at,
        created_by=key.created_by,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        last_used_at=key.last_used_at,
        replaces=key.replaces,
    )


def _shown_once(key: ApiKey, secret: Secret, now: datetime) -> NewKey:
    return NewKey(**_view(key, now).model_dump(), key=secret.text)
