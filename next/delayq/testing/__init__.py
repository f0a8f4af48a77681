"""Helpers for the tests of an application: record jobs, run one attempt, or run jobs on a clock that the test moves.

The pytest plugin offers `faking` and `travelling` as the fixtures `delayq_fake` and `delayq_travel`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delayq.core.outcome import Done as Done
    from delayq.core.outcome import GiveUp as GiveUp
    from delayq.core.outcome import RunAgain as RunAgain
    from delayq.testing.fake import Fake as Fake
    from delayq.testing.fake import faking as faking
    from delayq.testing.recorded import FakeBatch as FakeBatch
    from delayq.testing.recorded import FakeJob as FakeJob
    from delayq.testing.run import arun_job as arun_job
    from delayq.testing.run import run_job as run_job
    from delayq.testing.travel import Travel as Travel
    from delayq.testing.travel import travelling as travelling
    from delayq.testing.travelled_attempts import Attempted as Attempted

_MODULES: Final = {
    "core.outcome": "Done GiveUp RunAgain",
    "testing.fake": "Fake faking",
    "testing.recorded": "FakeBatch FakeJob",
    "testing.run": "arun_job run_job",
    "testing.travel": "Travel travelling",
    "testing.travelled_attempts": "Attempted",
}
_PLACES: Final = {name: f"delayq.{module}" for module, names in _MODULES.items() for name in names.split()}

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that the pytest plugin costs other test runs nothing."""
    if name not in _PLACES:
        raise AttributeError(f"module 'delayq.testing' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
