"""Idempotency-Key: what a caller's key is called in Redis, and what tells his requests apart."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from delayq.http.access import Caller
from delayq.redis.idempotent import Repeatable

KEY_EXAMPLE: Final = "8e03978e-40d5-43dd-bc93-6894a57f9324"


def repeatable(key: str, caller: Caller, body: bytes) -> Repeatable:
    """The key as a token. Two callers may use the same key: each means his own."""
    owner = caller.key.id if caller.key else ""
    token = base64.b32hexencode(hashlib.sha256(f"{owner}\0{key}".encode()).digest()[:20]).decode().lower()
    return Repeatable(f"idem-{token}", hashlib.sha256(body).hexdigest())
