"""The secrets that attempts need: read in batches just before, kept for a few seconds, and put in their places.

What is claimed is held for a moment before it starts. In that moment the secrets that it names are read, all that were
asked for at once in one statement; so an attempt finds them here on its instant. A secret that is set anew is used within
`KEPT_SECONDS`. Values are nowhere else: neither in the catalog of jobs nor in caches of targets.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cronwell import errors
from cronwell.model.envelope import CannotOpen, Key, unseal
from cronwell.model.naming import filled_target, named_by_target
from cronwell.model.references import Hidden, filled, named_in
from cronwell.runtime.keyring import HOW_TO, Keyring
from cronwell.store.port import SealedSecret, Store
from cronwell.targets.port import Call

KEPT_SECONDS = 5.0
AHEAD_SECONDS = 1.0
"""What is about to be forgotten is read anew for those that start within this time."""
BATCH = 1000

SecretKey = tuple[int, str]
"""A secret by its tenant and name."""


@dataclass(frozen=True, slots=True, repr=False)
class _Known:
    good_until: float
    """Monotonic time."""
    value: str | None
    trouble: str = ""
    """Why there is no value."""


class Vault:
    """Opens secrets for attempts. All methods are called from the event loop's thread."""

    def __init__(self, store: Store, keyring: Keyring) -> None:
        self._store = store
        self._keyring = keyring
        self._known: dict[SecretKey, _Known] = {}
        self._wanted: set[SecretKey] = set()
        self._reading: asyncio.Task[dict[SecretKey, _Known]] | None = None

    def clear(self) -> None:
        """Forget everything: in another incarnation of the database it may not be so."""
        self._known.clear()

    def warm(self, keys: Collection[SecretKey]) -> None:
        """Begin to read secrets that attempts will need soon."""
        soon = time.monotonic() + AHEAD_SECONDS
        if missing := [key for key in keys if not self._is_good(key, soon)]:
            self._read(missing)

    async def fill(self, call: Call, own: Collection[str]) -> Call:
        """A call with values in the places of secrets; `own` are those that the job's definition names.

        Raises SecretUnavailable where one cannot be had, or may not be.
        """
        given = {name for _, name in named_in(call.payload)}
        if beyond := sorted(given.difference(own)):
            raise errors.SecretUnavailable(
                f"the payload of this run names the secret {beyond[0][:200]!r}, which the job's own definition does not; "
                "name it there, or run the job with another payload"
            )
        values = await self._values(call.tenant_id, named_by_target(call.target) | given)
        if not values:
            return call
        try:
            target = filled_target(call.target, values)
        except ValueError as error:
            raise errors.SecretUnavailable(str(error)) from None
        return dataclasses.replace(
            call,
            target=target,
            payload=filled(call.payload, values),
            hidden=Hidden(values).beside(call.hidden),
        )

    async def _values(self, tenant_id: int, names: Iterable[str]) -> dict[str, str]:
        keys = [(tenant_id, name) for name in sorted(names)]
        now = time.monotonic()
        found = {key: self._known[key] for key in keys if self._is_good(key, now)}
        if missing := [key for key in keys if key not in found]:
            try:
                # What one attempt has asked for others wait for too: its end does not end the reading.
                found |= await asyncio.shield(self._read(missing))
            except errors.StoreUnavailable:
                raise errors.SecretUnavailable(
                    "the secrets that it names could not be read: the database does not answer"
                ) from None
        values = {}
        for key in keys:
            value = found[key].value
            if value is None:
                raise errors.SecretUnavailable(found[key].trouble)
            values[key[1]] = value
        return values

    def _is_good(self, key: SecretKey, at: float) -> bool:
        known = self._known.get(key)
        return known is not None and known.good_until > at

    def _read(self, keys: Iterable[SecretKey]) -> asyncio.Task[dict[SecretKey, _Known]]:
        """Ask for secrets; those that are asked for in the same turn of the loop are read together."""
        self._wanted.update(keys)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_wanted(), name="secrets")
            # Nobody may be waiting for it any more: whoever needs a secret asks again.
            self._reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._reading

    async def _read_wanted(self) -> dict[SecretKey, _Known]:
        await asyncio.sleep(0)
        wanted, self._wanted, self._reading = sorted(self._wanted), set(), None
        read: dict[SecretKey, _Known] = {}
        for start in range(0, len(wanted), BATCH):
            batch = wanted[start : start + BATCH]
            asked = time.monotonic()
            found = await self._store.sealed_secrets(batch)
            opened = await self._open(found)
            good_until = asked + KEPT_SECONDS
            for key in batch:
                value, trouble = opened.get(key, (None, _missing(key[1])))
                read[key] = _Known(good_until, value, trouble)
        now = time.monotonic()
        self._known = {key: each for key, each in (self._known | read).items() if each.good_until > now}
        return read

    async def _open(self, found: Sequence[SealedSecret]) -> dict[SecretKey, tuple[str | None, str]]:
        """What secrets say, or why that is not known."""
        if not found:
            return {}
        try:
            ids = {each.sealed.key_id for each in found}
            keys = {key_id: await self._keyring.find(key_id) for key_id in ids}
        except errors.SecretsLocked as error:
            said = f"this worker cannot read secrets: {error}"
            return {(each.place.tenant_id, each.place.name): (None, said) for each in found}
        # In a thread: the first time loads a library, and there may be a thousand.
        return await asyncio.to_thread(_opened, found, keys)


def _opened(
    found: Sequence[SealedSecret], keys: Mapping[str, Key | None]
) -> dict[SecretKey, tuple[str | None, str]]:
    opened: dict[SecretKey, tuple[str | None, str]] = {}
    for each in found:
        place, key = each.place, keys[each.sealed.key_id]
        value, trouble = None, ""
        if key is None:
            trouble = (
                f"the secret {place.name!r} is encrypted with the key {each.sealed.key_id}, which this worker does not "
                f"have; {HOW_TO}"
            )
        else:
            try:
                value = unseal(each.sealed, place, key)
            except CannotOpen:
                trouble = (
                    f"what the database holds as the secret {place.name!r} is not what was written there: it has been "
                    "changed or moved; set the secret anew, and find out who can write to the database"
                )
        opened[place.tenant_id, place.name] = value, trouble
    return opened


def _missing(name: str) -> str:
    return f"there is no secret {name!r}; `cronwell secret set {name}` makes it, and the next attempt uses it"
