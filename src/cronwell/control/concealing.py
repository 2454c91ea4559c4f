"""What is told by a callback, without the values of the secrets that its attempt was given.

A worker looks through what its attempts leave behind, for the values that it gave them. What comes later by a callback reaches
the API instead, which reads the secrets that the job names for that: as they are by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from cronwell import errors
from cronwell.model.alerts import is_own
from cronwell.model.envelope import CannotOpen, Key, unseal
from cronwell.model.job import JobSpec
from cronwell.model.naming import named_by, unshown
from cronwell.model.references import MARK, Hidden
from cronwell.runtime.acting import acting_for_nobody
from cronwell.runtime.keyring import Keyring
from cronwell.store.port import Called, SealedSecret, Store


async def hidden_from(store: Store, keyring: Keyring, called: Called) -> Hidden | None:
    """The values that nothing of an execution may show; raises SecretsLocked where one cannot be read here."""
    is_channel = is_own(called.job_name)
    if MARK not in called.spec and not is_channel:
        return None
    spec = JobSpec.model_validate_json(called.spec)
    values = unshown(spec.target) if is_channel else {}
    if names := sorted(set(named_by(spec).values())):
        # Whoever acts for a tenant cannot read them, and whoever calls back is not told them.
        with acting_for_nobody():
            found = await store.sealed_secrets([(called.tenant_id, name) for name in names])
        keys = {key_id: await keyring.find(key_id) for key_id in {each.sealed.key_id for each in found}}
        # In a thread: the first time loads a library.
        values |= await asyncio.to_thread(_opened, found, keys)
    return Hidden(values) if values else None


def _opened(found: Sequence[SealedSecret], keys: Mapping[str, Key | None]) -> dict[str, str]:
    values = {}
    for each in found:
        key = keys[each.sealed.key_id]
        try:
            if key is None:
                raise CannotOpen
            values[each.place.name] = unseal(each.sealed, each.place, key)
        except CannotOpen:
            raise errors.SecretsLocked(f"the secret {each.place.name!r} cannot be read here") from None
    return values
