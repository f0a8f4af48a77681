"""What real servers refuse, and the error a user gets for it: on every flavour, plain and from inside a script."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from delayq.core.errors import (
    BackendDamaged,
    BackendFull,
    BackendUnavailable,
    ConfigError,
    DelayqError,
    ProtocolError,
)
from delayq.redis.connect import Connector, Waits
from delayq.redis.translate import translated
from tests.support.flavours import Flavour
from tests.support.servers import LocalServer, OwnServer, connect
from tests.support.waiting import wait_until

# Timed: the clients of these tests give up within a second.
pytestmark = [pytest.mark.foreign_keys("*"), pytest.mark.timed]

QUICK = Waits(connect_ms=300, answer_ms=300, budget_ms=600, reader_margin_ms=1_000)
SECRET = "s3cret"


@pytest.fixture
def server(own_server: OwnServer, each_flavour: Flavour) -> LocalServer:
    return own_server(flavour=each_flavour)


@pytest.fixture
def admin(server: LocalServer) -> Iterator[redis.Redis]:
    with connect(server.url) as client:
        yield client


@pytest.fixture
def opened() -> Iterator[Callable[[str], Connector]]:
    made: list[Connector] = []

    def make(url: str) -> Connector:
        made.append(Connector(url, waits=QUICK))
        return made[-1]

    yield make
    for connector in made:
        connector.close()


def plainly(client: redis.Redis) -> object:
    return client.set("key", "value")


def in_a_script(client: redis.Redis) -> object:
    return client.eval("return redis.call('SET', KEYS[1], ARGV[1])", 1, "key", "value")


def in_a_pipeline(client: redis.Redis) -> object:
    pipe = client.pipeline(transaction=False)
    pipe.get("key")
    pipe.set("key", "value")
    return pipe.execute()


WRITES = pytest.mark.parametrize("write", [plainly, in_a_script, in_a_pipeline])


def refusal(connector: Connector, send: Callable[[redis.Redis], object], expected: type[DelayqError]) -> str:
    """What a user reads. Exactly this class: a subclass would mean something else."""
    with pytest.raises(expected) as refused:
        connector.call(send, safe=True)
    assert type(refused.value) is expected
    assert connector.endpoint.where in refused.value.message
    assert SECRET not in str(refused.value)
    return str(refused.value)


@WRITES
def test_a_full_server(
    server: LocalServer, admin: redis.Redis, opened: Callable[[str], Connector], write: Callable[[redis.Redis], object]
) -> None:
    admin.config_set("maxmemory", 1)

    assert "memory limit" in refusal(opened(server.url), write, BackendFull)


@WRITES
def test_a_replica(
    server: LocalServer, admin: redis.Redis, opened: Callable[[str], Connector], write: Callable[[redis.Redis], object]
) -> None:
    admin.replicaof("127.0.0.1", 1)

    assert "is a read-only replica" in refusal(opened(server.url), write, BackendUnavailable)


def test_a_replica_without_its_primary(
    server: LocalServer, admin: redis.Redis, opened: Callable[[str], Connector]
) -> None:
    admin.replicaof("127.0.0.1", 1)
    admin.config_set("replica-serve-stale-data", "no")

    assert "has lost its primary" in refusal(opened(server.url), lambda client: client.get("key"), BackendUnavailable)
    admin.config_set("replica-serve-stale-data", "yes")


@WRITES
def test_too_few_replicas(
    server: LocalServer, admin: redis.Redis, opened: Callable[[str], Connector], write: Callable[[redis.Redis], object]
) -> None:
    admin.config_set("min-replicas-to-write", 1)

    assert "too few replicas" in refusal(opened(server.url), write, BackendUnavailable)


def test_a_server_that_cannot_save(
    own_server: OwnServer, each_flavour: Flavour, opened: Callable[[str], Connector], tmp_path: Path
) -> None:
    gone = tmp_path / "data"
    gone.mkdir()
    server = own_server(flavour=each_flavour, options={"dir": str(gone)})
    with connect(server.url) as admin:
        admin.config_set("save", "900 1")
        gone.rmdir()
        admin.bgsave()
        wait_until(lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "err", what="saving fails")

    assert "cannot save to disk" in refusal(opened(server.url), plainly, BackendUnavailable)


def test_a_server_that_loads_its_data(
    own_server: OwnServer, each_flavour: Flavour, opened: Callable[[str], Connector]
) -> None:
    # It looks at its clients after every 2 MB; a key is 64 KB and takes 5 ms.
    server = own_server(flavour=each_flavour, options={"key-load-delay": "5000", "rdbcompression": "no"})
    with connect(server.url) as admin, connect(server.url) as other:
        pipe = admin.pipeline(transaction=False)
        for n in range(300):
            pipe.set(f"key:{n}", "x" * 65_536)
        pipe.execute()
        reload = threading.Thread(target=other.execute_command, args=("DEBUG", "RELOAD"))
        reload.start()
        wait_until(lambda: _is_loading(admin), what="the server loads")

        assert "is still loading its data" in refusal(opened(server.url), plainly, BackendUnavailable)
        reload.join()


def test_too_many_clients(server: LocalServer, admin: redis.Redis, opened: Callable[[str], Connector]) -> None:
    admin.ping()
    admin.config_set("maxclients", 1)

    says = refusal(opened(server.url), plainly, BackendUnavailable)
    admin.config_set("maxclients", 100)  # who looks after the test may come before the server missed who left
    # The server says so and closes; who is still writing by then learns only that it closed.
    assert "limit of clients" in says or "broken pipe" in says or "connection reset" in says


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_password_is_wanted(
    server: LocalServer, admin: redis.Redis, opened: Callable[[str], Connector], protocol: int
) -> None:
    admin.config_set("requirepass", SECRET)

    says = refusal(opened(f"unix://{server.socket}?protocol={protocol}"), plainly, ConfigError)
    assert "wants a password" in says
    assert "redis://:password@host:6379/0" in says


@pytest.mark.parametrize("protocol", [2, 3])
def test_the_password_is_wrong(
    server: LocalServer, admin: redis.Redis, opened: Callable[[str], Connector], protocol: int
) -> None:
    admin.config_set("requirepass", "another")

    url = f"unix://:{SECRET}@{server.socket}?protocol={protocol}"
    assert "refused the user or the password" in refusal(opened(url), plainly, ConfigError)


def test_the_right_password(server: LocalServer, admin: redis.Redis, opened: Callable[[str], Connector]) -> None:
    admin.config_set("requirepass", SECRET)
    admin.acl_setuser("ann", enabled=True, passwords=[f"+{SECRET}"], keys=["*"], categories=["+@all"])

    for login in (f":{SECRET}", f"ann:{SECRET}"):
        for protocol in (2, 3):
            connector = opened(f"unix://{login}@{server.socket}?protocol={protocol}")
            assert connector.call(lambda client: client.ping(), safe=True) is True


@WRITES
def test_a_user_without_the_right(
    server: LocalServer, admin: redis.Redis, opened: Callable[[str], Connector], write: Callable[[redis.Redis], object]
) -> None:
    admin.acl_setuser(
        "ann", enabled=True, passwords=[f"+{SECRET}"], keys=["*"], categories=["+@all"], commands=["-set"]
    )

    assert "forbids this user" in refusal(opened(f"unix://ann:{SECRET}@{server.socket}"), write, ConfigError)


def test_a_database_that_is_not_there(server: LocalServer, opened: Callable[[str], Connector]) -> None:
    assert "no database of that number" in refusal(opened(f"unix://{server.socket}?db=99"), plainly, ConfigError)


@pytest.mark.parametrize(
    "send",
    [
        lambda client: client.hget("key", "field"),
        lambda client: client.eval("return redis.call('HGET', KEYS[1], 'field')", 1, "key"),
        lambda client: client.pipeline(transaction=False).hget("key", "field").execute(),
        lambda client: client.xreadgroup("delayq", "me", {"no-such-stream": ">"}),
    ],
    ids=["plain", "script", "pipeline", "no group"],
)
def test_somebody_elses_key(
    server: LocalServer,
    admin: redis.Redis,
    opened: Callable[[str], Connector],
    send: Callable[[redis.Redis], object],
) -> None:
    admin.set("key", "value")

    assert "missing or holds something else" in refusal(opened(server.url), send, BackendDamaged)


def test_an_error_of_our_own_scripts(server: LocalServer, opened: Callable[[str], Connector]) -> None:
    def broken(client: redis.Redis) -> object:
        return client.eval("return nil + 1", 0)

    assert "delayq does not know" in refusal(opened(server.url), broken, ProtocolError)


def test_a_reader_whose_primary_is_demoted(
    server: LocalServer, admin: redis.Redis, opened: Callable[[str], Connector]
) -> None:
    admin.xgroup_create("stream", "delayq", "0", mkstream=True)
    connector = opened(server.url)
    reader = connector.reader(1_000)
    demote = threading.Thread(target=_when_blocked, args=(admin, lambda: admin.replicaof("127.0.0.1", 1)))
    demote.start()

    with pytest.raises(BackendUnavailable, match="has just become a replica"), translated(connector.endpoint.where):
        reader.xreadgroup("delayq", "me", {"stream": ">"}, block=1_000)
    demote.join()


def test_a_reader_whose_stream_is_deleted(
    server: LocalServer, admin: redis.Redis, opened: Callable[[str], Connector]
) -> None:
    """Redis 7.0 says UNBLOCKED, as to a demoted reader; 6.2 lets it wait on, and its next read says NOGROUP."""
    admin.xgroup_create("stream", "delayq", "0", mkstream=True)
    connector = opened(server.url)
    reader = connector.reader(1_000)
    delete = threading.Thread(target=_when_blocked, args=(admin, lambda: admin.delete("stream")))
    delete.start()

    def read_twice(_: redis.Redis) -> None:
        for _round in range(2):
            reader.xreadgroup("delayq", "me", {"stream": ">"}, block=1_000)

    assert "missing or holds something else" in refusal(connector, read_twice, BackendDamaged)
    delete.join()


def test_a_cluster_with_a_part_missing(
    own_server: OwnServer, each_flavour: Flavour, opened: Callable[[str], Connector]
) -> None:
    options = {"cluster-enabled": "yes", "port": str(_free_with_its_bus()), "bind": "127.0.0.1"}
    server = own_server(flavour=each_flavour, options=options)

    assert "a cluster with a part missing" in refusal(opened(server.url), plainly, BackendUnavailable)


def test_something_that_is_no_redis(opened: Callable[[str], Connector]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answer = threading.Thread(target=_answer_as_a_web_server, args=(listener,))
        answer.start()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"

        refusal(opened(url), plainly, ConfigError)
        answer.join()


def _free_with_its_bus() -> int:
    """A port that is free together with the one 10,000 above, both below those that connections are given."""
    while True:
        port = random.randrange(11_000, 21_000)
        with contextlib.suppress(OSError):
            for number in (port, port + 10_000):
                socket.create_server(("127.0.0.1", number)).close()
            return port


def _answer_as_a_web_server(listener: socket.socket) -> None:
    client, _ = listener.accept()
    with client:
        client.recv(1024)
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def _when_blocked(admin: redis.Redis, act: Callable[[], object]) -> None:
    wait_until(lambda: admin.info("clients")["blocked_clients"] == 1, what="the reader blocks")
    act()


def _is_loading(client: redis.Redis) -> bool:
    try:
        client.get("key")
    except redis.BusyLoadingError:
        return True
    return False
