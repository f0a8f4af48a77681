"""Generates job ids: UUIDv7 in 26 base32hex characters. `derived_id` makes checksums in 32 hex characters instead.

The head of a UUIDv7 is its time, in 10 characters. The tail, in 16 characters, is random except for the fixed bits of a
UUIDv7.
"""

import hashlib
import os
import time
from functools import lru_cache
from typing import Final

_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuv"
_HEAD_SHIFTS: Final = range(45, -1, -5)
_TAIL_LETTERS: Final = 16
_TAILS_AT_ONCE: Final = 256
_FIXED_BITS: Final = {0: "opqrstuv", 2: "13579bdfhjlnprtv", 3: "0123456789abcdef", 15: "048cgkos"}
"""Positions in a tail that contain fixed bits, with the characters that are allowed there: the last two bits of the
version, the two bits of the variant, and the zero bits at the end.
"""


def new_id() -> str:
    """Return a new UUIDv7 in 26 lower-case base32hex characters. Ids of later milliseconds sort later.

    The client makes the id before it first sends a job, so that a resent call refers to the same job.
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
"""Prepared tails. They are made in batches, because one call of `os.urandom` costs more than the rest of an id."""
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_tails.clear)  # so that two processes never use the same tail


@lru_cache(maxsize=1)
def _head(milliseconds: int) -> str:
    """Return the characters of the time (48 bits) and of the first two bits of the version (0b01)."""
    value = milliseconds << 2 | 0b01
    return "".join([_ALPHABET[(value >> shift) & 31] for shift in _HEAD_SHIFTS])


def _make_tails() -> list[str]:
    """Return the random endings of a batch of ids."""
    noise = os.urandom(_TAIL_LETTERS * _TAILS_AT_ONCE)
    letters = bytearray(noise.translate(_one_of(_ALPHABET)))
    for place, allowed in _FIXED_BITS.items():
        letters[place::_TAIL_LETTERS] = noise[place::_TAIL_LETTERS].translate(_one_of(allowed))
    text = letters.decode()
    return [text[start : start + _TAIL_LETTERS] for start in range(0, len(text), _TAIL_LETTERS)]


def _one_of(letters: str) -> bytes:
    """Return the table that maps each random byte to one of 8, 16 or 32 characters, all equally likely."""
    return letters.encode() * (256 // len(letters))


def derived_id(job_id: str, position: int) -> str:
    """Return the id of a job that the job `job_id` adds to its chain or batch.

    `position`: how many jobs the job has added before. The same job and position always give the same id. So a job that
    is run again adds no job twice.
    """
    return hashlib.blake2b(f"{job_id}\0{position}".encode(), digest_size=16).hexdigest()
