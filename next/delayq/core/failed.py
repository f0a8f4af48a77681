"""The rate of bulk retries, and the error for a failed job without its payload."""

import re
from typing import Final

from delayq.core.display import shown
from delayq.core.errors import InvalidInput, PayloadLost
from delayq.core.views import JobInfo

_RATE: Final = re.compile(r"([1-9][0-9]{0,5})/([smh])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def no_payload(job: JobInfo, cannot: str) -> PayloadLost:
    """Return the error for a failed job without a readable envelope. `cannot`: what is impossible ('be retried')."""
    what = f"The payload of the job {job.id!r} is lost"
    if not job.is_lost:
        what = f"The envelope of the job {job.id!r} cannot be read"
    return PayloadLost(
        f"{what}, so the job cannot {cannot}.",
        hint=f"`delayq failed forget {job.id} --queue {job.queue}` deletes the job.",
    )


def spacing(rate: str | None) -> float:
    """Return the seconds between two retries at a rate such as '10/s', '600/m' or '5000/h'; 0 without a rate.

    Raises InvalidInput.
    """
    if rate is None:
        return 0.0
    match = _RATE.fullmatch(rate)
    if match is None:
        raise InvalidInput(f"rate {shown(rate)} is not a rate.", hint="Write 10/s, 600/m or 5000/h.", field="rate")
    return _SECONDS[match[2]] / int(match[1])
