"""Fixtures of the whole suite.

    redis_url, redis_client              the default flavour's server, empty at the start of each test
    each_redis_url, each_redis_client    the same, once per flavour
    each_flavour, default_server         the flavour itself; the default flavour's program
    postgres_url                         a PostgreSQL
    mariadb_url                          a MariaDB
    own_server                           makes servers that a test may kill, stop and restart
    leak_check                           runs by itself: keys, settings, processes and threads left behind fail the test

Markers: `redis_prefix("shop")` for a test with a key prefix of its own, `foreign_keys("other:*")` for one that leaves
keys that are not delayq's, `timed` for one that measures time (see tests/support/machine.py).
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing

import pytest
import redis
from hypothesis import HealthCheck, settings

from delayq.jobs import registry
from delayq.redis.server_binary import ServerBinary
from tests.support.containers import containers_wanted, engine_problem
from tests.support.contract_table import write_contract_table
from tests.support.flavours import (
    Flavour,
    default_flavour,
    describe_missing,
    locate,
    offered,
    require,
    wanted,
)
from tests.support.key_contract import read_keys, wrong_keys
from tests.support.leftovers import Living
from tests.support.machine import AGAIN, TIMEOUT_S, run_fairly
from tests.support.mariadb import mariadb
from tests.support.postgres import postgres
from tests.support.servers import LocalServer, OwnServer, SharedServers, connect
from tests.support.waiting import wait_until

# Only what takes its time to end is waited for; a test that leaves nothing waits for nothing.
GRACE_S = float(os.environ.get("DELAYQ_TEST_GRACE_S", "10"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="play a chaos run again, by the seed it printed")


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what goes into the background deaf to Ctrl-C, and so would be everything that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # An example may take as long as the machine lets it.
    settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("suite")
    config.addinivalue_line("markers", "redis_prefix(*prefixes): the key prefixes this test uses instead of delayq")
    config.addinivalue_line("markers", "foreign_keys(*globs): keys this test leaves that are not delayq's")
    config.addinivalue_line("markers", "timed: measures time; run again if it fails while the machine had none for it")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays, so nobody has to look through it for garbage: not now, and not while tests run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timed") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))  # for all its runs together


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if item.get_closest_marker("timed") is None:
        return None
    run_fairly(item, nextitem)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the suite ran against, and what it did without: nothing is skipped in silence."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    for title in ("chaos", AGAIN):
        said = [str(value) for report in reports for name, value in report.user_properties if name == title]
        if said:
            terminalreporter.section(title)
            terminalreporter.write_line("\n".join(said))
    write_contract_table(terminalreporter)
    terminalreporter.section("servers")
    if containers_wanted():
        terminalreporter.write_line(f"containers: {engine_problem() or 'the Docker engine answers'}")
        return
    for flavour in offered():
        binary = locate(flavour) if flavour in wanted() else None
        if flavour not in wanted():
            terminalreporter.write_line(f"{flavour:8} left out by DELAYQ_TEST_FLAVOURS")
        elif binary is None:
            terminalreporter.write_line(f"{flavour:8} MISSING, {describe_missing(flavour)}", red=True)
        else:
            terminalreporter.write_line(f"{flavour:8} {binary}")


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[SharedServers]:
    with closing(SharedServers()) as servers:
        yield servers


@pytest.fixture(params=offered(), ids=str)
def each_flavour(request: pytest.FixtureRequest) -> Flavour:
    """Every flavour in turn."""
    flavour = Flavour(request.param)
    if flavour not in wanted():
        pytest.skip(f"{flavour} is left out by DELAYQ_TEST_FLAVOURS")
    return flavour


@pytest.fixture
def default_server() -> ServerBinary:
    """The program of the default flavour, for tests that start it themselves."""
    return require(default_flavour())


@pytest.fixture
def redis_url(shared_servers: SharedServers) -> str:
    return shared_servers.url(default_flavour())


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    with connect(redis_url) as client:
        yield client


@pytest.fixture
def each_redis_url(shared_servers: SharedServers, each_flavour: Flavour) -> str:
    return shared_servers.url(each_flavour)


@pytest.fixture
def each_redis_client(each_redis_url: str) -> Iterator[redis.Redis]:
    with connect(each_redis_url) as client:
        yield client


@pytest.fixture
def own_server(request: pytest.FixtureRequest) -> Iterator[OwnServer]:
    servers: list[LocalServer] = []
    with ExitStack() as stack:

        def make(
            *, flavour: Flavour | None = None, persistent: bool = False, options: Mapping[str, str] | None = None
        ) -> LocalServer:
            server = LocalServer(require(flavour or default_flavour()), persistent=persistent, options=options)
            servers.append(server)
            stack.callback(server.close)
            server.start()
            return server

        yield make
        for server in servers:
            leaks = _wrong_in(server.url, request) if server.is_ready() else []
            assert not leaks, f"keys left on a server of the test's own: {leaks}"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL of this run; ends the test where none is installed."""
    with postgres() as url:
        yield url


@pytest.fixture(scope="session")
def mariadb_url() -> Iterator[str]:
    """A MariaDB of this run; ends the test where none is installed."""
    with mariadb() as url:
        yield url


@pytest.fixture(autouse=True)
def no_declared_jobs_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what jobs registered by other modules declare: `schedule` by name would obey it."""
    monkeypatch.setattr(registry.current(), "declaring", {})


@pytest.fixture(autouse=True)
def leak_check(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set up before all other fixtures of a test, so it looks when they are gone."""
    servers: SharedServers | None = None
    if "shared_servers" in request.fixturenames:
        servers = request.getfixturevalue("shared_servers")
        servers.touched.clear()
    before = Living.now()
    yield
    known = servers.pids() if servers else set()
    leaks = _left_on(servers, request) if servers else []
    try:
        wait_until(lambda: not Living.now().new_since(before, known=known), timeout=GRACE_S, what="all of it ends")
    except AssertionError:
        leaks += [f"still there: {living}" for living in Living.now().new_since(before, known=known)]
    if leaks:
        pytest.fail("the test left something behind:\n  " + "\n  ".join(leaks), pytrace=False)


def _left_on(servers: SharedServers, request: pytest.FixtureRequest) -> list[str]:
    leaks: list[str] = []
    for url in sorted(servers.touched):
        leaks += _wrong_in(url, request)
        leaks += [f"setting changed: {change}" for change in servers.changed_settings(url)]
    return leaks


def _wrong_in(url: str, request: pytest.FixtureRequest) -> list[str]:
    prefixes = _marker_words(request, "redis_prefix") or ("delayq",)
    with connect(url) as client:
        return wrong_keys(read_keys(client), prefixes=prefixes, foreign=_marker_words(request, "foreign_keys"))


def _marker_words(request: pytest.FixtureRequest, name: str) -> tuple[str, ...]:
    return tuple(str(word) for marker in request.node.iter_markers(name) for word in marker.args)
