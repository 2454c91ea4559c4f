"""Signed tokens (JWT) of an identity provider, whose public keys are read from a file or fetched.

Only signatures by a private key count. Where a shared secret were taken as well, whoever has the public key, which is
everybody, could sign with it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import jwt
import orjson

from cronwell import errors, telemetry
from cronwell.config import AuthSettings
from cronwell.model.access import ALL_SCOPES, TENANT_PATTERN, Scope

LEEWAY_S = 30.0
"""By how much clocks may differ."""
KEPT_FOR_S = 600.0
ASK_AGAIN_AFTER_S = 30.0
"""A key that is not known is asked for, but no oftener than this."""
LONGEST = 16_384
REQUIRED = ["exp", "iss", "aud", "sub"]
PREFIX = "cronwell:"

_UNFIT_FOR_LOGS = re.compile(r"[^\x21-\x7e]+")

Load = Callable[[], Awaitable[bytes]]
"""Reads the provider's keys, as a JWKS document; raises OSError or ValueError where they cannot be had."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says that matters here."""

    subject: str
    tenant: str
    scopes: frozenset[Scope]


class Tokens:
    """Judges tokens. One instance serves a process."""

    def __init__(self, settings: AuthSettings, load: Load) -> None:
        self._settings = settings
        self._load = load
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._loading = asyncio.Lock()

    async def read(self, text: str) -> Claims:
        """What a token claims; raises Unauthorized where it is not to be believed."""
        if len(text) > LONGEST:
            raise errors.Unauthorized("the credential is too long for a token")
        try:
            header = jwt.get_unverified_header(text)
        except jwt.InvalidTokenError:
            raise errors.Unauthorized("the credential is neither a key of Cronwell nor a token") from None
        key = await self._key(header.get("kid"))
        if key is None or header.get("alg") != key.algorithm_name:
            raise errors.Unauthorized("the token is refused: it is not signed by a key of the provider")
        settings = self._settings
        try:
            claims = jwt.decode(
                text,
                key,
                algorithms=list(settings.algorithms),
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=LEEWAY_S,
                options={"require": REQUIRED, "strict_aud": False},
            )
        except jwt.InvalidTokenError as error:
            raise errors.Unauthorized(f"the token is refused: {_one_line(str(error))}") from None
        return self._claims(claims)

    def _claims(self, claims: dict[str, Any]) -> Claims:
        tenant = claims.get(self._settings.tenant_claim)
        if not isinstance(tenant, str) or not re.fullmatch(TENANT_PATTERN, tenant):
            raise errors.Unauthorized(
                f"the token is refused: it has no name of a tenant in the claim {self._settings.tenant_claim!r}"
            )
        given = claims.get(self._settings.scopes_claim, ())
        names = given.split() if isinstance(given, str) else given if isinstance(given, list) else ()
        scopes = {name.removeprefix(PREFIX) for name in names if isinstance(name, str)}
        # The provider has scopes for others as well.
        held = frozenset(Scope(name) for name in scopes if name in ALL_SCOPES)
        return Claims(_one_line(str(claims["sub"]))[:100], tenant, held)

    async def _key(self, kid: object) -> jwt.PyJWK | None:
        """The provider's key with an id; the only one it has where the token names none."""
        if kid is not None and not isinstance(kid, str):
            return None
        known = self._found(kid)
        now = time.monotonic()
        is_old = self._read_at is None or now - self._read_at > KEPT_FOR_S
        if known is not None and (not is_old or self._loading.locked()):
            # Whoever has a key that is known does not wait for those who have none.
            return known
        async with self._loading:
            now = time.monotonic()
            may_ask = self._tried_at is None or now - self._tried_at > ASK_AGAIN_AFTER_S
            if may_ask and (is_old or self._found(kid) is None):
                self._tried_at = now
                await self._refresh(now)
        return self._found(kid)

    def _found(self, kid: str | None) -> jwt.PyJWK | None:
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid)

    async def _refresh(self, now: float) -> None:
        try:
            self._keys = read_keys(await self._load(), self._settings.algorithms)
            self._read_at = now
        except (OSError, ValueError) as error:
            # Those that are known go on to be good: a provider that is down must not lock everybody out.
            telemetry.token_keys_unread(_one_line(str(error)))


def read_keys(document: bytes, algorithms: tuple[str, ...]) -> dict[str | None, jwt.PyJWK]:
    """The keys of a JWKS document that sign by one of the algorithms, by their ids; raises ValueError for no such document."""
    given = orjson.loads(document)
    listed = given.get("keys") if isinstance(given, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it has no list of keys")
    found: dict[str | None, jwt.PyJWK] = {}
    for each in listed:
        try:
            key = jwt.PyJWK(each)
        except (jwt.PyJWTError, AttributeError, KeyError, TypeError, ValueError):
            # A key that makes no sense does not make the others worse.
            continue
        if key.algorithm_name in algorithms and key.public_key_use in (None, "sig"):
            found[key.key_id] = key
    if not found:
        raise ValueError(f"it has no key for {', '.join(algorithms)}")
    return found


def _one_line(text: str) -> str:
    """What somebody else wrote, fit for a log and an answer."""
    return _UNFIT_FOR_LOGS.sub(" ", text)[:200]
