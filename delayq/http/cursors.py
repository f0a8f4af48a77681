"""Where a list goes on, as one opaque word: the place, and the question it belongs to."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Final

import msgspec

from delayq.core.browsing import IN_ORDER
from delayq.core.states import State
from delayq.http.bodies import invalid
from delayq.http.problems import Refused

_QUEUE: Final = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"
_ENTRY: Final = re.compile(rf"{_QUEUE} (?:#[0-9]{{1,3}} )?(?:[0-9]{{1,20}}-[0-9]{{1,20}})?")
_PLACE: Final = re.compile(rf"[0-9]{{1,16}} [\x21-\x7e]{{1,255}} {_QUEUE}")


class Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`question` is a hash of the filters; `after` is where the list of one state of one queue goes on (`browse`)."""

    question: str
    queue: str
    state: State
    after: str


def question_of(*filters: object) -> str:
    """What tells one question from another."""
    return hashlib.sha256(repr(filters).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def write(cursor: Cursor) -> str:
    """The cursor as a word that a URL can carry."""
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def read(word: str, question: str) -> Cursor | None:
    """The cursor; None for ''. Raises `Refused` for one that was not made here, or for another question."""
    if not word:
        return None
    try:
        raw = base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True)
        cursor = msgspec.json.decode(raw, type=Cursor)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise Refused(invalid("?cursor", "It is none that this API gave")) from None
    if cursor.question != question:
        raise Refused(invalid("?cursor", "It belongs to a list with other filters")) from None
    form = _PLACE if cursor.state in IN_ORDER else _ENTRY
    if cursor.after and not form.fullmatch(cursor.after):
        raise Refused(invalid("?cursor", "It is none that this API gave"))
    return cursor
