"""For which tenant, and in whose name, the present task acts, as PostgreSQL is told with each transaction.

Whatever a request reads or writes passes row-level security as its tenant: a statement that forgot to name the tenant
would find nothing of another. What it changes is written down in the name of whoever sent it. What acts for the whole
installation (schedulers, workers, the processes' own records) acts for nobody, and is not held back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta

ROLE = "cronwell_tenant"
"""The role of PostgreSQL that row-level security holds to one tenant."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asked for what is done."""

    name: str
    source: str
    """The address that they asked from."""
    request_id: str
    requests: str = ""
    """By which request each of several new jobs came, where they are added together: a JSON object by their names."""


_tenant: ContextVar[int | None] = ContextVar("acting_for", default=None)
_actor: ContextVar[Actor | None] = ContextVar("acting_as", default=None)
_is_judged: ContextVar[bool] = ContextVar("judged_by_statement", default=False)


def act_for(tenant_id: int | None) -> None:
    """From here on, and in tasks begun from here, act for a tenant; None: for the whole installation."""
    _tenant.set(tenant_id)


def act_as(actor: Actor | None) -> None:
    """From here on, and in tasks begun from here, what is changed is changed by somebody; None: by nobody."""
    _actor.set(actor)


def actor() -> Actor | None:
    """In whose name the present task acts."""
    return _actor.get()


@contextlib.contextmanager
def acting_for(tenant_id: int | None) -> Iterator[None]:
    """Act for a tenant within the block; None: for the whole installation."""
    token = _tenant.set(tenant_id)
    try:
        yield
    finally:
        _tenant.reset(token)


@contextlib.contextmanager
def acting_for_nobody() -> Iterator[None]:
    """Within the block statements are sent as they are: for what belongs to no tenant, and changes nothing."""
    tenant, somebody = _tenant.set(None), _actor.set(None)
    try:
        yield
    finally:
        _tenant.reset(tenant)
        _actor.reset(somebody)


@contextlib.contextmanager
def judged_by_statement() -> Iterator[None]:
    """Within the block statements compare with acting_tenant() themselves.

    Row-level security judges a row before any operator that might tell of it, so that only those that PostgreSQL calls
    leakproof find rows by an index. For tags there is none.
    """
    token = _is_judged.set(True)
    try:
        yield
    finally:
        _is_judged.reset(token)


def begin(*, keeps_plans: bool = False, lock_timeout: timedelta | None = None) -> str:
    """The statement, or the script of several, that begins a transaction.

    With `keeps_plans` a statement in it is planned once for a connection, whatever the session does with others; with
    `lock_timeout` it waits for a lock for no longer than that.
    """
    tenant_id, somebody = _tenant.get(), _actor.get()
    said: dict[str, str] = {}
    if somebody is not None:
        said = {
            "cronwell.actor": somebody.name,
            "cronwell.source": somebody.source,
            "cronwell.request": somebody.request_id,
        }
        if somebody.requests:
            said["cronwell.requests"] = somebody.requests
    if tenant_id is not None:
        said["cronwell.tenant"] = f"{tenant_id:d}"
        if not _is_judged.get():
            said["role"] = ROLE
    if keeps_plans:
        said["plan_cache_mode"] = "force_generic_plan"
    if lock_timeout is not None:
        said["lock_timeout"] = f"{lock_timeout // timedelta(milliseconds=1)}ms"
    if not said:
        return "begin"
    # In one statement: each by itself would cost as much as a small query.
    settings = ", ".join(f"set_config('{name}', {_quoted(text)}, true)" for name, text in said.items())
    return f"begin; select {settings}"


def is_acting() -> bool:
    """Tell whether statements have to say for whom, or in whose name, they are."""
    return _tenant.get() is not None or _actor.get() is not None


def _quoted(text: str) -> str:
    # With escapes, which mean the same whatever the server takes plain strings for.
    return "E'" + text.replace("\0", "").replace("\\", "\\\\").replace("'", "''") + "'"
