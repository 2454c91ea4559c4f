"""An identity provider: keys of every kind, and tokens signed with them, or with whatever an attacker has."""

from __future__ import annotations

import time
from typing import Any

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

SIGNERS = {"rsa": "RS256", "ec": "ES256", "ed": "EdDSA"}


class Provider:
    """Signs tokens for one audience."""

    def __init__(self, audience: str, issuer: str) -> None:
        self._audience = audience
        self._issuer = issuer
        self.keys: dict[str, Any] = {
            "rsa": rsa.generate_private_key(65537, 2048),
            "ec": ec.generate_private_key(ec.SECP256R1()),
            "ed": ed25519.Ed25519PrivateKey.generate(),
        }
        self.loads = 0

    async def document(self) -> bytes:
        """The public halves, as a JWKS document."""
        self.loads += 1
        return orjson.dumps({"keys": [self.public(name) for name in self.keys]})

    def public(self, name: str) -> dict[str, Any]:
        algorithm = get_default_algorithms()[SIGNERS[name]]
        written = algorithm.to_jwk(self.keys[name].public_key(), as_dict=True)
        return {**written, "kid": name, "use": "sig", "alg": SIGNERS[name]}

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Good claims, but for the changes; None leaves one out."""
        now = int(time.time())
        good = {
            "iss": self._issuer,
            "aud": self._audience,
            "sub": "alice",
            "iat": now,
            "exp": now + 300,
            "tenant": "ours",
            "scope": "read write openid",
        }
        return {name: value for name, value in {**good, **changes}.items() if value is not None}

    def token(self, name: str = "rsa", *, headers: dict[str, Any] | None = None, **changes: Any) -> str:
        return jwt.encode(
            self.claims(**changes),
            self.keys[name],
            SIGNERS[name],
            headers={"kid": name, **(headers or {})},
        )
