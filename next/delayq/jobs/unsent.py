"""The warning for a job, chain or batch that was never sent. It corresponds to Python's warning for unawaited
coroutines.
"""

import os
import sys
import warnings


class Unsent:
    """Belongs to one Dispatch, chain or batch. `what` names it in the warning.

    If `is_used` is still False when this object is garbage-collected, Python issues a RuntimeWarning, except in a
    forked process and while the interpreter exits.
    """

    __slots__ = ("_process_id", "_what", "is_used")

    def __init__(self, what: str) -> None:
        self.is_used = False
        self._what = what
        self._process_id = os.getpid()

    def __del__(self) -> None:
        if not self.is_used and self._process_id == os.getpid() and not sys.is_finalizing():
            warnings.warn(
                f"{self._what} was never sent. Call .dispatch() or await .adispatch().",
                RuntimeWarning,
                stacklevel=2,
            )
