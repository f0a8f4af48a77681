"""The pytest plugin: fixtures for the tests of programs that use delayq. `-p no:delayq` leaves it out.

    delayq_fake      writes down what is dispatched instead of sending it: `delayq.testing.fake`
    delayq_travel    a virtual clock on a private server: `delayq.testing.travel`
    delayq_server    that server, one for the session, started when a test first needs it

pytest reads this file at every start, so it imports nothing of delayq before a fixture is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from delayq.redis.connect import Connector
    from delayq.testing.fake import Fake
    from delayq.testing.travel import Travel


@pytest.fixture
def delayq_fake() -> Iterator[Fake]:
    """Nothing is sent; ask this what would have been. `only` and `all_but` let some of it pass."""
    from delayq.testing.fake import faking

    with faking() as fake:
        yield fake


@pytest.fixture(scope="session")
def delayq_server() -> Iterator[Connector]:
    """A server that only the tests of this process use."""
    from delayq.testing.private_server import private_server

    with private_server() as server:
        yield server


@pytest.fixture
def delayq_travel(delayq_server: Connector) -> Iterator[Travel]:
    """`delayq_travel("15m")` lets time pass and runs what falls due, on a server that is empty for each test."""
    from delayq.testing.travel import travelling

    with travelling(delayq_server) as travel:
        yield travel
