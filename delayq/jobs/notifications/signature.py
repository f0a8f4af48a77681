"""How webhooks are signed: by the rules of Standard Webhooks 1.0, with HMAC-SHA256."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence

from delayq.core.errors import ConfigError

PREFIX = "whsec_"
SHORTEST = 16


def keys_of(secrets: Sequence[str]) -> tuple[bytes, ...]:
    """The keys of some secrets, `whsec_` and base64. Raises `ConfigError`, which does not repeat them."""
    keys = []
    for secret in secrets:
        try:
            key = base64.b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else b""
        except binascii.Error:
            key = b""
        if len(key) < SHORTEST:
            raise ConfigError(
                "A webhook secret cannot be used.",
                hint=f"Write {PREFIX} and at least {SHORTEST} random bytes (better 32) in base64.",
            )
        keys.append(key)
    return tuple(keys)


def signed(keys: Sequence[bytes], webhook_id: str, timestamp: int, body: bytes) -> Mapping[str, str]:
    """The three headers. One signature for each key, so that a receiver may change its own at any time."""
    text = b"%s.%d.%s" % (webhook_id.encode(), timestamp, body)
    signatures = (base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode() for key in keys)
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
