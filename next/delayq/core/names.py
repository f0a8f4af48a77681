"""The grammar of names: queues, jobs, ids, hosts.

queue   [A-Za-z0-9][A-Za-z0-9._:-]{0,127}   it stands inside the hash tag of its keys: no braces, and no '#'
job     printable characters without white space, 1 to 255 bytes of UTF-8
id      [\\x21-\\x7e]{1,255}, so an id has as many bytes as characters
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from delayq.core.display import shown
from delayq.core.errors import InvalidInput

LOST_JOB: Final = "delayq.lost"
"""The name in the stub of a job whose payload is lost."""

_QUEUE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
MAX_ID_BYTES: Final = 255

_ID: Final = re.compile(r"[\x21-\x7e]{1,255}")
_JOB: Final = re.compile(r"[^ ]{1,255}")


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
        hint="Use 1 to 255 bytes of printable characters without white space, such as order.close.",
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


@lru_cache(maxsize=1024)
def _is_job_name(name: str) -> bool:
    return _JOB.fullmatch(name) is not None and name.isprintable() and len(name.encode()) <= 255
