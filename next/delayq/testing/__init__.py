"""Helpers for the tests of an application: record jobs, or run one attempt.

The pytest plugin offers `faking` as the fixture `delayq_fake`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delayq.testing.fake import Fake as Fake
    from delayq.testing.fake import faking as faking
    from delayq.testing.recorded import FakeBatch as FakeBatch
    from delayq.testing.recorded import FakeJob as FakeJob
    from delayq.testing.run import arun_job as arun_job
    from delayq.testing.run import run_job as run_job

_MODULES: Final = {
    "fake": "Fake faking",
    "recorded": "FakeBatch FakeJob",
    "run": "arun_job run_job",
}
_PLACES: Final = {name: f"delayq.testing.{module}" for module, names in _MODULES.items() for name in names.split()}

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that the pytest plugin costs other test runs nothing."""
    if name not in _PLACES:
        raise AttributeError(f"module 'delayq.testing' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
