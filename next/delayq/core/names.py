"""The valid names of queues, jobs, ids and worker hosts.

queue   [A-Za-z0-9][A-Za-z0-9._:-]{0,127}   no braces and no '#', because the hash tags of Redis keys contain the name
job     printable characters without white space, 1 to 255 bytes of UTF-8
id      [\\x21-\\x7e]{1,255}
host    as a queue, without ':'
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from delayq.core.display import shown
from delayq.core.errors import InvalidInput

LOST_JOB: Final = "delayq.lost"
"""The job name in the envelope that replaces a lost payload."""

_QUEUE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
MAX_ID_BYTES: Final = 255
MAX_BATCH_ID_BYTES: Final = 200

_ID: Final = re.compile(r"[\x21-\x7e]{1,255}")
_JOB: Final = re.compile(r"[^ ]{1,255}")


@lru_cache(maxsize=1024)
def is_queue(name: str) -> bool:
    """Return True if `name` is a valid queue name."""
    return _QUEUE.fullmatch(name) is not None


def check_queue(name: str) -> str:
    """Return `name` if it is a valid queue name; raises InvalidInput otherwise."""
    if isinstance(name, str) and is_queue(name):
        return str.__str__(name)
    raise InvalidInput(
        f"The queue name {shown(name)} is not valid.",
        hint="Use 1 to 128 of the characters A-Z a-z 0-9 . _ : - and begin with a letter or digit.",
        field="queue",
    )


def check_job_name(name: str) -> str:
    """Return `name` if it is a valid job name; raises InvalidInput otherwise."""
    if isinstance(name, str) and _is_job_name(name):
        return str.__str__(name)
    raise InvalidInput(
        f"The job name {shown(name)} is not valid.",
        hint="Use 1 to 255 bytes of printable characters without white space, such as order.close.",
        field="name",
    )


def check_id(job_id: str) -> str:
    """Return `job_id` if it is a valid id; raises InvalidInput otherwise."""
    if isinstance(job_id, str) and _ID.fullmatch(job_id):
        return str.__str__(job_id)
    raise InvalidInput(
        f"The id {shown(job_id)} is not valid.",
        hint="Use 1 to 255 printable ASCII characters without spaces, or leave the id out.",
        field="id",
    )


def check_host(name: str) -> str:
    """Return `name` if a worker may use it in place of its host name; raises InvalidInput otherwise."""
    if is_queue(name) and ":" not in name:
        return name
    raise InvalidInput(
        f"The worker name {shown(name)} is not valid.",
        hint="Use 1 to 128 of the characters A-Z a-z 0-9 . _ - and begin with a letter or digit.",
        field="name",
    )


def check_ids(job_ids: str | Iterable[str]) -> list[str]:
    """Return one id or several ids as a list; raises InvalidInput for an invalid id."""
    return [check_id(job_ids)] if isinstance(job_ids, str | bytes) else [check_id(job_id) for job_id in job_ids]


@lru_cache(maxsize=1024)
def _is_job_name(name: str) -> bool:
    return _JOB.fullmatch(name) is not None and name.isprintable() and len(name.encode()) <= 255


def check_batch_id(batch_id: str) -> str:
    """Return `batch_id` if it is a valid id of a batch; raises InvalidInput otherwise.

    A batch id is shorter than a job id, because the ids of the members begin with the batch id.
    """
    if isinstance(batch_id, str) and _ID.fullmatch(batch_id) and len(batch_id) <= MAX_BATCH_ID_BYTES:
        return str.__str__(batch_id)
    raise InvalidInput(
        f"The id {shown(batch_id)} of a batch is not valid.",
        hint=f"Use 1 to {MAX_BATCH_ID_BYTES} printable ASCII characters without spaces.",
        field="id",
    )
