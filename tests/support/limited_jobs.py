"""Jobs with a limit, for workers that are killed. Loaded by `supervised`."""

from __future__ import annotations

import os
import signal
import time

from delayq import Concurrency, JobContext, job
from tests.support.supervised_jobs import note

LIMIT = "api"


@job("limited", middleware=[Concurrency(LIMIT, 1, release_after="100ms")])
def limited(context: JobContext, how: str = "") -> None:
    """The first time it kills its process, or hangs until somebody else does."""
    note("start", context.id)
    if how == "kill" and not context.recoveries:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang" and not context.recoveries:
        time.sleep(120)
    note("end", context.id)
