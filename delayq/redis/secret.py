"""One secret for all servers of a prefix: whoever needs it first makes it, and all others read that."""

from __future__ import annotations

import base64

from delayq.redis.calls.call import Command
from delayq.redis.keys import Globals
from delayq.redis.verbs import Flow, Verbs


def shared_secret(verbs: Verbs, mine: bytes) -> Flow[bytes]:
    """The secret, as text; `mine` becomes it where there is none yet."""
    where = Globals(verbs.options.prefix).secret
    kept: bytes = yield Command(("GET", where), _bytes, True)
    if kept:
        return kept
    yield Command(("SET", where, base64.urlsafe_b64encode(mine), "NX"), bool)
    kept = yield Command(("GET", where), _bytes)  # somebody else may have been faster
    return kept


def _bytes(reply: bytes | None) -> bytes:
    return reply or b""
