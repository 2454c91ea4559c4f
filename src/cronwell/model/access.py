"""Who asks, and what they may do: scopes, callers, and the shape of API keys.

A scope says what it says and nothing beyond: a key that may `write` but not `read` can create a job and not list one.
Nobody gives away more than they have.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cronwell import errors

KEY_SECRET_BYTES = 32
KEY_PREFIX_BYTES = 6
TENANT_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,62}$"

_KEY = re.compile(r"(cw_[0-9a-f]{12})_([0-9a-f]{64})", re.ASCII)
_LOOKS_LIKE_KEY = "cw_"


class Scope(StrEnum):
    """What a caller may do, within its tenant unless it says otherwise."""

    READ = "read"
    """See jobs, executions, calendars, forecasts."""
    WRITE = "write"
    """Create, change, pause and delete jobs, calendars, overrides and secrets."""
    RUN = "run"
    """Trigger, cancel, retry, redrive and backfill."""
    COMMANDS = "commands"
    """Beside `write`: give jobs targets that run commands on the machines of workers."""
    ADMIN = "admin"
    """Make and revoke keys of the tenant."""
    OPERATOR = "operator"
    """See and drain the processes of the installation, read its metrics, make tenants."""


ALL_SCOPES = frozenset(Scope)
DEFAULT_SCOPES = frozenset({Scope.READ, Scope.WRITE, Scope.RUN})
COMMAND_TARGETS = frozenset({"shell", "container"})
"""Kinds of targets that run commands of the caller's choosing."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """How much a tenant may have; None: as much as it likes."""

    jobs: int | None = None
    payload_bytes: int | None = None
    """Of one payload, where that is less than the installation's limit."""
    requests_per_second: float | None = None
    """Answered by one process of the API; twice as many may come at once."""
    running: int | None = None
    """Executions that run at once; others wait for their turn."""
    executions_per_minute: int | None = None
    """Executions that begin in a minute of the clock; others wait for the next one."""

    def check_payload(self, size: int) -> None:
        """Raise TooLarge for a payload that the tenant may not have."""
        if self.payload_bytes is not None and size > self.payload_bytes:
            raise errors.TooLarge(
                f"the payload has {size} bytes, and the quota of your tenant is {self.payload_bytes}; "
                "keep large data elsewhere and send a reference to it"
            )


NO_QUOTAS = Quotas()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request."""

    tenant_id: int
    scopes: frozenset[Scope]
    name: str
    """As it stands in logs and in the history of changes: `key cw_0a1b…`, `token alice`, `loopback`."""
    quotas: Quotas = NO_QUOTAS

    def require(self, scope: Scope) -> None:
        """Raise Forbidden unless the caller has a scope."""
        if scope not in self.scopes:
            raise errors.Forbidden(
                f"this takes the scope `{scope}`, and {self.name} has {write_scopes(self.scopes)}; "
                "use a key that has it, or ask an administrator of your tenant for one"
            )

    def check_target(self, kind: str) -> None:
        """Raise Forbidden unless the caller may make, or change, jobs with such a target."""
        if kind in COMMAND_TARGETS and Scope.COMMANDS not in self.scopes:
            raise errors.Forbidden(
                f"a job with the target `{kind}` runs commands on workers, which takes the scope `{Scope.COMMANDS}`; "
                f"{self.name} has {write_scopes(self.scopes)}"
            )


@dataclass(frozen=True, slots=True)
class Secret:
    """An API key: shown once, kept as its prefix and digest."""

    prefix: str
    """What is shown of it, and what it is looked up by."""
    text: str

    @property
    def digest(self) -> bytes:
        """What is kept. The secret is random and long, so a plain hash cannot be reversed by guessing."""
        return hashlib.sha256(self.text.encode()).digest()

    def matches(self, digest: bytes) -> bool:
        """Compare in a time that does not depend on where they differ."""
        return hmac.compare_digest(self.digest, digest)


def new_secret(random: bytes) -> Secret:
    """Make a key of the caller's random bytes, of which there are `KEY_PREFIX_BYTES + KEY_SECRET_BYTES`."""
    if len(random) != KEY_PREFIX_BYTES + KEY_SECRET_BYTES:
        raise ValueError(f"a key takes {KEY_PREFIX_BYTES + KEY_SECRET_BYTES} random bytes")
    prefix = f"cw_{random[:KEY_PREFIX_BYTES].hex()}"
    return Secret(prefix, f"{prefix}_{random[KEY_PREFIX_BYTES:].hex()}")


def read_secret(text: str) -> Secret | None:
    """An API key as it was sent; None where it cannot be one."""
    match = _KEY.fullmatch(text)
    return None if match is None else Secret(match[1], text)


def is_key(text: str) -> bool:
    """Tell whether a credential is meant to be an API key."""
    return text.startswith(_LOOKS_LIKE_KEY)


def read_scopes(names: Iterable[str]) -> frozenset[Scope]:
    """Scopes by their names; raises Invalid for one that is not known."""
    found = set()
    for name in names:
        if name not in ALL_SCOPES:
            accepted = ", ".join(Scope)
            raise errors.Invalid.field("scopes", f"{name[:40]!r} is not a scope", accepted=accepted)
        found.add(Scope(name))
    return frozenset(found)


def first_scopes(tenant: str) -> list[str]:
    """What the first key of a tenant may do: the installation is run by those of the tenant `default`."""
    return [scope for scope in Scope if tenant == "default" or scope not in (Scope.OPERATOR, Scope.COMMANDS)]


def write_scopes(scopes: Iterable[Scope]) -> str:
    """Scopes for people, in the order in which they are declared."""
    held = frozenset(scopes)
    return ", ".join(scope for scope in Scope if scope in held) or "none"
