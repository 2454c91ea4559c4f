"""Our signatures are what the official library accepts."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from cronwell.targets import signing


def test_a_new_secret_holds_32_bytes_that_nobody_has_seen_before() -> None:
    first, second = signing.new_secret(), signing.new_secret()
    assert first.startswith("whsec_")
    assert len(base64.b64decode(first.removeprefix("whsec_"))) == 32
    assert first != second


@given(key=st.binary(min_size=1, max_size=150), body=st.text().map(str.encode))
def test_a_signature_is_the_one_that_the_official_library_makes(key: bytes, body: bytes) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    at = datetime.now(UTC)
    ours = signing.sign(secret, "msg_1", int(at.timestamp()), body)
    assert ours == Webhook(secret).sign("msg_1", at, body.decode())


def test_a_changed_body_does_not_verify() -> None:
    secret = signing.new_secret()
    at = int(datetime.now(UTC).timestamp())
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(at),
        "webhook-signature": signing.sign(secret, "msg_1", at, b'{"a":1}'),
    }
    assert Webhook(secret).verify('{"a":1}', headers) == {"a": 1}
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify('{"a":2}', headers)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_not base64!", "whsec_AAA"])
def test_a_secret_that_is_not_one_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="signing secret"):
        signing.sign(secret, "msg_1", 1, b"")


def test_a_refused_secret_is_not_shown() -> None:
    with pytest.raises(ValueError, match="signing secret") as caught:
        signing.sign("whsec_nearly-base64", "msg_1", 1, b"")
    assert "nearly" not in str(caught.value)
