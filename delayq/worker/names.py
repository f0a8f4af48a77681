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


def consumer_name(label: str = "", *, pid: int = 0, token: str = "") -> str:
    """A name in delayq's own form, `dq:<label>:<pid>:<random>`; this machine's name stands in for a label.

    A user chooses no more than the label: under a name that two workers share, each would replay what the other holds.
    `pid` and `token` (what is random) are this process's and new ones; a parent gives those of its child.
    """
    return f"dq:{label or host_name()}:{pid or os.getpid()}:{token or new_token()}"


def new_token() -> str:
    """The random part of a name."""
    return secrets.token_hex(4)


def label_of(name: str) -> str:
    """The label in a name of this form; '' in any other."""
    parts = name.split(":")
    return parts[1] if len(parts) == 4 else ""
