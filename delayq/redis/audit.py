"""The audit log: a stream of what people did by hand, the last 10,000 deeds or so.

A deed is written down before it is done, so that nothing is done without a record; what was refused beforehand is not.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

from delayq.core.audit import AuditEntry, Deed, check_reason
from delayq.redis.calls.call import Command, text
from delayq.redis.keys import Globals
from delayq.redis.verbs import Flow, Verbs

KEPT: Final = 10_000


def me() -> str:
    """Who does something in this process: user@host/pid."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}/{os.getpid()}"


class Audit:
    """The log of one prefix, as flows."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def record(self, deed: Deed) -> Flow[str]:
        """Write it down; its id. Raises `InvalidInput` for a reason that says nothing; none at all is fine here."""
        who, door = deed.who or me(), deed.door or self._verbs.door
        reason = check_reason(deed.reason) if deed.reason else ""
        said = {"who": who, "door": door, "what": deed.what, "on": deed.target, "reason": reason, "detail": deed.detail}
        words = chain.from_iterable(said.items())
        where = Globals(self._verbs.options.prefix).audit
        written: str = yield Command(("XADD", where, "MAXLEN", "~", KEPT, "*", *words), text)
        return written

    def read(self, limit: int) -> Flow[list[AuditEntry]]:
        """The last deeds, the newest first."""
        where = Globals(self._verbs.options.prefix).audit
        found: list[AuditEntry] = yield Command(("XREVRANGE", where, "+", "-", "COUNT", limit), _entries, True)
        return found


def _entries(reply: Iterable[Any]) -> list[AuditEntry]:
    return [_entry(text(entry), fields) for entry, fields in reply]


def _entry(entry: str, fields: Any) -> AuditEntry:
    """Fields come as a map or flat; what is missing is ''."""
    pairs = fields.items() if isinstance(fields, dict) else zip(fields[::2], fields[1::2], strict=True)
    said = {text(name): text(value) for name, value in pairs}
    words = (said.get(name, "") for name in ("who", "what", "on", "reason", "detail", "door"))
    return AuditEntry(entry, int(entry.partition("-")[0]), *words)
