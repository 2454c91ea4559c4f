"""What an administrator can ask of the audit: who changed what, and whether it is whole."""

from __future__ import annotations

import re
from typing import Any

import orjson

from cronwell import errors
from cronwell.control.paging import read_cursor, write_cursor
from cronwell.control.views import Moment, Page, View
from cronwell.model.access import Caller
from cronwell.store.port import AuditEntry, AuditFilter, Store

CHECKED_AT_ONCE = 1000

_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


class AuditView(View):
    """A change that somebody asked for."""

    id: int
    at: Moment
    actor: str
    """Who asked for it: `key cw_…`, `token …`, `loopback`."""
    source: str
    """The address that the request came from."""
    request_id: str
    """As it is in the server's log, and in the X-Request-Id of the answer."""
    action: str
    object: str
    """What was changed: its kind, and its id or name."""
    before: Any
    after: Any
    number: int | None
    """Its place in the chain; null for the second or so until it is chained."""
    digest: str | None
    """Of this change and of the digest before it, in hexadecimal."""


class AuditCheck(View):
    """Whether the chain is whole."""

    is_whole: bool
    """Whether each change has the digest that it, and the one before it, make."""
    checked: int
    broken_link: int | None
    """The first place in the chain where it is not."""
    head: str | None
    """The last digest. Keep it elsewhere: who rewrites the whole chain cannot rewrite that."""
    waiting: int
    """Changes that are not chained yet."""


class Audit:
    """The verbs. One instance serves a process."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def note(
        self, caller: Caller, action: str, object_: str, after: dict[str, Any] | None = None
    ) -> None:
        """Write down what somebody asked for and no table of a tenant tells of."""
        told = None if after is None else orjson.dumps(after).decode()
        async with self._store.transaction() as transaction:
            await transaction.note_change(caller.tenant_id, action, object_, told)

    async def page(
        self, tenant_id: int, where: AuditFilter, *, cursor: str | None, limit: int
    ) -> Page[AuditView]:
        """Changes, newest first."""
        place = read_cursor(cursor, 1)
        if place is not None and not _NUMBER.fullmatch(place[0]):
            raise errors.Invalid.field("cursor", "is not a cursor of this list")
        after = None if place is None else int(place[0])
        found = await self._store.list_audit(tenant_id, where, after, limit + 1)
        shown = found[:limit]
        following = write_cursor(str(shown[-1].id)) if len(found) > limit else None
        return Page(items=[_view(each) for each in shown], next_cursor=following)

    async def check(self, tenant_id: int) -> AuditCheck:
        """Go through the whole chain."""
        number, head, broken_link = 0, None, None
        while broken_link is None:
            links = await self._store.check_audit(tenant_id, number, CHECKED_AT_ONCE)
            for link in links:
                # A link that is missing breaks the chain as well.
                if not link.is_whole or link.number != number + 1:
                    broken_link = number + 1
                    break
                number, head = link.number, link.digest.hex()
            if len(links) < CHECKED_AT_ONCE:
                break
        return AuditCheck(
            is_whole=broken_link is None,
            checked=number,
            broken_link=broken_link,
            head=head,
            waiting=await self._store.count_unsealed(tenant_id),
        )


def _view(entry: AuditEntry) -> AuditView:
    return AuditView(
        id=entry.id,
        at=entry.at,
        actor=entry.actor,
        source=entry.source,
        request_id=entry.request_id,
        action=entry.action,
        object=entry.object,
        before=None if entry.before is None else orjson.loads(entry.before),
        after=None if entry.after is None else orjson.loads(entry.after),
        number=entry.number,
        digest=None if entry.digest is None else entry.digest.hex(),
    )
