"""Distributes tests over the workers of a run."""

from xdist.scheduler import LoadScopeScheduling

from tests.support.ordering import TOPOLOGY


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each test to the next free worker, but all tests of a file with several Redis servers to one worker.

    Each file starts its servers once for each worker that runs its tests, which takes seconds.
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if TOPOLOGY in nodeid else nodeid
