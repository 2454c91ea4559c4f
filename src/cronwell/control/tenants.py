"""What an operator can do with tenants."""

from __future__ import annotations

import base64
import dataclasses
import secrets
from collections.abc import Mapping

from cronwell import errors, telemetry
from cronwell.control.paging import read_cursor, write_cursor
from cronwell.control.views import Moment, Page, View
from cronwell.model.access import NO_QUOTAS, Quotas
from cronwell.runtime.clock import Clock
from cronwell.store.port import Store, Tenant


class QuotasView(View):
    """How much a tenant may have; null is as much as it likes."""

    jobs: int | None = None
    payload_bytes: int | None = None
    """Of one payload, where that is less than the installation's limit."""
    requests_per_second: float | None = None
    """Answered by one process of the API; twice as many may come at once."""
    running: int | None = None
    """Executions that run at once; others wait for their turn."""
    executions_per_minute: int | None = None
    """Executions that begin in a minute of the clock; others wait for the next one."""


class TenantView(View):
    """A team: it has jobs and keys of its own, and its share of the workers."""

    name: str
    weight: float
    """Its share, beside those of others that have work waiting."""
    quotas: QuotasView
    created_at: Moment


class Tenants:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, name: str, *, weight: float = 1.0, quotas: Quotas = NO_QUOTAS) -> TenantView:
        signing = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
        made = await self._store.insert_tenant(name, weight, signing, self._clock.now(), quotas)
        if made is None:
            raise errors.NameTaken(f"another tenant is named {name!r}")
        telemetry.access_changed("tenant created", tenant=name)
        return _view(made)

    async def page(self, *, cursor: str | None, limit: int) -> Page[TenantView]:
        """Tenants by name."""
        place = read_cursor(cursor, 1)
        found = await self._store.list_tenants(None if place is None else place[0], limit + 1)
        shown = found[:limit]
        following = write_cursor(shown[-1].name) if len(found) > limit else None
        return Page(items=[_view(each) for each in shown], next_cursor=following)

    async def get(self, name: str) -> TenantView:
        return _view(await self.find(name))

    async def change(
        self, name: str, *, weight: float | None, quotas: Mapping[str, float | None]
    ) -> TenantView:
        """Change what is given; a quota of None is none."""
        changed = await self._store.change_tenant(name, weight, quotas)
        if changed is None:
            raise _missing(name)
        await self._store.gate_waiting()
        telemetry.access_changed("tenant changed", tenant=name)
        return _view(changed)

    async def find(self, name: str) -> Tenant:
        """A tenant by its name; raises NotFound."""
        found = await self._store.get_tenant(name)
        if found is None:
            raise _missing(name)
        return found


def _missing(name: str) -> errors.NotFound:
    return errors.NotFound(f"there is no tenant {name!r}")


def _view(tenant: Tenant) -> TenantView:
    return TenantView(
        name=tenant.name,
        weight=tenant.weight,
        quotas=QuotasView(**dataclasses.asdict(tenant.quotas)),
        created_at=tenant.created_at,
    )
