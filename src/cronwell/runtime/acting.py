"""For which tenant the present task acts, as PostgreSQL is told with each transaction.

Whatever a request reads or writes passes row-level security as its tenant: a statement that forgot to name the tenant
would find nothing of another. What acts for the whole installation (schedulers, workers, the processes' own records) acts for
nobody, and is not held back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

ROLE = "cronwell_tenant"
"""The role of PostgreSQL that row-level security holds to one tenant."""

_tenant: ContextVar[int | None] = ContextVar("acting_for", default=None)
_is_judged: ContextVar[bool] = ContextVar("judged_by_statement", default=False)


def act_for(tenant_id: int | None) -> None:
    """From here on, and in tasks begun from here, act for a tenant; None: for the whole installation."""
    _tenant.set(tenant_id)


@contextlib.contextmanager
def acting_for(tenant_id: int | None) -> Iterator[None]:
    """Act for a tenant within the block; None: for the whole installation."""
    token = _tenant.set(tenant_id)
    try:
        yield
    finally:
        _tenant.reset(token)


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


def begin() -> str:
    """The statement, or the script of several, that begins a transaction."""
    tenant_id = _tenant.get()
    if tenant_id is None:
        return "begin"
    named = f"set local cronwell.tenant = '{tenant_id:d}'"
    return f"begin; {named}" if _is_judged.get() else f"begin; set local role {ROLE}; {named}"


def is_acting() -> bool:
    """Tell whether statements have to say for whom they are."""
    return _tenant.get() is not None
