"""The stored results of completed jobs with a retention: JSON, or a marker with the reason why the result was not kept.

A result is kept if JSON can carry it exactly, in at most 256 KiB. Otherwise the job becomes completed too, but a marker
is stored instead of the result.
"""

import logging
from typing import Any, Final

import msgspec

from delayq.core.envelope import encode_data
from delayq.core.errors import InvalidInput, ResultLost

logger: Final = logging.getLogger("delayq.jobs")

LIMIT: Final = 256 * 1024
MARKER: Final = "delayq-result-lost"
"""The only key of a marker. Its value is the reason."""


def encode_result(result: object, *, job_id: str) -> bytes:
    """Return the JSON of a handler's result. If the result cannot be kept, log the reason and return a marker."""
    if result is None:
        return b"null"
    try:
        if isinstance(result, bytes | bytearray | memoryview):
            raise InvalidInput("The result is a bytes value, which JSON cannot carry.")
        return bytes(encode_data(result, LIMIT))
    except InvalidInput as error:
        reason = error.message.replace("The payload", "The result")
        logger.warning("job %s: the result was not kept: %s", job_id, reason)
        return msgspec.json.encode({MARKER: reason})


def why_lost(result: object) -> str:
    """Return the reason of a marker, or '' for a real result."""
    if isinstance(result, dict) and result.keys() == {MARKER}:
        return str(result[MARKER])
    return ""


def read_result(result: Any, *, job_id: str) -> Any:
    """Return a stored result; raises ResultLost for a marker."""
    if reason := why_lost(result):
        raise ResultLost(
            f"The job {job_id!r} is done, but its result was not kept: {reason}",
            hint="Return a value that JSON can carry, or store the value elsewhere and return its location.",
        )
    return result
