"""What becomes of a job whose attempt raised: a value, decided in one place, without I/O."""

import traceback
from typing import Final

import msgspec

from delayq.core.backoff import Backoff
from delayq.core.times import Duration, to_ms

MAX_MESSAGE: Final = 4_000
MAX_TRACEBACK: Final = 16_000


class JobSignal(Exception):
    """What a handler raises to choose the outcome itself."""


class Retry(JobSignal):
    """Try again after `delay`. The attempt counts."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"retry in {delay}")
        self.delay_ms = to_ms(delay)


class Fail(JobSignal):
    """Give the job up now, whatever tries are left."""


class RunAgain(msgspec.Struct, frozen=True, gc=False):
    """Run the job again after `delay_ms`; `attempts` are counted so far."""

    delay_ms: int
    attempts: int
    failure: bytes


class GiveUp(msgspec.Struct, frozen=True, gc=False):
    """Put the job with the failed ones; `attempts` are counted so far."""

    attempts: int
    failure: bytes


def decide(error: BaseException, *, attempts: int, tries: int, backoff: Backoff) -> RunAgain | GiveUp:
    """Decide what follows an attempt that raised.

    `attempts` counts this attempt too; `tries` is how many are allowed.
    """
    failure = describe(error)
    if isinstance(error, Fail) or attempts >= tries:
        return GiveUp(attempts, failure)
    delay_ms = error.delay_ms if isinstance(error, Retry) else backoff(attempts)
    return RunAgain(delay_ms, attempts, failure)


def describe(error: BaseException) -> bytes:
    """Return the failure as the JSON that is kept beside the job. Long texts are cut."""
    lines = traceback.format_exception(error)
    record = {
        "type": type(error).__qualname__[:200],
        "message": str(error)[:MAX_MESSAGE],
        "traceback": "".join(lines)[-MAX_TRACEBACK:],
    }
    return msgspec.json.encode(record)
