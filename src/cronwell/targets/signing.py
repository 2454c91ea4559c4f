"""Standard Webhooks signatures: how a receiver knows that a delivery is ours and has not been changed.

The signed text is `{id}.{timestamp}.{body}`, the key is what follows `whsec_` in the secret, in base64.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from functools import lru_cache

PREFIX = "whsec_"
_KEY_BYTES = 32


def new_secret() -> str:
    """Make a secret that nobody has seen before, in the form that receivers' libraries take."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the `webhook-signature` of a delivery. Raises ValueError if the secret is not one."""
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    digest = hmac.digest(_key(secret), signed, "sha256")
    return "v1," + base64.b64encode(digest).decode()


# A worker signs for few tenants, thousands of times a second.
@lru_cache(maxsize=1024)
def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        # Without the text of the secret: this message ends up in logs.
        raise ValueError(f"the signing secret is not {PREFIX} followed by base64")
    return key
