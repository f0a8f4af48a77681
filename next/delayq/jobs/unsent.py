"""A warning for a dispatch that was made and never sent, as Python has one for a coroutine that was never awaited."""

import os
import sys
import warnings


class Unsent:
    """Belongs to one dispatch. When it is garbage and `is_used` is false, a RuntimeWarning names the call to make."""

    __slots__ = ("_job_name", "_process_id", "is_used")

    def __init__(self, job_name: str) -> None:
        self.is_used = False
        self._job_name = job_name
        self._process_id = os.getpid()

    def __del__(self) -> None:
        if not self.is_used and self._process_id == os.getpid() and not sys.is_finalizing():
            warnings.warn(
                f"A dispatch of the job {self._job_name!r} was made and never sent. "
                "End it with .dispatch() or await .adispatch().",
                RuntimeWarning,
                stacklevel=2,
            )
