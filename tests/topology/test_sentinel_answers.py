"""What sentinels answer reaches the user: a refused password, an unknown service, and which primary is down.

Each refusal is a `ConfigError` with the sentinel's own word, since waiting mends none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from delayq.core.errors import BackendUnavailable, ConfigError
from delayq.core.options import Options
from delayq.core.states import Answer
from delayq.redis.aio import AsyncClient
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.support.cli import Cli, environment
from tests.support.flavours import default_flavour, require
from tests.support.servers import LocalServer
from tests.support.station import Station
from tests.support.topologies import HOST, SERVICE, SentinelProcess, Sentinels, is_primary, replication
from tests.support.waiting import wait_until
from tests.topology.conftest import SHOP

PASSWORD = "s3cret"
QUEUE = "orders"


@pytest.fixture(scope="module")
def locked() -> Iterator[Sentinels]:
    """Sentinels that want a password."""
    with closing(Sentinels(require(default_flavour()), replicas=0)) as group:
        for one in group.sentinels:
            one.say("ACL", "SETUSER", "default", "resetpass", f">{PASSWORD}")
        yield group


@dataclass(frozen=True, slots=True)
class Refusal:
    """A URL that the sentinels refuse: what is put in and after it, their word, and what the hint names."""

    service: str
    options: str
    word: str
    hint: str


REFUSALS = {
    "no password": Refusal("main", "", "Authentication required", "sentinel_password"),
    "wrong password": Refusal(
        "main", "?sentinel_password=wr0ng", "invalid username-password pair", "sentinel_password"
    ),
    "unknown service": Refusal("mian", f"?sentinel_password={PASSWORD}", "No such master", "service"),
}


@pytest.fixture(params=list(REFUSALS))
def refusal(request: pytest.FixtureRequest) -> Refusal:
    return REFUSALS[request.param]


@pytest.fixture
def refused_url(locked: Sentinels, refusal: Refusal) -> str:
    places = ",".join(f"{HOST}:{one.port}" for one in locked.sentinels)
    return f"redis+sentinel://{places}/{refusal.service}/0{refusal.options}"


def test_the_right_password_is_taken(locked: Sentinels) -> None:
    with closing(Connector(f"{locked.url}/0?sentinel_password={PASSWORD}")) as connector:
        assert Client(connector, Options()).schedule("close", queue=QUEUE, delay="1h").outcome is Answer.CREATED


def test_a_producer_is_told(refused_url: str, refusal: Refusal) -> None:
    with closing(Connector(refused_url)) as connector, pytest.raises(ConfigError) as raised:
        Client(connector, Options()).schedule("close", queue=QUEUE)
    _tells(raised.value, refusal)


async def test_an_async_producer_is_told(refused_url: str, refusal: Refusal) -> None:
    connector = Connector(refused_url)
    with pytest.raises(ConfigError) as raised:
        await AsyncClient(connector, Options()).schedule("close", queue=QUEUE)
    await connector.aclose()
    _tells(raised.value, refusal)


def _tells(error: ConfigError, refusal: Refusal) -> None:
    assert str(error).startswith(f"The sentinel {HOST}:")
    assert refusal.word in str(error)
    assert refusal.hint in (error.hint or "")
    assert "wr0ng" not in f"{error} {error.hint}"


@pytest.mark.parametrize(
    "verb",
    [("schedule", "order.close", "--queue", QUEUE), ("stats",), ("work",), ("serve", "--port", "0")],
    ids=" ".join,
)
def test_a_command_ends_with_2(refused_url: str, refusal: Refusal, verb: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with closing(Cli(tmp_path, environment(DELAYQ_URL=refused_url))) as cli:
        more = ("--app", "shop", "--queue", QUEUE) if verb == ("work",) else ()
        done = cli(*verb, *more)
    assert done.code == 2, done.err
    assert refusal.word in done.err
    assert "wr0ng" not in done.out + done.err


def test_one_sentinel_that_refuses_is_passed_over(locked: Sentinels) -> None:
    with closing(Sentinels(require(default_flavour()), replicas=0)) as group:
        places = ",".join(f"{HOST}:{port}" for port in (locked.sentinels[0].port, group.sentinels[0].port))
        with closing(Connector(f"redis+sentinel://{places}/main/0")) as connector:
            assert Client(connector, Options()).schedule("close", queue=QUEUE).outcome is Answer.CREATED


@pytest.mark.parametrize(("down_after_ms", "flag", "words"), [(60_000, "", "refused"), (100, "s_down", "as down")])
def test_the_primary_that_is_down_is_named(down_after_ms: int, flag: str, words: str) -> None:
    """Before its sentinels have noticed, and after."""
    group = Sentinels(require(default_flavour()), replicas=0)
    with closing(group), closing(Connector(group.url)) as connector:
        client = Client(connector, Options())
        client.schedule("close", queue=QUEUE, delay="1h")
        for one in group.sentinels:
            one.say("SENTINEL", "SET", SERVICE, "down-after-milliseconds", down_after_ms)
        group.servers[0].kill()
        for one in group.sentinels:
            wait_until(partial(_flagged, one, flag), what="the sentinels see it")
        told = f"Redis at {HOST}:{group.ports[0]}, the primary behind the sentinels .* cannot be reached: .*{words}"
        with pytest.raises(BackendUnavailable, match=told):
            client.queues()
        with pytest.raises(BackendUnavailable, match=told):
            asyncio.run(_asked(group.url))


def _flagged(sentinel: SentinelProcess, flag: str) -> bool:
    return flag in sentinel.primary()["flags"]


async def _asked(url: str) -> None:
    connector = Connector(url)
    try:
        await AsyncClient(connector, Options()).queues()
    finally:
        await connector.aclose()


@pytest.fixture
def replaced() -> Iterator[Sentinels]:
    """Sentinels whose primary takes writes only while a replica follows it; a test orders the failover."""
    options = {"min-replicas-to-write": "1"}
    with closing(Sentinels(require(default_flavour()), options)) as group:
        yield group


@pytest.mark.timed
def test_a_producer_leaves_a_primary_that_lost_its_replicas(replaced: Sentinels) -> None:
    """Sentinels demote the old primary ten seconds after the failover; until then it answers NOREPLICAS."""
    with closing(Connector(replaced.url)) as connector:
        client = Client(connector, Options())
        client.schedule("close", queue=QUEUE, delay="1h")
        old = _fail_over(replaced)
        assert client.schedule("close", queue=QUEUE, delay="1h").outcome is Answer.CREATED
        assert is_primary(old), "the sentinels have not demoted it yet: the client found the new primary by itself"


@pytest.mark.timed
async def test_an_async_producer_leaves_it_too(replaced: Sentinels) -> None:
    connector = Connector(replaced.url)
    client = AsyncClient(connector, Options())
    await client.schedule("close", queue=QUEUE, delay="1h")
    old = _fail_over(replaced)
    ref = await client.schedule("close", queue=QUEUE, delay="1h")
    await connector.aclose()
    assert ref.outcome is Answer.CREATED
    assert is_primary(old)


def _fail_over(group: Sentinels) -> LocalServer:
    """Promote a replica, and wait until the old primary has none left and refuses writes; answers the old primary."""
    old = group.primary()
    group.fail_over()
    wait_until(lambda: replication(old)["connected_slaves"] == 0, what="the replicas follow the new primary")
    assert is_primary(old)
    return old


@pytest.mark.timed
def test_a_worker_that_waits_leaves_it_too(replaced: Sentinels) -> None:
    """A reader on the old primary asks the sentinels again when its read is refused, as a producer does."""
    with closing(Station(replaced.url)) as station:
        ran = station.tape()
        station.handles("note", lambda n: ran.append(n))  # noqa: PLW0108  (a handler takes its arguments by name)
        with station.working(mover=True):
            station.client.schedule("note", {"n": 1})
            wait_until(lambda: ran[:] == [1], what="the worker works")
            old = _fail_over(replaced)
            station.client.schedule("note", {"n": 2})
            wait_until(lambda: ran[:] == [1, 2], timeout=60, what="the worker has found the new primary")
            assert is_primary(old), "the sentinels have not demoted it yet"
