"""An interface that needs a key, with two tenants: `ours` attacks what is `theirs`."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest_asyncio

from cronwell.config import AuthSettings, SecretSettings, Settings, ShellSettings
from cronwell.control.keys import Keys
from cronwell.control.tenants import Tenants
from cronwell.model.access import ALL_SCOPES, Caller, Scope
from cronwell.store.postgres.store import PostgresStore
from tests.api.attacks.provider import Provider
from tests.api.conftest import Served
from tests.api.rig import Caller as Client
from tests.api.rig import Reply, Rig, calling, serving

AUDIENCE, ISSUER = "cronwell", "https://login.example.com/"


@dataclass(frozen=True, slots=True)
class As:
    """Calls with a credential."""

    client: Client
    credential: str

    async def call(
        self, method: str, path: str, body: object = None, *, data: Any = None, **headers: str
    ) -> Reply:
        sent = {"Authorization": f"Bearer {self.credential}", **headers}
        return await self.client.call(method, path, body, data=data, headers=sent)


@dataclass(frozen=True, slots=True)
class Fortress:
    """The interface, its keys, and who signs its tokens."""

    rig: Rig
    keys: Keys
    tenants: Tenants
    provider: Provider
    tenant_ids: dict[str, int]

    async def key(self, tenant: str, *scopes: Scope) -> As:
        """A caller of a tenant who has some scopes, or all of them but those of the whole installation."""
        held = scopes or tuple(ALL_SCOPES - {Scope.OPERATOR})
        owner = Caller(self.tenant_ids[tenant], ALL_SCOPES, "test")
        made = await self.keys.create(owner, "test", held)
        return As(self.rig.caller, made.key)

    def with_token(self, token: str) -> As:
        return As(self.rig.caller, token)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def guarded(served: Served) -> AsyncIterator[Fortress]:
    provider = Provider(AUDIENCE, ISSUER)
    settings = dataclasses.replace(
        Settings(),
        auth=AuthSettings(required=True, jwks="given", issuer=ISSUER, audience=AUDIENCE),
        shell=ShellSettings(enabled=True),
        secrets=SecretSettings(key="ab" * 32),
    )
    store = PostgresStore(served.database)
    clock = served.rig.clock
    tenants = Tenants(store, clock)
    ids = {}
    for name in ("ours", "theirs"):
        await tenants.create(name)
        ids[name] = (await tenants.find(name)).id
    async with serving(
        served.database, served.url, clock, settings, load_token_keys=provider.document
    ) as rig:
        yield Fortress(rig, Keys(store, clock), tenants, provider, ids)


@pytest_asyncio.fixture(loop_scope="session")
async def fortress(guarded: Fortress, rig: Rig) -> AsyncIterator[Fortress]:
    """The same on connections of its own; what a test makes is gone afterwards, as is what `rig` makes."""
    async with calling(guarded.rig.caller.url) as caller:
        yield dataclasses.replace(guarded, rig=dataclasses.replace(guarded.rig, caller=caller))
