"""Runs commands in this process, on the private server."""

import logging
from collections.abc import Callable, Iterator

import pytest
import redis
from typer.testing import CliRunner, Result

from delayq.cli import main as cli
from delayq.cli.waiting import LOGGER
from delayq.manager import set_manager
from delayq.redis import session
from delayq.redis.connection.factory import make_executor

Run = Callable[..., Result]
Tell = Callable[..., tuple[int, str]]


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
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands give up a server that is away after 0.2 s, and wait 50 ms for a confirmation."""
    monkeypatch.setattr(make_executor, "__kwdefaults__", {**(make_executor.__kwdefaults__ or {}), "retry_timeout": 0.2})
    monkeypatch.setattr(session, "CONFIRM_MS", 50)


@pytest.fixture
def run(url: str, server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on the private server."""
    monkeypatch.setenv("DELAYQ_URL", url)
    return lambda *words: CliRunner().invoke(cli.app, words)


@pytest.fixture
def tell(url: str, server: redis.Redis, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tell:
    """Run a command as the shell does, and return its exit code and what it told on stderr."""
    monkeypatch.setenv("DELAYQ_URL", url)

    def run_main(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["delayq", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return int(end.value.code or 0), capsys.readouterr().err

    return run_main
