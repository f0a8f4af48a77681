"""What a worker is called in Redis."""

from __future__ import annotations

import os
import secrets
import socket


def host_name() -> str:
    """This machine's name, in letters that a consumer's name may hold."""
    name = socket.gethostname()
    return (
        "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in name) or "_"
    )


def consumer_name(label: str = "") -> str:
    """A new name in delayq's own form, `dq:<label>:<pid>:<random>`; this machine's name stands in for a label.

    A user chooses no more than the label: under a name that two workers share, each would replay what the other holds.
    """
    return f"dq:{label or host_name()}:{os.getpid()}:{secrets.token_hex(4)}"
