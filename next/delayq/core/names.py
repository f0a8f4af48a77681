"""Names of queues and jobs, and new job ids."""

import os
import re
import time
from functools import lru_cache
from typing import Final

from delayq.core.errors import InvalidInput

QUEUE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
JOB_ID: Final = re.compile(r"[\x21-\x7e]{1,255}")

_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuv"
_PAIRS: Final = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS: Final = range(120, -1, -10)


@lru_cache(maxsize=1024)
def check_queue(name: str) -> str:
    """Return the name of a queue, or raise InvalidInput when it breaks the grammar."""
    if QUEUE.fullmatch(name) is None:
        raise InvalidInput(
            f"queue {name!r} is no valid name: use letters, digits and . _ : -, at most 128, first a letter or digit",
            field="queue",
        )
    return name


def check_id(job_id: str) -> str:
    """Return the id of a job, or raise InvalidInput when it breaks the grammar."""
    if JOB_ID.fullmatch(job_id) is None:
        raise InvalidInput(f"id {job_id!r} is no valid id: use 1 to 255 printable ASCII characters", field="id")
    return job_id


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
