"""Tokens that are not to be believed, and those that are."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cronwell.api.tokens import read_keys
from cronwell.config import AuthSettings
from tests.api.attacks.conftest import Fortress
from tests.api.attacks.provider import SIGNERS, Provider

READ = "/v1/jobs"
ALLOWED = AuthSettings().algorithms


@pytest.mark.parametrize("name", SIGNERS)
async def test_a_good_token_is_its_tenants_with_its_scopes(name: str, fortress: Fortress) -> None:
    alice = fortress.with_token(fortress.provider.token(name, scope="read cronwell:write openid"))
    made = await alice.call(
        "POST", READ, {"name": f"by-{name}", "schedule": "@hourly", "target": "https://example.com"}
    )
    assert made.status == 201
    ours = await fortress.key("ours")
    assert (await ours.call("GET", f"{READ}/{made.json['id']}")).status == 200
    theirs = await fortress.key("theirs")
    assert (await theirs.call("GET", f"{READ}/{made.json['id']}")).status == 404
    assert (await alice.call("GET", "/v1/keys")).status == 403


async def test_scopes_may_be_a_list(fortress: Fortress) -> None:
    reader = fortress.with_token(fortress.provider.token(scope=["read", 7, "other"]))
    assert (await reader.call("GET", READ)).status == 200
    assert (await reader.call("DELETE", f"{READ}/name:x")).status == 403


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1},
        {"exp": None},
        {"nbf": 4_000_000_000},
        {"iat": 4_000_000_000},
        {"iss": "https://evil.example/"},
        {"iss": None},
        {"aud": "another"},
        {"aud": None},
        {"aud": ["another", "third"]},
        {"sub": None},
        {"tenant": None},
        {"tenant": ""},
        {"tenant": "ours\0"},
        {"tenant": "ours\n"},
        {"tenant": "ours' or 1=1 --"},
        {"tenant": 1},
        {"tenant": ["ours"]},
        {"tenant": "nobody"},
    ],
    ids=str,
)
async def test_claims_that_do_not_hold_are_refused(changes: dict[str, Any], fortress: Fortress) -> None:
    token = fortress.provider.token(**changes)
    assert (await fortress.with_token(token).call("GET", READ)).status == 401


async def test_no_signature_is_no_signature(fortress: Fortress) -> None:
    """alg: none, in every spelling."""
    body = _part(fortress.provider.claims())
    for name in ("none", "None", "NONE", "nOnE", "", None):
        for signature in ("", "x"):
            token = f"{_part({'alg': name, 'typ': 'JWT', 'kid': 'rsa'})}.{body}.{signature}"
            assert (await fortress.with_token(token).call("GET", READ)).status == 401


@pytest.mark.parametrize("alg", ["HS256", "HS384", "HS512"])
async def test_a_public_key_is_no_shared_secret(alg: str, fortress: Fortress) -> None:
    """Algorithm confusion: signed with the public key, which everybody has."""
    public = fortress.provider.keys["rsa"].public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    secrets = [pem, pem.strip(), orjson.dumps(fortress.provider.public("rsa")), b""]
    for secret in secrets:
        signed = f"{_part({'alg': alg, 'typ': 'JWT', 'kid': 'rsa'})}.{_part(fortress.provider.claims())}"
        digest = hmac.new(secret, signed.encode(), getattr(hashlib, f"sha{alg[2:]}")).digest()
        token = f"{signed}.{_encoded(digest)}"
        assert (await fortress.with_token(token).call("GET", READ)).status == 401


async def test_a_key_that_the_token_brings_along_counts_for_nothing(fortress: Fortress) -> None:
    mine = rsa.generate_private_key(65537, 2048)
    stranger = Provider("cronwell", "https://login.example.com/")
    stranger.keys["rsa"] = mine
    jwk = stranger.public("rsa")
    for headers in (
        {"jwk": jwk},
        {"jku": "http://127.0.0.1:1/keys"},
        {"x5u": "http://127.0.0.1:1/keys"},
        {"kid": "../../../../etc/passwd"},
        {"kid": "unknown"},
        {"kid": ""},
        {"kid": "rsa' or '1'='1"},
    ):
        token = jwt.encode(fortress.provider.claims(), mine, "RS256", headers={"kid": "rsa", **headers})
        assert (await fortress.with_token(token).call("GET", READ)).status == 401


async def test_a_key_signs_by_its_own_algorithm_alone(fortress: Fortress) -> None:
    token = jwt.encode(
        fortress.provider.claims(), fortress.provider.keys["rsa"], "PS256", headers={"kid": "rsa"}
    )
    assert (await fortress.with_token(token).call("GET", READ)).status == 401
    token = jwt.encode(
        fortress.provider.claims(), fortress.provider.keys["ec"], "ES256", headers={"kid": "rsa"}
    )
    assert (await fortress.with_token(token).call("GET", READ)).status == 401


async def test_one_changed_letter_spoils_a_token(fortress: Fortress) -> None:
    header, body, signature = fortress.provider.token().split(".")
    other = _part(fortress.provider.claims(tenant="theirs"))
    for token in (
        f"{header}.{other}.{signature}",
        f"{header}.{body}.{signature[:-2]}",
        f"{header}.{body}.",
        f"{header}.{body}",
        f"{header}.{body}.{signature}.{signature}",
    ):
        assert (await fortress.with_token(token).call("GET", READ)).status == 401


async def test_tokens_without_keys_of_the_provider_do_not_ask_it_over_and_over(fortress: Fortress) -> None:
    await fortress.with_token(fortress.provider.token()).call("GET", READ)
    loads = fortress.provider.loads
    for number in range(20):
        token = fortress.provider.token(headers={"kid": f"made-up-{number}"})
        assert (await fortress.with_token(token).call("GET", READ)).status == 401
    assert fortress.provider.loads <= loads + 1


def test_shared_secrets_and_keys_for_other_uses_are_left_out() -> None:
    provider = Provider("a", "b")
    secret = {"kty": "oct", "k": _encoded(b"secret"), "kid": "secret", "alg": "HS256"}
    for_encryption = {**provider.public("rsa"), "use": "enc", "kid": "enc"}
    senseless: list[Any] = [
        {"kty": "?"},
        {},
        None,
        7,
        "x",
        {"kty": "EC", "crv": 7},
        {"kty": "RSA", "n": 1, "e": []},
    ]
    document = orjson.dumps({"keys": [secret, for_encryption, *senseless, provider.public("ec")]})
    assert set(read_keys(document, ALLOWED)) == {"ec"}


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": []}'])
def test_a_document_without_keys_is_told(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_keys(document, ALLOWED)


def _part(content: dict[str, Any]) -> str:
    return _encoded(orjson.dumps(content))


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
