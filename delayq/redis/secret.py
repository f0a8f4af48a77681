"""What the HTTP servers of a prefix share: one secret, made by the first of them, and the sessions that logged out."""

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


def log_out(verbs: Verbs, session: str, until_s: int, now_s: int) -> Flow[None]:
    """Note that a session has logged out, until its cookie ends; forget the ones whose cookies have ended."""
    where = Globals(verbs.options.prefix).logouts
    yield Command(("ZREMRANGEBYSCORE", where, "-inf", now_s), bool)
    yield Command(("ZADD", where, until_s, session), bool)


def logged_out(verbs: Verbs) -> Flow[list[str]]:
    """Return the sessions that logged out before their cookies ended."""
    found: list[str] = yield Command(("ZRANGE", Globals(verbs.options.prefix).logouts, 0, -1), _texts, True)
    return found


def _texts(reply: list[bytes] | None) -> list[str]:
    return [one.decode() for one in reply or ()]


def _bytes(reply: bytes | None) -> bytes:
    return reply or b""
