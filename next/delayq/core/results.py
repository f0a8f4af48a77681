"""The result of a job, as it is kept with a job that has a retention: JSON, or a marker that says why there is none.

The job is done either way. A result is kept when JSON carries it exactly, in at most 256 KiB.
"""

import logging
from typing import Any, Final

import msgspec

from delayq.core.envelope import encode_data
from delayq.core.errors import InvalidInput, ResultLost

logger: Final = logging.getLogger("delayq.jobs")

LIMIT: Final = 256 * 1024
MARKER: Final = "delayq-result-lost"
"""The only member of a marker; its value is the reason."""


def encode_result(result: object, *, job_id: str) -> bytes:
    """Return the JSON of what a handler returned. For what cannot be kept it is a marker, and a line in the log."""
    if result is None:
        return b"null"
    try:
        if isinstance(result, bytes | bytearray | memoryview):
            raise InvalidInput("The result is bytes, which JSON cannot carry.")
        return bytes(encode_data(result, LIMIT))
    except InvalidInput as error:
        reason = error.message.replace("The payload", "The result")
        logger.warning("job %s: its result is not kept: %s", job_id, reason)
        return msgspec.json.encode({MARKER: reason})


def why_lost(result: object) -> str:
    """Return why a stored result is a marker; '' for a result."""
    if isinstance(result, dict) and result.keys() == {MARKER}:
        return str(result[MARKER])
    return ""


def read_result(result: Any, *, job_id: str) -> Any:
    """Return a stored result; raises ResultLost for a marker."""
    if reason := why_lost(result):
        raise ResultLost(
            f"The job {job_id!r} is done, but its result was not kept: {reason}",
            hint="Return what JSON can carry, or store it elsewhere and return where.",
        )
    return result
