"""The pytest plugin. It imports the rest of the package only when a test requests a fixture."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from delayq.testing.fake import Fake
    from delayq.testing.server import PrivateServer
    from delayq.testing.travel import Travel


@pytest.fixture
def delayq_fake() -> "Iterator[Fake]":
    """Record all jobs that the test sends, and send nothing; see delayq.testing.faking."""
    from delayq.testing.fake import faking

    with faking() as fake:
        yield fake


@pytest.fixture
def delayq_travel(_delayq_server: "PrivateServer") -> "Iterator[Travel]":
    """Run jobs on a clock that the test moves; see delayq.testing.travelling."""
    from delayq.testing.travel import travelling

    with travelling(server=_delayq_server) as travel:
        yield travel


@pytest.fixture(scope="session")
def _delayq_server() -> "Iterator[PrivateServer]":
    """Run the server of `delayq_travel`, one for each test run."""
    from delayq.testing.server import PrivateServer

    with PrivateServer() as server:
        yield server
