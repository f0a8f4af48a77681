"""Drivers that other people bring: what is none is one sentence, where it comes in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from delayq.core.errors import BackendUnavailable, ConfigError
from delayq.drivers.null import NullConnection
from delayq.drivers.serving.connection import BrokerConnection
from delayq.manager import Manager
from delayq.settings import Settings
from tests.support import shelf


def manager_with(factory: Any) -> Manager:
    manager = Manager(Settings(connections={"mq": {"driver": "mine", "folder": "/nowhere"}}))
    manager.extend("mine", factory)
    return manager


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        (7, "The driver 'mine' (manager.extend) is 7, which cannot be called."),
        (lambda: None, "The driver 'mine' (manager.extend) does not take (name, settings, options)."),
    ],
    ids=["no function", "another signature"],
)
def test_what_is_no_factory_is_refused_at_once(factory: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        manager_with(factory)
    assert str(refused.value) == f'{sentence} docs/connections.md, "Your own", says what a driver is.'


class Half:
    """A connection that can take one job, and nothing else."""

    name = "mq"

    def schedule(self, spec: Any, on_conflict: Any) -> Any:
        """Never."""


def broken(name: str, given: Any, options: Any) -> Any:
    raise KeyError("folder")


def away(name: str, given: Any, options: Any) -> Any:
    raise BackendUnavailable("The shelf is away.")


def backend(**changes: Any) -> Any:
    return lambda name, given, options: replace(shelf.backend(name, given, options), **changes)


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        (lambda *_: None, "made nothing, which is no Backend, and no Connection: it has no schedule, schedule_many,"),
        (lambda *_: object(), "made an object, which is no Backend, and no Connection"),
        (lambda *_: Half(), "made a Half, which is no Backend, and no Connection: it has no schedule_many, push_raw,"),
        (broken, "asked for the connection 'mq', failed: KeyError: 'folder'."),
        (backend(capabilities={}), "made a Backend whose capabilities are a dict."),
        (backend(make=lambda: None), "made a Backend whose make does not take (*, answer_ms=None)."),
        (backend(failed="redis://"), "made a Backend whose failed is a str, not a function."),
    ],
    ids=["nothing", "an object", "half a connection", "an error", "capabilities", "make", "failed"],
)
def test_what_is_no_driver_is_refused_when_it_is_made(factory: Any, sentence: str) -> None:
    manager = manager_with(factory)
    with pytest.raises(ConfigError) as refused:
        manager.connection("mq")
    assert sentence in refused.value.message
    assert "\n" not in str(refused.value)


def test_its_broker_is_looked_at_when_it_is_first_needed() -> None:
    def make(*, answer_ms: int | None = None) -> Any:
        return Half()

    connection = manager_with(backend(make=make)).connection("mq")
    assert isinstance(connection, BrokerConnection)
    with pytest.raises(ConfigError, match="made a Half as its broker, which has no push, ready, reserve"):
        connection.broker  # noqa: B018


def test_a_broker_has_what_its_capabilities_promise() -> None:
    promises = replace(shelf.CAPABILITIES, mover=True)
    connection = manager_with(backend(capabilities=promises)).connection("mq")
    assert isinstance(connection, BrokerConnection)
    with pytest.raises(ConfigError, match="made a ShelfBroker as its broker, which has no promote, reclaim"):
        connection.broker  # noqa: B018


def test_what_is_right_is_left_as_it_is(tmp_path: Any) -> None:
    made = NullConnection("mq", Settings().options())
    assert manager_with(lambda *_: made).connection("mq") is made
    connection = manager_with(shelf.backend).connection("mq")
    assert isinstance(connection, BrokerConnection)
    assert connection.broker.lease_s("q") == 30
    with pytest.raises(BackendUnavailable, match=r"The shelf is away\."):
        manager_with(away).connection("mq")
