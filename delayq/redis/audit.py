"""The audit log: a stream of what people did by hand, the last 10,000 deeds or so.

A deed is written down before it is done, so that nothing is done without a record. A second entry, which names the
first in its field `of`, says how it ended; both are read as one row.
"""

from __future__ import annotations

import getpass
import logging
import os
import socket
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final, TypeVar

from delayq.core.audit import MAX_REASON, AuditEntry, Deed, Outcome, check_reason
from delayq.core.errors import BackendError, DelayqError
from delayq.redis.calls.call import Command, text
from delayq.redis.keys import Globals
from delayq.redis.verbs import Flow, Verbs

T = TypeVar("T")
log = logging.getLogger("delayq.redis")
KEPT: Final = 20_000
"""Entries: two for each deed."""
PAGE: Final = 1_000


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

    def end(self, entry: str, refusal: str = "") -> Flow[None]:
        """Write down how the deed of that entry ended: done, or refused for the reason `refusal`.

        Where Redis does not take it, the outcome stays unknown: the deed itself is over.
        """
        outcome = Outcome.REFUSED if refusal else Outcome.DONE
        words = ("of", entry, "outcome", outcome, "refusal", refusal[:MAX_REASON])
        where = Globals(self._verbs.options.prefix).audit
        try:
            yield Command(("XADD", where, "MAXLEN", "~", KEPT, "*", *words), text)
        except BackendError as error:
            log.warning("the audit log does not say how %s ended: %s", entry, error)

    def around(self, deed: Deed, act: Flow[T]) -> Flow[T]:
        """Write a deed down, do it, and write down how it ended. Raises as both."""
        entry = yield from self.record(deed)
        try:
            answer = yield from act
        except DelayqError as error:
            if not isinstance(error, BackendError):
                yield from self.end(entry, error.message)
            raise
        yield from self.end(entry)
        return answer

    def read(self, limit: int) -> Flow[list[AuditEntry]]:
        """The last deeds, the newest first."""
        where = Globals(self._verbs.options.prefix).audit
        found: list[AuditEntry] = []
        ends: dict[str, Mapping[str, str]] = {}
        last, count = "+", min(2 * limit, PAGE)
        while True:
            rows: list[tuple[str, dict[str, str]]] = yield Command(
                ("XREVRANGE", where, last, "-", "COUNT", count), _rows, True
            )
            for entry, said in rows:
                if "of" in said:
                    ends[said["of"]] = said
                else:
                    found.append(_entry(entry, said, ends.get(entry, {})))
            if len(found) >= limit or len(rows) < count:
                return found[:limit]
            last = f"({rows[-1][0]}"


def _rows(reply: Iterable[Any]) -> list[tuple[str, dict[str, str]]]:
    """Entries and their fields, which come as a map or flat."""
    found = []
    for entry, fields in reply:
        pairs = fields.items() if isinstance(fields, dict) else zip(fields[::2], fields[1::2], strict=True)
        found.append((text(entry), {text(name): text(value) for name, value in pairs}))
    return found


def _entry(entry: str, said: Mapping[str, str], end: Mapping[str, str]) -> AuditEntry:
    """A deed and how it ended; what is missing is ''."""
    who, what, target, reason, detail, door = (
        said.get(name, "") for name in ("who", "what", "on", "reason", "detail", "door")
    )
    known = end.get("outcome", "") in set(Outcome)
    outcome = Outcome(end["outcome"]) if known else Outcome.UNKNOWN
    at_ms, refusal = int(entry.partition("-")[0]), end.get("refusal", "")
    return AuditEntry(entry, at_ms, who, what, target, reason, detail, door, outcome, refusal)
