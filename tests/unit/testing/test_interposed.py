"""`Manager.interposed`: somebody else makes the connections for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from delayq import ConfigError, Manager
from delayq.core.options import Options
from delayq.drivers.connection import Connection
from delayq.drivers.null import NullConnection
from delayq.settings.tables import ConnectionSettings


class Stand(NullConnection):
    """In the place of `real`."""

    def __init__(self, name: str, options: Options, real: Callable[[], Connection]) -> None:
        super().__init__(name, options)
        self.real = real


def stand(name: str, given: ConnectionSettings, options: Options, real: Callable[[], Connection]) -> Stand:
    return Stand(name, options, real)


def test_inside_they_are_made_by_it_and_outside_they_are_as_before(manager: Manager) -> None:
    before = manager.connection("null")
    with manager.interposed(stand):
        inside = manager.connection("null")
        assert isinstance(inside, Stand)
        assert manager.connection("null") is inside
        assert inside.real() is before
        assert inside.options.connection == "null"
    assert manager.connection("null") is before


def test_every_thread_sees_it(manager: Manager) -> None:
    seen: list[Connection] = []
    with manager.interposed(stand):
        thread = threading.Thread(target=lambda: seen.append(manager.connection("null")))
        thread.start()
        thread.join()
    assert [type(one) for one in seen] == [Stand]


def test_an_inner_one_stands_for_the_outer_one(manager: Manager) -> None:
    with manager.interposed(stand):
        outer = manager.connection("sync")
        with manager.interposed(stand):
            inner = manager.connection("sync")
            assert isinstance(inner, Stand)
            assert inner is not outer
            assert inner.real() is outer
        assert manager.connection("sync") is outer


def test_what_was_needed_beneath_is_made_once_and_stays(manager: Manager) -> None:
    with manager.interposed(stand):
        inside = manager.connection("null")
        assert isinstance(inside, Stand)
        real = inside.real()
        assert inside.real() is real
    assert manager.connection("null") is real


def test_an_error_inside_ends_it_too(manager: Manager) -> None:
    with pytest.raises(ConfigError), manager.interposed(stand):
        manager.connection("nowhere")
    assert type(manager.connection("null")) is NullConnection
