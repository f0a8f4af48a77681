"""The place where tests step between every client of this process and its Redis. Only `delayq.testing` uses it.

Clients, managers and command line actions share it, whether they were made before or after: a client that a module
makes when it is imported obeys as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from delayq.core.options import Options
from delayq.core.spec import Prepared
from delayq.core.states import OnConflict
from delayq.core.views import JobRef

if TYPE_CHECKING:
    from delayq.redis.connect import Connector


class Interceptor(Protocol):
    """What a fake or a virtual clock does with the calls of clients."""

    def owns(self, asked: Connector) -> bool:
        """Whether `asked` leads to a server of the test itself."""

    def instead(self, asked: Connector) -> Connector | None:
        """The connections to use in the place of `asked`; None leaves it to the next interceptor. May raise."""

    def take(self, job: Prepared, on_conflict: OnConflict, options: Options) -> JobRef | None:
        """The answer to a job that is not to be sent; None when it is to be sent."""

    def clock_ms(self) -> int | None:
        """The time that scripts are told; None: the server's own."""


active: list[Interceptor] = []
"""The interceptors of this process, the first that is asked last; empty outside of tests."""


@contextmanager
def intercepting(interceptor: Interceptor) -> Iterator[None]:
    """Let `interceptor` stand between clients and servers inside the block, before those that do already."""
    active.append(interceptor)
    try:
        yield
    finally:
        active.remove(interceptor)


def connector_for(asked: Connector) -> Connector:
    """The connections to use where `asked` was asked for. Raises what an interceptor raises to refuse the call."""
    if not any(one.owns(asked) for one in active):
        for one in reversed(active):
            if (instead := one.instead(asked)) is not None:
                return instead
    return asked


def taken(jobs: Sequence[Prepared], on_conflict: OnConflict, options: Options) -> list[JobRef | None]:
    """For each job the answer of the interceptor that took it; None for one that is to be sent."""
    return [_taken(job, on_conflict, options) for job in jobs]


def _taken(job: Prepared, on_conflict: OnConflict, options: Options) -> JobRef | None:
    for one in reversed(active):
        if (ref := one.take(job, on_conflict, options)) is not None:
            return ref
    return None


def now_ms() -> int | None:
    """The time that scripts are told; None: the server's own, as always outside of tests."""
    return next((told for one in reversed(active) if (told := one.clock_ms()) is not None), None)
