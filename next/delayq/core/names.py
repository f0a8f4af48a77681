"""Names of queues and jobs, and new job ids.

queue   [A-Za-z0-9][A-Za-z0-9._:-]{0,127}   it stands inside the hash tag of its keys: no braces, and no '#'
job     1 to 255 printable characters, no white space
id      [\\x21-\\x7e]{1,255}
"""

import os
import re
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from delayq.core.display import shown
from delayq.core.errors import InvalidInput

LOST: Final = "delayq.lost"
"""The name in the stub of a job whose payload is lost."""

_QUEUE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_ID: Final = re.compile(r"[\x21-\x7e]{1,255}")
_JOB: Final = re.compile(r"[^ ]{1,255}")

_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuv"
_HEAD_SHIFTS: Final = range(45, -1, -5)
_TAIL_LETTERS: Final = 16
_TAILS_AT_ONCE: Final = 256
_FIXED_BITS: Final = {0: "opqrstuv", 2: "13579bdfhjlnprtv", 3: "0123456789abcdef", 15: "048cgkos"}
"""The letters of a tail with fixed bits: the rest of the version, the two of the variant, and the padding of zeros."""


@lru_cache(maxsize=1024)
def is_queue(name: str) -> bool:
    """Whether a text is the name of a queue."""
    return _QUEUE.fullmatch(name) is not None


def check_queue(name: str) -> str:
    """Return the name of a queue; raises InvalidInput when it breaks the grammar."""
    if isinstance(name, str) and is_queue(name):
        return str.__str__(name)
    raise InvalidInput(
        f"The queue {shown(name)} has no valid name.",
        hint="Use 1 to 128 of A-Z a-z 0-9 . _ : - and begin with a letter or digit.",
        field="queue",
    )


def check_job_name(name: str) -> str:
    """Return the name of a job; raises InvalidInput when it breaks the grammar."""
    if isinstance(name, str) and _is_job_name(name):
        return str.__str__(name)
    raise InvalidInput(
        f"The job name {shown(name)} is not valid.",
        hint="Use 1 to 255 printable characters without white space, such as order.close.",
        field="name",
    )


def check_id(job_id: str) -> str:
    """Return the id of a job; raises InvalidInput when it breaks the grammar."""
    if isinstance(job_id, str) and _ID.fullmatch(job_id):
        return str.__str__(job_id)
    raise InvalidInput(
        f"The id {shown(job_id)} is not valid.",
        hint="Use 1 to 255 printable ASCII characters without spaces, or leave the id out.",
        field="id",
    )


def check_host(name: str) -> str:
    """Return a name that stands for the host of a worker; raises InvalidInput when it breaks the grammar."""
    if is_queue(name) and ":" not in name:
        return name
    raise InvalidInput(
        f"The name {shown(name)} of the worker is not valid.",
        hint="Use 1 to 128 of A-Z a-z 0-9 . _ - and begin with a letter or digit.",
        field="name",
    )


def check_ids(job_ids: str | Iterable[str]) -> list[str]:
    """Return the ids of jobs as a list; a text is one id. Raises InvalidInput."""
    return [check_id(job_ids)] if isinstance(job_ids, str | bytes) else [check_id(job_id) for job_id in job_ids]


def new_id() -> str:
    """Make a UUIDv7 in 26 lower-case base32hex characters. Ids of later milliseconds sort later.

    The client makes the id before the first send, so a call that is sent again is the same job.
    """
    head = _head(time.time_ns() // 1_000_000)
    try:
        return head + _tails.pop()
    except IndexError:
        made = _make_tails()
        tail = made.pop()
        _tails.extend(made)
        return head + tail


_tails: Final[list[str]] = []
"""Made in advance, because each question to the system for noise costs more than the rest of an id."""
os.register_at_fork(after_in_child=_tails.clear)  # two processes never use the same ones


@lru_cache(maxsize=1)
def _head(milliseconds: int) -> str:
    """Return the time and the first two bits of the version, 0b01."""
    value = milliseconds << 2 | 0b01
    return "".join([_ALPHABET[(value >> shift) & 31] for shift in _HEAD_SHIFTS])


def _make_tails() -> list[str]:
    """Return all that follows the head, for many ids: noise, but for the fixed bits."""
    noise = os.urandom(_TAIL_LETTERS * _TAILS_AT_ONCE)
    letters = bytearray(noise.translate(_one_of(_ALPHABET)))
    for place, allowed in _FIXED_BITS.items():
        letters[place::_TAIL_LETTERS] = noise[place::_TAIL_LETTERS].translate(_one_of(allowed))
    text = letters.decode()
    return [text[start : start + _TAIL_LETTERS] for start in range(0, len(text), _TAIL_LETTERS)]


def _one_of(letters: str) -> bytes:
    """Return the table that turns a byte of noise into one of 8, 16 or 32 letters, each as likely as the others."""
    return letters.encode() * (256 // len(letters))


@lru_cache(maxsize=1024)
def _is_job_name(name: str) -> bool:
    return _JOB.fullmatch(name) is not None and name.isprintable()
