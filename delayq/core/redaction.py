"""Fields of payloads that nobody should read on a page."""

from __future__ import annotations

from typing import Final

REDACTED: Final = (
    "*password*",
    "passwd",
    "*passphrase*",
    "*secret*",
    "*token",
    "authorization",
    "cookie",
    "*api_key",
    "*apikey",
    "*private_key",
    "*credential*",
    "card_number",
    "cvc",
    "cvv",
    "iban",
)
"""Name patterns, as far as names are alike everywhere; the setting `redact` takes their place."""
