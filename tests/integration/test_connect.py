"""The connections a `Connector` makes: names, cost, waits, TLS, and what a fork or a new event loop does to them."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from delayq.core.errors import BackendUnavailable, ConfigError
from delayq.redis.connect import Connector, Waits
from delayq.redis.translate import translated
from tests.support.machine import fair_clock
from tests.support.proxy import Proxy
from tests.support.servers import LocalServer, OwnServer, connect
from tests.support.waiting import wait_until

pytestmark = pytest.mark.foreign_keys("*")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def connector(redis_url: str) -> Iterator[Connector]:
    connector = Connector(redis_url)
    yield connector
    connector.close()


def names(client: redis.Redis) -> list[str]:
    return sorted(row["name"] for row in client.client_list() if row["name"])


@pytest.fixture
def named(redis_client: redis.Redis) -> Callable[[], list[str]]:
    """The names of the connections made since: the garbage collector may not have come to an earlier test's yet."""
    before = {row["id"] for row in redis_client.client_list()}
    return lambda: sorted(row["name"] for row in redis_client.client_list() if row["name"] and row["id"] not in before)


def test_each_role_is_known_by_its_name(named: Callable[[], list[str]], connector: Connector) -> None:
    connector.call(lambda client: client.ping(), safe=True)
    reader = connector.reader(100)
    reader.ping()
    listener = connector.subscriber()
    listener.subscribe("channel")

    host = re.sub(r"[^A-Za-z0-9._-]", "_", os.uname().nodename)
    expected = [f"delayq-{role}-{host}-{os.getpid()}" for role in ("commands", "reader", "subscriber")]
    assert named() == expected
    listener.close()


async def test_asyncio_roles_too(redis_url: str, named: Callable[[], list[str]]) -> None:
    connector = Connector(redis_url)
    await connector.acall(lambda client: client.ping(), safe=True)
    reader = connector.areader(100)
    await reader.ping()
    listener = await connector.asubscriber()
    await listener.subscribe("channel")

    assert [name.split("-")[1] for name in named()] == ["commands", "reader", "subscriber"]
    await connector.aclose()
    wait_until(lambda: named() == [], what="all are closed")


def test_close_leaves_no_connection_and_the_connector_goes_on(
    named: Callable[[], list[str]], connector: Connector
) -> None:
    connector.call(lambda client: client.ping(), safe=True)
    reader, listener = connector.reader(100), connector.subscriber()
    reader.ping()
    listener.subscribe("channel")

    connector.close()

    wait_until(lambda: named() == [], what="all are closed")
    assert connector.call(lambda client: client.ping(), safe=True) is True


@pytest.mark.parametrize(("protocol", "round_trips"), [(2, 4), (3, 5)])
def test_a_new_connection_costs_few_round_trips(own_server: OwnServer, protocol: int, round_trips: int) -> None:
    """The name, two for the library's name and version, the command; RESP3 greets first."""
    with Proxy(own_server().socket) as proxy:
        connector = Connector(f"{proxy.url}?protocol={protocol}")
        connector.call(lambda client: client.ping(), safe=True)
        assert proxy.replies == round_trips

        connector.call(lambda client: client.ping(), safe=True)
        assert proxy.replies == round_trips + 1
        connector.close()


def test_few_connections_serve_many_threads(redis_url: str, named: Callable[[], list[str]]) -> None:
    connector = Connector(redis_url, connections=2)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: connector.call(lambda client: client.echo(str(n)), safe=True), range(200)))

    assert answers == [str(n).encode() for n in range(200)]
    assert len(named()) <= 2
    connector.close()


def test_one_failover_after_another_leaves_no_connection_behind(own_server: OwnServer) -> None:
    """Each time the server turns into a replica under four callers, who look for the primary, and find it."""
    server = own_server()
    connector = Connector(server.url, connections=2)
    with connect(server.url) as admin, ThreadPoolExecutor(4) as pool:
        for _ in range(8):
            admin.replicaof("127.0.0.1", 1)
            promoted = threading.Timer(0.03, admin.replicaof, ("NO", "ONE"))
            promoted.start()
            assert all(pool.map(lambda n: connector.call(lambda client: client.set(str(n), 1), safe=True), range(8)))
            promoted.join()
        wait_until(lambda: len(names(admin)) <= 2, what="those that were let go are closed")
        connector.close()


@pytest.mark.timed
def test_a_reader_blocks_longer_than_a_command_may_take(redis_url: str, redis_client: redis.Redis) -> None:
    connector = Connector(redis_url, waits=Waits(answer_ms=100))
    redis_client.xgroup_create("stream", "delayq", "0", mkstream=True)
    reader = connector.reader(400)

    started = time.monotonic()
    assert reader.xreadgroup("delayq", "me", {"stream": ">"}, block=400) == []
    assert time.monotonic() - started >= 0.4

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(reader.xreadgroup, "delayq", "me", {"stream": ">"}, block=400)
        wait_until(lambda: redis_client.info("clients")["blocked_clients"] == 1, what="the reader blocks")
        redis_client.xadd("stream", {"id": "o1"}, id="1-1")
        assert reading.result() == [[b"stream", [(b"1-1", {b"id": b"o1"})]]]
    connector.close()


@pytest.mark.timed
def test_a_reader_of_a_frozen_server_gives_up(own_server: OwnServer) -> None:
    server = own_server()
    connector = Connector(server.url, waits=Waits(reader_margin_ms=200))
    reader = connector.reader(100)
    reader.ping()
    server.stop()
    started, fairly_started = time.monotonic(), fair_clock()

    with pytest.raises(BackendUnavailable), translated(connector.endpoint.where, reads=True):
        reader.ping()

    assert time.monotonic() - started >= 0.3
    assert fair_clock() - fairly_started < 1.5
    server.cont()
    connector.close()


def test_a_listener_hears_and_does_not_wait_for_ever(connector: Connector, redis_client: redis.Redis) -> None:
    listener = connector.subscriber()
    listener.subscribe("channel")
    wait_until(lambda: redis_client.publish("channel", "hello") == 1, what="somebody listens")

    message = wait_until(lambda: listener.get_message(timeout=1.0), what="the message comes")
    assert (message["type"], message["data"]) == ("message", b"hello")
    assert listener.get_message(timeout=0.01) is None
    listener.close()


@pytest.mark.parametrize("block_ms", [0, -1])
def test_a_reader_that_would_block_for_ever_is_refused(connector: Connector, block_ms: int) -> None:
    with pytest.raises(ValueError, match="finite time"):
        connector.reader(block_ms)


FORKS = """
import asyncio, os, sys
from delayq.redis.connect import Connector

connector = Connector(sys.argv[1])
held = connector.commands()  # kept over the fork, as programs do

def sync(who):
    for n in range(300):
        word = f"{who}-{n}".encode()
        assert connector.call(lambda client: client.echo(word), safe=True) == word
        assert held.echo(word) == word
    name = connector.call(lambda client: client.client_getname(), safe=True)
    assert name.endswith(f"-{os.getpid()}"), name
    return {connector.commands().client_id(), held.client_id()}

async def later(who):
    for n in range(100):
        word = f"{who}-{n}".encode()
        assert await connector.acall(lambda client: client.echo(word), safe=True) == word
    name = await connector.acall(lambda client: client.client_getname(), safe=True)
    assert name.endswith(f"-{os.getpid()}"), name
    await connector.aclose()

async def parent():
    before = sync("parent")
    await connector.acall(lambda client: client.ping(), safe=True)
    children = []
    for child in range(3):
        pid = os.fork()
        if pid == 0:
            try:
                assert not sync(f"child-{child}") & before, "a child talks over the parent's socket"
                asyncio.events._set_running_loop(None)  # the child is not in the parent's loop
                asyncio.run(later(f"child-{child}"))
            except BaseException as error:
                print(child, repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        children.append(pid)
    assert sync("parent") == before, "the parent keeps its connections"
    assert {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children} == {0}
    await later("parent")
    connector.close()

asyncio.run(parent())
print("all right")
"""


def test_forked_children_open_connections_of_their_own(redis_url: str) -> None:
    # In a fresh interpreter: pytest has threads, which a fork must not meet.
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, redis_url],
        capture_output=True,
        text=True,
        timeout=50,
        cwd=ROOT,
        check=False,
    )

    assert (run.returncode, run.stdout.strip()) == (0, "all right"), run.stderr


def test_a_new_event_loop_gets_clients_of_its_own(redis_url: str) -> None:
    connector = Connector(redis_url)

    async def work() -> object:
        answer = await connector.acall(lambda client: client.incr("counter"), safe=True)
        await connector.aclose()
        return answer

    assert [asyncio.run(work()) for _ in range(3)] == [1, 2, 3]


async def test_many_tasks_share_few_connections(redis_url: str, named: Callable[[], list[str]]) -> None:
    connector = Connector(redis_url, connections=2)

    async def ask(n: int) -> object:
        return await connector.acall(lambda client: client.echo(str(n)), safe=True)

    assert await asyncio.gather(*(ask(n) for n in range(200))) == [str(n).encode() for n in range(200)]
    assert len(named()) <= 2
    await connector.aclose()


def test_a_connector_shows_no_password(own_server: OwnServer) -> None:
    server = own_server()
    connector = Connector(f"unix://:s3cret@{server.socket}")
    with connect(server.url) as admin:
        admin.config_set("requirepass", "s3cret")
    assert connector.call(lambda client: client.ping(), safe=True) is True

    client = connector.commands()
    shown = [connector, client, client.connection_pool, connector.endpoint, connector.waits]
    assert "s3cret" not in repr(shown) + str(shown)
    connector.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=delayq",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture
def tls_port(own_server: OwnServer, certificate: Path) -> Iterator[int]:
    """TLS in front of a server: most servers of the suite are built without it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with Proxy(own_server().socket, tls=context) as proxy:
        yield proxy.port


def test_tls(tls_port: int, certificate: Path) -> None:
    place = f"rediss://127.0.0.1:{tls_port}"
    for options in (f"ssl_ca_certs={certificate / 'cert.pem'}", "ssl_cert_reqs=none"):
        connector = Connector(f"{place}?{options}")
        assert connector.call(lambda client: client.ping(), safe=True) is True
        connector.close()

        async def ask(connector: Connector = connector) -> object:
            answer = await connector.acall(lambda client: client.ping(), safe=True)
            await connector.aclose()
            return answer

        assert asyncio.run(ask()) is True


@pytest.mark.timed
def test_a_certificate_nobody_knows(tls_port: int) -> None:
    connector = Connector(f"rediss://127.0.0.1:{tls_port}")
    started = fair_clock()

    with pytest.raises(ConfigError, match="certificate"):
        connector.call(lambda client: client.ping(), safe=True)
    assert fair_clock() - started < 2.0, "trying again does not help"


def test_a_certificate_of_another_host(tls_port: int, certificate: Path) -> None:
    connector = Connector(f"rediss://localhost:{tls_port}?ssl_ca_certs={certificate / 'cert.pem'}")

    with pytest.raises(ConfigError, match=r"is not valid for 'localhost'\. Check"):
        connector.call(lambda client: client.ping(), safe=True)


def test_a_certificate_file_that_is_not_there() -> None:
    connector = Connector("rediss://127.0.0.1:1?ssl_ca_certs=/nowhere/ca.pem")

    with pytest.raises(ConfigError, match=r"ssl_ca_certs .* names '/nowhere/ca\.pem', which does not exist"):
        connector.call(lambda client: client.ping(), safe=True)


@pytest.mark.timed
def test_a_thread_that_waits_for_a_connection_gives_up_in_time(own_server: OwnServer) -> None:
    server: LocalServer = own_server()
    connector = Connector(server.url, connections=1, waits=Waits(answer_ms=300, connect_ms=300, budget_ms=900))
    connector.call(lambda client: client.ping(), safe=True)
    taken = connector.commands().connection_pool.get_connection()
    started = fair_clock()

    with pytest.raises(BackendUnavailable):
        connector.call(lambda client: client.ping(), safe=False)

    assert fair_clock() - started < 1.2
    connector.commands().connection_pool.release(taken)
    assert connector.call(lambda client: client.ping(), safe=False) is True
    connector.close()


@pytest.mark.parametrize("reason", ["TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA"])
def test_a_server_that_wants_a_certificate_of_ours_wants_a_person(reason: str) -> None:
    refused = ssl.SSLError(1, "alert")
    refused.reason = reason
    with pytest.raises(ConfigError, match=reason.replace("_", " ").lower()), translated("Redis", reads=True):
        raise redis.ConnectionError("Error 1") from refused


def test_a_server_that_hangs_up_on_tls() -> None:
    """Which of both it is, nobody can tell; the alert that says so may be lost with the connection."""
    with (
        pytest.raises(BackendUnavailable, match=r"speaks none there, or wants a certificate"),
        translated("Redis", reads=True),
    ):
        raise redis.ConnectionError("Error 8") from ssl.SSLEOFError(8, "EOF occurred in violation of protocol")
