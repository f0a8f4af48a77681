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
_PAIRS: Final = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS: Final = range(120, -1, -10)


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


def check_ids(job_ids: str | Iterable[str]) -> list[str]:
    """Return the ids of jobs as a list; a text is one id. Raises InvalidInput."""
    return [check_id(job_ids)] if isinstance(job_ids, str | bytes) else [check_id(job_id) for job_id in job_ids]


def new_id() -> str:
    """Make a UUIDv7 in 26 lower-case base32hex characters. Ids of later milliseconds sort later.

    The client makes the id before the first send, so a call that is sent again is the same job.
    """
    milliseconds = time.time_ns() // 1_000_000
    noise = int.from_bytes(os.urandom(10))
    version_and_noise = 0x7000 | (noise >> 68)
    variant_and_noise = 0x8000_0000_0000_0000 | (noise & 0x3FFF_FFFF_FFFF_FFFF)
    value = ((milliseconds << 80) | (version_and_noise << 64) | variant_and_noise) << 2
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in _SHIFTS])


@lru_cache(maxsize=1024)
def _is_job_name(name: str) -> bool:
    return _JOB.fullmatch(name) is not None and name.isprintable()
