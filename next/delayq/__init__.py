"""delayq, second edition: a delayq that proves the architecture."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delayq.client import AsyncDelayQ as AsyncDelayQ
    from delayq.client import DelayQ as DelayQ
    from delayq.core.job_spec import JobSpec as JobSpec
    from delayq.core.outcome import Fail as Fail
    from delayq.core.outcome import Retry as Retry
    from delayq.jobs.function import job as job

_PLACES = {
    "AsyncDelayQ": "delayq.client",
    "DelayQ": "delayq.client",
    "JobSpec": "delayq.core.job_spec",
    "Fail": "delayq.core.outcome",
    "Retry": "delayq.core.outcome",
    "job": "delayq.jobs.function",
}

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import delayq` stays cheap."""
    if name not in _PLACES:
        raise AttributeError(f"module 'delayq' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
