"""The manager of a program that names a server on which nothing listens."""

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from delayq import Manager, Settings, set_manager
from tests.jobs.conftest import forgotten_jobs

__all__ = ["forgotten_jobs"]


@pytest.fixture
def elsewhere() -> Iterator[Manager]:
    manager = Manager(Settings(url=SecretStr("redis://127.0.0.1:1/0"), prefix="kit"))
    set_manager(manager)
    yield manager
    set_manager(None)
    manager.close()
