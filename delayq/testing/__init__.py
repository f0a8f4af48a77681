"""For the tests of programs that use delayq: a fake that records, one attempt without a server, a clock that jumps.

    from delayq.testing import run_job

With pytest the fixtures `delayq_fake` and `delayq_travel` are there by themselves; without it, `faking` and
`travelling` are context managers. Names are imported when they are first used: pytest reads the plugin in this
package at every start, also for suites that have nothing to do with delayq.
"""

from __future__ import annotations

import typing

from delayq.core.lazy import importer as _importer
from delayq.core.lazy import lister as _lister

if typing.TYPE_CHECKING:
    from delayq.core.outcome import Ack, GiveUp, Outcome, Release
    from delayq.testing.attempted import Attempted
    from delayq.testing.attempts import arun_job, run_job
    from delayq.testing.fake import Fake, faking
    from delayq.testing.pushed import Batched, Pushed
    from delayq.testing.travel import Travel, travelling

__all__ = [
    "Ack",
    "Attempted",
    "Batched",
    "Fake",
    "GiveUp",
    "Outcome",
    "Pushed",
    "Release",
    "Travel",
    "arun_job",
    "faking",
    "run_job",
    "travelling",
]

_HOMES = {
    "delayq.core.outcome": ("Ack", "GiveUp", "Outcome", "Release"),
    "delayq.testing.attempts": ("arun_job", "run_job"),
    "delayq.testing.fake": ("Fake", "faking"),
    "delayq.testing.pushed": ("Batched", "Pushed"),
    "delayq.testing.travel": ("Travel", "travelling"),
    "delayq.testing.attempted": ("Attempted",),
}

if not typing.TYPE_CHECKING:  # a type checker would otherwise believe in every name
    __getattr__ = _importer(__name__, _HOMES)
    __dir__ = _lister(__name__)
