"""The same stories on three topologies: one server, a primary behind sentinels, a cluster.

`group` starts the servers of one kind, once for each test process; `redis_url` leads to them, so that stations,
clients and managers of the other suites work there unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.cli.conftest import inline
from tests.integration.coordination.test_chains import steps
from tests.integration.jobs.conftest import bare, manager, station
from tests.support.cli import Cli, environment
from tests.support.flavours import default_flavour, require
from tests.support.servers import SharedServers
from tests.support.topologies import Group, Kind, start

SHOP = """
from delayq import job

@job("order.close", queue="orders")
def close(order_id: int) -> None:
    print(f"closed {order_id}")
"""

__all__ = ["bare", "inline", "manager", "station", "steps"]


@pytest.fixture(params=list(Kind), ids=str)
def topology(request: pytest.FixtureRequest) -> Kind:
    """Each in turn; a module that needs fewer has a fixture of this name."""
    return Kind(request.param)


@pytest.fixture
def group(topology: Kind, shared_servers: SharedServers) -> Group:
    """Its servers, empty. Not for tests that end some of them."""
    return cast(Group, shared_servers.group(topology, lambda: start(topology, require(default_flavour()))))


@pytest.fixture
def redis_url(group: Group) -> str:
    return group.url


@pytest.fixture
def cli(redis_url: str, tmp_path: Path) -> Iterator[Cli]:
    (tmp_path / "shop.py").write_text(SHOP)
    cli = Cli(tmp_path, environment(DELAYQ_URL=redis_url))
    yield cli
    cli.close()
