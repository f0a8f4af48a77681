"""Error sentences for the command line: flags replace the names of Python options."""

import re
from typing import Final

from delayq.core.errors import DelayqError

_FLAGS: Final = {
    "at": "--at",
    "app": "--app",
    "backoff": "--backoff",
    "config": "--config",
    "connection": "--connection",
    "deadline": "--deadline",
    "delay": "--in",
    "duration": "--for",
    "fold": "--fold",
    "grace": "--grace",
    "lease": "--lease",
    "max_time": "--max-time",
    "on_conflict": "--on-conflict",
    "older": "--older",
    "prefix": "--prefix",
    "queue": "--queue",
    "queues": "--queue",
    "rate": "--rate",
    "rest": "--rest",
    "retention": "--retention",
    "shards": "--shards",
    "signature": "--signature",
    "since": "--since",
    "sleep": "--sleep",
    "span": "--span",
    "spans": "--spans",
    "stop_when_empty_for": "--stop-when-empty-for",
    "timeout": "--timeout",
    "tries": "--tries",
    "tz": "--tz",
    "unique": "--unique",
    "until": "--until",
    "url": "--url",
    "wait": "--wait",
    "window": "--unique-for",
    "waiting_for_code": "--waiting-for-code",
}
"""The flag for each `field` of an error. In a message, a field is replaced by its flag if the field is the first
word, or if `=` follows the field."""

_FIELD: Final = "|".join(_FLAGS)
_NAMED: Final = re.compile(rf"""'[^']*'|"[^"]*"|^({_FIELD})\b=?|\b({_FIELD})=""")


def sentence_of(error: DelayqError) -> str:
    """Return the message and the hint of an error, with flags. Quoted values stay unchanged."""
    return _NAMED.sub(_with_flag, str(error))


def _with_flag(found: re.Match[str]) -> str:
    field = found[1] or found[2]
    if field is None:
        return found[0]
    is_with_value = found[0].endswith("=") and found.string[found.end() :][:1] not in ("", " ", ".", ",")
    return _FLAGS[field] + (" " if is_with_value else "")
