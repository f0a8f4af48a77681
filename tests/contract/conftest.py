"""Every test here runs once for each driver; what a driver cannot do is skipped, and said at the end.

@pytest.mark.needs("delay", "inspect")      only for drivers that can
@pytest.mark.lacks("unique")                only for drivers that cannot: they must refuse it
@pytest.mark.lease("1s")                    how long a reservation lasts; 30s without
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq.drivers.capabilities import Keeper
from delayq.jobs.function import job
from delayq.jobs.registry import Registry, using
from tests.contract.backend import Backend, Server
from tests.contract.backends import all_backends
from tests.contract.rig import Rig

MARKS = ("needs", "lacks")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*capabilities): for drivers that have all of these")
    config.addinivalue_line("markers", "lacks(*capabilities): for drivers that have none of these")
    config.addinivalue_line("markers", "lease(duration): how long a reservation lasts in this test")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what a driver cannot do before its server is started for it."""
    for item in items:
        backend = _backend_of(item)
        reason = _why_not(item, backend) if backend is not None else ""
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"contract: {reason}"))


def _backend_of(item: pytest.Item) -> Backend | None:
    params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    backend = params.get("backend")
    return backend if isinstance(backend, Backend) else None


def _why_not(item: pytest.Item, backend: Backend) -> str:
    for mark in MARKS:
        for word in (str(word) for marker in item.iter_markers(mark) for word in marker.args):
            if _can(backend, word) is not (mark == "needs"):
                return f"{backend.name} {'has no' if mark == 'needs' else 'has'} {word}"
    return ""


def _can(backend: Backend, word: str) -> bool:
    """A capability, or a keeper of leases: steward, holder, nobody."""
    if word in list(Keeper):
        return backend.can.serves and backend.can.keeper is Keeper(word)
    return bool(getattr(backend.can, word))


@pytest.fixture(scope="session", params=all_backends(), ids=str)
def backend(request: pytest.FixtureRequest) -> Backend:
    """The driver whose turn it is."""
    row: Backend = request.param
    return row


@pytest.fixture(scope="session")
def server(backend: Backend) -> Iterator[Server]:
    """Its server, started once for all its tests."""
    with backend.start() as started:
        yield started


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The jobs that connections run which run them here; others do not look for a handler."""
    with using(Registry()):

        @job("contract.named")
        def named() -> None:
            """Nothing to do."""

        yield


@pytest.fixture
def make_rig(backend: Backend, server: Server) -> Iterator[Callable[[str], Rig]]:
    """Makes rigs with a lease of their own."""
    rigs: list[Rig] = []

    def make(lease: str = "30s") -> Rig:
        rigs.append(Rig(backend, server, lease))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


@pytest.fixture
def rig(request: pytest.FixtureRequest, make_rig: Callable[[str], Rig]) -> Rig:
    """The connection under test."""
    marker = request.node.get_closest_marker("lease")
    return make_rig(str(marker.args[0]) if marker else "30s")
