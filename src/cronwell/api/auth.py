"""Who sends a request: by an API key, by a signed token, or from this machine to an API that only this machine reaches.

A credential that is sent is always judged, also where none is needed: a wrong one is never taken for none.
"""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import urlsplit

from starlette.types import Scope as Request

from cronwell import addresses, errors
from cronwell.api.tokens import Tokens
from cronwell.config import Settings
from cronwell.model import callback
from cronwell.model.access import ALL_SCOPES, Caller, Scope, is_key, read_scopes, read_secret
from cronwell.model.callback import Token
from cronwell.runtime.acting import acting_for
from cronwell.runtime.clock import Clock
from cronwell.store.port import ApiKey, Store

DEFAULT_TENANT = 1
WATCHER = Caller(DEFAULT_TENANT, frozenset({Scope.OPERATOR}), "the ops port")
"""Whoever reaches the port where a process only tells how it is."""
USE_NOTED_EVERY = timedelta(minutes=1)
OPEN = frozenset({"/", "/healthz", "/readyz", "/openapi.json", "/docs"})
"""Paths that tell nothing of anybody."""

_BEARER = re.compile(r"bearer +(\S+)", re.IGNORECASE | re.ASCII)
# What proxies say of those whom they let in.
_PASSED_ON = frozenset({b"forwarded", b"via", b"x-real-ip", b"cf-connecting-ip", b"true-client-ip"})
_ADVICE = "send `Authorization: Bearer KEY`; `cronwell key create` makes a key"


class Authenticator:
    """Tells callers apart. One instance serves a process."""

    def __init__(self, store: Store, clock: Clock, settings: Settings, tokens: Tokens | None) -> None:
        self._store = store
        self._clock = clock
        self._tokens = tokens
        self._is_keyless = addresses.is_loopback(settings.host) and not settings.auth.required

    async def caller(self, request: Request) -> Caller:
        """Who sends it; raises Unauthorized, or Forbidden where it came by a way that only a deceived browser takes."""
        given = _header(request, b"authorization")
        if given is None:
            return self._without_key(request)
        match = _BEARER.fullmatch(given.strip())
        if match is None:
            raise errors.Unauthorized(f"the Authorization header is not a bearer credential; {_ADVICE}")
        # Keys are looked up before it is known whose they are.
        with acting_for(None):
            if is_key(match[1]) or self._tokens is None:
                return await self._by_key(match[1])
            return await self._by_token(match[1], self._tokens)

    async def called_back(self, path: str) -> tuple[Caller, Token]:
        """Whose callback it is, by its address; raises NotFound, in the same words whatever is wrong with it."""
        found = callback.read(path.removeprefix(callback.PATH).partition("/")[0])
        terms = None if found is None else await self._store.callback_terms(found.token.tenant_id)
        if found is None or terms is None or not found.is_signed_with(terms[0]):
            raise errors.NotFound(
                "no delivery was sent with this address; use what Cronwell-Callback said, to the letter"
            )
        return Caller(
            found.token.tenant_id, frozenset(), f"callback {found.token.key}", terms[1]
        ), found.token

    def _without_key(self, request: Request) -> Caller:
        if not self._is_keyless:
            raise errors.Unauthorized(_ADVICE)
        if any(name in _PASSED_ON or name.startswith(b"x-forwarded-") for name, _ in request["headers"]):
            raise errors.Unauthorized(
                f"requests without a key are taken from this machine alone, and a proxy passed this one on; {_ADVICE}"
            )
        host = _header(request, b"host")
        if host is not None and not addresses.is_loopback(_name_of(host)):
            # A name that leads here was made to: by a proxy that lets others in, or by a page that rebinds its own name.
            raise errors.Unauthorized(
                f"requests without a key are taken from this machine alone, and this one asks for {host[:100]!r}; {_ADVICE}"
            )
        return Caller(DEFAULT_TENANT, ALL_SCOPES, "loopback")

    async def _by_key(self, text: str) -> Caller:
        secret = read_secret(text)
        found = None if secret is None else await self._store.find_key(secret.prefix)
        if secret is None or found is None or not secret.matches(found[0].digest):
            raise errors.Unauthorized(f"that key is not known here; {_ADVICE}")
        key, quotas = found
        now = self._clock.now()
        if key.revoked_at is not None:
            raise errors.Unauthorized(f"the key {key.prefix} was revoked; use another one")
        if not key.is_good(now):
            raise errors.Unauthorized(f"the key {key.prefix} has expired; use another one")
        await self._note_use(key)
        return Caller(key.tenant_id, read_scopes(key.scopes), f"key {key.prefix}", quotas)

    async def _by_token(self, text: str, tokens: Tokens) -> Caller:
        claims = await tokens.read(text)
        tenant = await self._store.get_tenant(claims.tenant)
        if tenant is None:
            raise errors.Unauthorized(f"the token is of a tenant that is not here: {claims.tenant[:100]!r}")
        return Caller(tenant.id, claims.scopes, f"token {claims.subject}", tenant.quotas)

    async def _note_use(self, key: ApiKey) -> None:
        now = self._clock.now()
        if key.last_used_at is None or now - key.last_used_at >= USE_NOTED_EVERY:
            await self._store.note_key_use(key.tenant_id, key.id, now)


def is_callback(path: str) -> bool:
    """Tell whether the address itself shows who calls."""
    return path.startswith(callback.PATH)


def is_open(path: str) -> bool:
    """Tell whether a path is answered to everybody."""
    return path in OPEN or path.startswith("/docs/")


def _header(request: Request, wanted: bytes) -> str | None:
    found = [value for name, value in request["headers"] if name == wanted]
    if len(found) > 1:
        raise errors.Malformed(f"there are {len(found)} {wanted.decode()} headers; send one")
    return found[0].decode("latin-1") if found else None


def _name_of(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
