"""The pytest plugin. It imports the rest of the package only when a test requests a fixture."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from delayq.testing.fake import Fake


@pytest.fixture
def delayq_fake() -> "Iterator[Fake]":
    """Record all jobs that the test sends, and send nothing; see delayq.testing.faking."""
    from delayq.testing.fake import faking

    with faking() as fake:
        yield fake
