"""What the dashboard gives a browser to keep, signed: who is logged in, which form is its own, what was said last.

A browser can read what it keeps and cannot change it. All servers of a prefix have the same key (`seals`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from typing import Final

_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 16


def nonce() -> str:
    """Something that nobody guesses, and that nobody was given before."""
    return _text(os.urandom(_NONCE_BYTES))


def claimed(signed: str) -> str | None:
    """The text that somebody says was signed; None for what is none. It proves nothing: `Seal.read` does."""
    body = signed.partition(".")[0]
    try:
        return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode()
    except (binascii.Error, ValueError):
        return None


class Seal:
    """Signs texts for one purpose each: what was signed for one is nothing for another."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or os.urandom(_KEY_BYTES)

    def sign(self, purpose: str, text: str) -> str:
        """The text as a cookie may hold it, with its signature."""
        return f"{_text(text.encode())}.{self.mark(purpose, text)}"

    def read(self, purpose: str, signed: str) -> str | None:
        """The text; None when it was not signed here for that purpose."""
        text = claimed(signed)
        return text if text is not None and self.fits(purpose, text, signed.partition(".")[2]) else None

    def mark(self, purpose: str, text: str) -> str:
        """The signature alone."""
        return _text(hmac.digest(self._key, f"{purpose}\n{text}".encode(), hashlib.sha256))

    def fits(self, purpose: str, text: str, mark: str) -> bool:
        """Whether it is that one."""
        return hmac.compare_digest(self.mark(purpose, text).encode(), mark.encode("utf-8", "replace"))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
