"""The warning for a Dispatch that was never sent. It corresponds to Python's warning for unawaited coroutines."""

import os
import sys
import warnings


class Unsent:
    """Belongs to one Dispatch.

    If `is_used` is still False when this object is garbage-collected, Python issues a RuntimeWarning.
    """

    __slots__ = ("_job_name", "_process_id", "is_used")

    def __init__(self, job_name: str) -> None:
        self.is_used = False
        self._job_name = job_name
        self._process_id = os.getpid()

    def __del__(self) -> None:
        if not self.is_used and self._process_id == os.getpid() and not sys.is_finalizing():
            warnings.warn(
                f"A Dispatch of the job {self._job_name!r} was never sent. Call .dispatch() or await .adispatch().",
                RuntimeWarning,
                stacklevel=2,
            )
