"""Jobs that tests declare are forgotten afterwards, and go to a Redis of the run."""

from collections.abc import Iterator

import pytest
import redis
from pydantic import SecretStr

from delayq import DelayQ, Manager, Settings, set_manager
from delayq.jobs.registry import registry
from delayq.settings.connections import Route


@pytest.fixture(autouse=True)
def forgotten_jobs() -> Iterator[None]:
    """Forget the jobs that a test declares."""
    handlers, classes = dict(registry._handlers), dict(registry._classes)
    yield
    registry._handlers, registry._classes, registry._middleware = handlers, classes, []
    registry._ready.clear()


@pytest.fixture
def manager(url: str, server: redis.Redis) -> Iterator[Manager]:
    """The manager of the program, with the Redis of the run."""
    manager = Manager(Settings(url=SecretStr(url), prefix="test", routes={"routed.*": Route(queue="elsewhere")}))
    set_manager(manager)
    yield manager
    set_manager(None)
    manager.close()


@pytest.fixture
def sent(manager: Manager) -> DelayQ:
    """A client that sees what was sent."""
    return manager.connection().client
