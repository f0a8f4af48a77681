"""Names of queues, names of jobs, ids: what they may hold, and how an id is made.

    queue   [A-Za-z0-9][A-Za-z0-9._:-]{0,127}     it stands inside a key's hash tag, so no braces and no '#'
    job     1 to 255 printable characters         of any language; no white space, nothing invisible
    id      [\\x21-\\x7e]{1,255}                    the caller's, or made here
    batch   0 to 255 characters                   its name is for people, and need not be its own

An id made here is a UUIDv7 in the base32hex of RFC 4648 (lower case, no padding): 26 characters that sort as
they were made, which keeps jobs that fall due in the same millisecond in the order of their schedule calls.
Any language reads it back with its own base32hex decoder.

                48 bits               4        12 bits        2         62 bits
    ┌──────────────────────────────┬──────┬────────────────┬────┬──────────────────────┐
    │ milliseconds since 1970      │ 0111 │ 4096ths of one │ 10 │ random               │
    └──────────────────────────────┴──────┴────────────────┴────┴──────────────────────┘
      the time, never the same twice in one thread                from the system
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from typing import Final

from delayq.core.errors import InvalidName
from delayq.core.shown import shown

LOST: Final = "delayq.lost"
"""The job name that a failed job has when its payload is lost: only its id was left."""

_QUEUE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_JOB_NAME: Final = re.compile(r"[^ ]{1,255}")
_ID: Final = re.compile(r"[\x21-\x7e]{1,255}")
_BATCH_NAME: Final = re.compile(r"[^\ud800-\udfff]{0,255}")
# 128 bits of a UUIDv7, version and all, as `new_id` writes them.
_OWN_ID: Final = re.compile(r"[0-9a-v]{9}[159dhlpt][o-v][0-9a-v]{15}")

_QUEUE_HINT: Final = "Use 1 to 128 of A-Z a-z 0-9 . _ : - and start with a letter or a digit."
_JOB_HINT: Final = "Use 1 to 255 printable characters without white space, such as order.close."
_BATCH_HINT: Final = "Use 1 to 255 characters that UTF-8 can write, or give it no name."
_ID_HINT: Final = "Use 1 to 255 printable ASCII characters without spaces, or leave the id out."


def check_queue(name: str) -> str:
    """`name` as plain text if it can name a queue; raises InvalidName otherwise."""
    if _matches(_QUEUE, name):
        return _plain(name)
    raise InvalidName(f"{shown(name)} cannot name a queue.", hint=_QUEUE_HINT)


def can_name_queue(name: str) -> bool:
    """Whether `check_queue` would let it pass."""
    return _matches(_QUEUE, name)


def check_job_name(name: str) -> str:
    """`name` as plain text if it can name a job; raises InvalidName otherwise.

    Printable is what Python calls so: a control character, a zero-width or direction mark, a lone surrogate
    and every space but U+0020 is not.
    """
    if _matches(_JOB_NAME, name) and name.isprintable():
        return _plain(name)
    raise InvalidName(f"{shown(name)} cannot name a job.", hint=_JOB_HINT)


def check_id(job_id: str) -> str:
    """`job_id` as plain text if it can identify a job; raises InvalidName otherwise."""
    if _matches(_ID, job_id):
        return _plain(job_id)
    raise InvalidName(f"{shown(job_id)} cannot be the id of a job.", hint=_ID_HINT)


_ONE: Final[tuple[type, ...]] = (str, bytes, bytearray)


def ids_of(job_ids: str | Iterable[str]) -> list[str]:
    """The ids of jobs that a call is given, as a list; a text is one id. Raises InvalidName for one that cannot be."""
    given: list[object] = [job_ids] if isinstance(job_ids, _ONE) else list(job_ids)
    for one in given:
        if isinstance(one, bytes | bytearray):
            text = bytes(one[:80])
            raise InvalidName(f"{text!r} is bytes, and the id of a job is text.", hint="Decode it: .decode().")
    return [check_id(one) for one in given]  # type: ignore[arg-type]  # it checks what it is given


def check_batch_id(batch_id: str) -> str:
    """As `check_id`, of a batch."""
    if _matches(_ID, batch_id):
        return _plain(batch_id)
    raise InvalidName(
        f"{shown(batch_id)} cannot be the id of a batch.",
        hint="It has 1 to 255 printable ASCII characters without spaces; delayq batch list shows those there are.",
    )


def check_batch_name(name: str) -> str:
    """`name` as plain text if a batch may be called so, for people; '' is no name. Raises InvalidName otherwise."""
    if _matches(_BATCH_NAME, name):
        return _plain(name)
    raise InvalidName(f"{shown(name)} cannot name a batch.", hint=_BATCH_HINT)


def new_id() -> str:
    """A new id: 26 characters, unlike every other, and later than those this thread made before it."""
    return _ids.make()


def made_here(job_id: str) -> bool:
    """Whether an id looks like one that `new_id` made, in any process."""
    return _OWN_ID.fullmatch(job_id) is not None


def made_at_ms(own_id: str) -> int:
    """When an id that `new_id` made was made, epoch ms."""
    return int(own_id, 32) >> 82  # 130 bits in 26 characters: 48 of time come first


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _plain(text: str) -> str:
    # A member of a `(str, Enum)` class formats as 'Queue.ORDERS', and would so end up in a key.
    return text if type(text) is str else str.__str__(text)


_DIGITS: Final = "0123456789abcdefghijklmnopqrstuv"
_PAIRS: Final = tuple(high + low for high in _DIGITS for low in _DIGITS)
# The 46th to the 65th bit are 4 characters, two tables of two: the last 3 bits of the milliseconds, the version (7) and
# 3 of the fraction; then 9 of the fraction and the first bit of the variant (1).
_VERSIONED: Final = tuple(_PAIRS[bits >> 3 << 7 | 0b0111 << 3 | bits & 7] for bits in range(64))
_FRACTION: Final = tuple(_PAIRS[bits << 1 | 1] for bits in range(512))
_TICKS_PER_MS: Final = 4096
_NS_PER_MS: Final = 1_000_000

# The 66th to the 128th bit are 13 characters: the variant's second bit (0) and 4 random ones, eleven times 5
# random ones, 3 random ones and the encoding's two zero bits. A table maps a random byte to such a character.
_TAIL: Final = 13
_TAILS_AT_ONCE: Final = 256
_FIRST: Final = bytes(ord(_DIGITS[byte & 0b01111]) for byte in range(256))
_MIDDLE: Final = bytes(ord(_DIGITS[byte & 0b11111]) for byte in range(256))
_LAST: Final = bytes(ord(_DIGITS[byte & 0b11100]) for byte in range(256))


class _Ids:
    """Makes ids. It keeps the last time used, and random ends drawn from the system in one go.

    There is no lock, so nothing waits: not in a signal handler that interrupts `make`, not in a child forked
    while another thread was in it. No id is made twice since each takes its random end with one atomic pop.
    Two threads that meet may get one and the same time; which of their ids is the later one was open anyway.
    """

    __slots__ = ("_head", "_last", "_tails")

    def __init__(self) -> None:
        self._last = 0
        self._head = (-1, "")
        self._tails: list[str] = []

    def part_from_parent(self) -> None:
        """In a forked child: drop the random ends that the parent holds too."""
        self._tails = []

    def make(self) -> str:
        ticks = time.time_ns() * _TICKS_PER_MS // _NS_PER_MS
        last = self._last
        if ticks <= last:  # a clock that stands still or steps back must not undo the order
            ticks = last + 1
        self._last = ticks
        head = self._head
        if head[0] != ticks >> 15:
            head = self._head = _head(ticks >> 15)
        try:
            tail = self._tails.pop()
        except IndexError:
            tail = self._refill()
        return f"{head[1]}{_VERSIONED[ticks >> 9 & 63]}{_FRACTION[ticks & 511]}{tail}"

    def _refill(self) -> str:
        """Draw random ends and return one of them; two threads may both come here, each adds its own."""
        raw = os.urandom(_TAIL * _TAILS_AT_ONCE)
        text = bytearray(raw.translate(_MIDDLE))
        text[0::_TAIL] = raw[0::_TAIL].translate(_FIRST)
        text[_TAIL - 1 :: _TAIL] = raw[_TAIL - 1 :: _TAIL].translate(_LAST)
        ends = text.decode("ascii")
        tails = [ends[at : at + _TAIL] for at in range(0, len(ends), _TAIL)]
        tail = tails.pop()
        self._tails.extend(tails)
        return tail


def _head(ticks: int) -> tuple[int, str]:
    """The first 9 characters, which hold for 8 ms, and the time they were made for."""
    return ticks, "".join(_DIGITS[ticks >> shift & 31] for shift in range(40, -5, -5))


# The one state of this module: order and uniqueness are promises of the whole process, not of some object in it.
_ids: Final = _Ids()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_ids.part_from_parent)
