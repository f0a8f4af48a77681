"""Keys for tests, always the same ones; they protect nothing."""

from __future__ import annotations

import base64

from delayq.core.keyring import Keyring, parse_keys


def key(key_id: str) -> str:
    """A key as it is written. Another id is another key."""
    secret = key_id.encode().ljust(32, b".")
    return f"{key_id}:{base64.b64encode(secret).decode()}"


def ring(*key_ids: str) -> Keyring:
    """Keys with these ids, the first one encrypts."""
    return parse_keys([key(key_id) for key_id in key_ids])
