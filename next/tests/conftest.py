"""A private Redis server for the run, and a prefix of its own for every test."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import AsyncDelayQ, AsyncJobRef, DelayQ
from delayq.cli.waiting import LOGGER
from delayq.core.listeners import listeners
from delayq.manager import set_manager
from delayq.redis.keys import Keys
from tests.support.embedded import kill_all
from tests.support.ordering import in_order
from tests.support.queue import QueueOnServer
from tests.support.servers import private_server, server_program


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = in_order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from tests.support.scheduling import Scheduling

    return Scheduling(config, log)


@pytest.fixture(autouse=True)
def no_embedded_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test start a server by accident; `project` is for those that mean to."""
    monkeypatch.setenv("DELAYQ_EMBEDDED", "never")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Take back what a command set up for the process that it has to itself otherwise."""
    loggers = [logging.getLogger("delayq"), logging.getLogger(LOGGER)]
    before = [(list(logger.handlers), logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def no_manager_of_another_test() -> Iterator[None]:
    """Forget the manager that `work` and `schedule --app` share with the application, because it has a url."""
    yield
    set_manager(None)


@pytest.fixture
def project(no_embedded_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory of a project without a url. The servers that the test starts end with it."""
    folder = tmp_path / "my shop"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    monkeypatch.chdir(folder)
    for name in ("URL", "EMBEDDED", "DATA_DIR"):
        monkeypatch.delenv(f"DELAYQ_{name}", raising=False)
    monkeypatch.setenv("DELAYQ_REDIS_SERVER", server_program())
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data home"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    yield folder
    kill_all(tmp_path)


@pytest.fixture
def no_listeners() -> Iterator[None]:
    """Begin without listeners, and forget those of the test afterwards."""
    before = dict(listeners)
    listeners.clear()
    yield
    listeners.clear()
    listeners.update(before)


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The address of a server that only this run uses."""
    with private_server() as url:
        yield url


@pytest.fixture(scope="session")
def plain_client(url: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(url, decode_responses=True, encoding_errors="backslashreplace", protocol=2)
    yield client
    client.close()


@pytest.fixture
def server(plain_client: redis.Redis) -> Iterator[redis.Redis]:
    """A plain client, to look at what is stored. The server is empty before the test, and afterwards."""
    plain_client.flushall()
    yield plain_client
    plain_client.flushall()


@pytest.fixture
def keys() -> Keys:
    return Keys("test")


@pytest.fixture
def queue(url: str, server: redis.Redis, keys: Keys) -> Iterator[QueueOnServer]:
    """A queue whose scripts are called with an explicit time. At the end of each test it must be whole."""
    queue = QueueOnServer(url, server, keys)
    yield queue
    queue.check_whole()


@pytest.fixture
def damaged_queue(url: str, server: redis.Redis, keys: Keys) -> QueueOnServer:
    """The same for a test that leaves damage on purpose."""
    return QueueOnServer(url, server, keys)


@pytest.fixture(params=["blocking", "asyncio"])
def client(request: pytest.FixtureRequest, url: str, server: redis.Redis) -> Iterator[Any]:
    """Both clients, one after the other. The awaited one is driven, so that a test is written once for both."""
    if request.param == "blocking":
        with DelayQ(url, prefix="test") as blocking_client:
            yield blocking_client
        return
    with asyncio.Runner() as runner:
        awaited = AsyncDelayQ(url, prefix="test")
        yield _Driven(awaited, runner)
        runner.run(awaited.close())


class _Driven:
    """Runs each method of an asyncio client, or of its references, to its end."""

    def __init__(self, awaited: AsyncDelayQ | AsyncJobRef, runner: asyncio.Runner) -> None:
        self._awaited = awaited
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._awaited, name)
        if inspect.isasyncgenfunction(member):
            return lambda *args, **kwargs: self._runner.run(_list_of(member(*args, **kwargs)))
        if inspect.iscoroutinefunction(member):
            return lambda *args, **kwargs: self._driven(self._runner.run(member(*args, **kwargs)))
        return member

    def _driven(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._driven(one) for one in value]
        return _Driven(value, self._runner) if isinstance(value, AsyncJobRef) else value


async def _list_of(values: AsyncIterator[Any]) -> list[Any]:
    return [value async for value in values]
