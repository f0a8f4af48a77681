"""Connections on a real server, and what its answers mean."""

import asyncio
import os
import resource
import socket
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from hiredis import pack_command

from delayq import AsyncDelayQ, DelayQ
from delayq.core.errors import BackendUnavailable, ConfigError, LoginRefused, OutcomeUnknown
from delayq.redis.calls.call import Call, command
from delayq.redis.connection.asyncio import AsyncioLeaf
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.factory import make_executor
from delayq.redis.connection.leaf import drive
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.url import Address
from tests.support.proxy import LOGIN, proxy_to, server_that_answers
from tests.support.servers import private_server
from tests.support.waiting import wait_until

COUNT: Call[int] = command("INCR", "count", parse=int, repeatable=False)
LOADING = b"-LOADING Redis is loading the dataset in memory\r\n"
HAS_SSL_PASSWORD = tuple(int(part) for part in redis.__version__.split(".")[:2]) >= (7, 2)


def count_blocking(url: str, retry_timeout: float = 5.0) -> int:
    return drive(ServerExecutor(BlockingLeaf(Address(url)), retry_timeout=retry_timeout).run(COUNT))


def count_asyncio(url: str, retry_timeout: float = 5.0) -> int:
    return asyncio.run(ServerExecutor(AsyncioLeaf(Address(url)), retry_timeout=retry_timeout).run(COUNT))


def run_program(program: str, *arguments: str) -> str:
    words = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture(params=[count_blocking, count_asyncio])
def count(request: pytest.FixtureRequest) -> Any:
    """One INCR, which may not be sent twice, by a fresh leaf of either kind."""
    return request.param


def test_a_server_that_loads_its_data_is_asked_again(count: Any) -> None:
    with server_that_answers(LOADING, *LOGIN[1:], LOADING, b":7\r\n") as url:
        assert count(url) == 7


def test_a_server_that_wants_a_password_is_told_as_a_refused_login(count: Any, url: str, server: redis.Redis) -> None:
    server.config_set("requirepass", "secret")
    try:
        with pytest.raises(LoginRefused, match=r"refused the login: (NOAUTH )?Authentication required\."):
            count(url)
    finally:
        server.config_set("requirepass", "")


def test_a_wrong_password_is_told_as_a_refused_login(count: Any, url: str, server: redis.Redis) -> None:
    server.config_set("requirepass", "secret")
    try:
        with pytest.raises(LoginRefused, match=r"refused the login: .*invalid username-password pair"):
            count(url.replace("unix://", "unix://:wrong@"))
    finally:
        server.config_set("requirepass", "")


def test_a_user_who_may_not_run_ping_is_logged_in(count: Any, url: str, server: redis.Redis) -> None:
    server.acl_setuser("counter", enabled=True, passwords=["+word"], keys=["*"], commands=["+incr"])
    try:
        assert count(url.replace("unix://", "unix://counter:word@")) == 1
    finally:
        server.acl_deluser("counter")


@contextmanager
def holding_connection(url: str) -> Iterator[socket.socket]:
    """Hold a connection that the server has accepted."""
    while True:
        with socket.socket(socket.AF_UNIX) as held, suppress(OSError):
            held.connect(url.removeprefix("unix://"))
            held.sendall(b"PING\r\n")
            if held.recv(100) == b"+PONG\r\n":
                yield held
                return


def test_a_server_with_too_many_clients_is_asked_again_and_then_told_as_not_sent(count: Any) -> None:
    with private_server(["--maxclients", "1"]) as url, holding_connection(url) as held:
        with pytest.raises(BackendUnavailable, match=r"The request was not sent\."):  # its text may be lost
            count(url, retry_timeout=0.5)
        threading.Timer(0.3, held.close).start()
        assert count(url) == 1


def test_an_error_of_a_balancer_is_told_as_not_sent(count: Any) -> None:
    with (
        server_that_answers(*[b"-ERR no healthy upstream\r\n"] * 100) as url,
        pytest.raises(BackendUnavailable, match=r"no healthy upstream\. The request was not sent\."),
    ):
        count(url, retry_timeout=0.5)


def test_a_lost_answer_to_a_call_that_may_not_be_repeated(count: Any, url: str, server: redis.Redis) -> None:
    with proxy_to(url) as proxy:
        proxy.lose(1)
        with pytest.raises(OutcomeUnknown):
            count(proxy.url)
    assert server.get("count") == "1"


def test_an_idle_connection_that_the_server_closed_is_not_used(url: str, server: redis.Redis) -> None:
    executor = ServerExecutor(BlockingLeaf(Address(url)))
    assert drive(executor.run(COUNT)) == 1
    server.client_kill_filter(_type="normal", skipme=True)
    assert drive(executor.run(COUNT)) == 2

    async def twice() -> int:
        awaited = ServerExecutor(AsyncioLeaf(Address(url)))
        await awaited.run(COUNT)
        server.client_kill_filter(_type="normal", skipme=True)
        await asyncio.sleep(0.01)
        return await awaited.run(COUNT)

    assert asyncio.run(twice()) == 4


def test_a_forked_child_gets_connections_of_its_own(url: str, server: redis.Redis) -> None:
    with DelayQ(url) as client:
        client.schedule("n", id="parent", delay="1h")
        clients = {row["id"] for row in server.client_list()}
        child = os.fork()
        if child == 0:
            client.schedule("n", id="child", delay="1h")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        client.schedule("n", id="parent-again", delay="1h")
        assert [job.id for job in client.list_jobs("scheduled").jobs] == ["parent", "child", "parent-again"]
        assert {row["id"] for row in server.client_list()} <= clients


def test_a_client_of_many_event_loops_keeps_few_descriptors(url: str, server: redis.Redis) -> None:
    client = AsyncDelayQ(url)
    asyncio.run(client.schedule("n", delay="1h"))
    before, clients = len(os.listdir("/dev/fd")), len(server.client_list())
    for _ in range(200):
        asyncio.run(client.schedule("n", delay="1h"))
    assert len(os.listdir("/dev/fd")) <= before + 1
    assert len(server.client_list()) <= clients + 1
    assert asyncio.run(client.stats())[0].scheduled == 201


@pytest.mark.parametrize("kind", ["BlockingLeaf", "AsyncioLeaf"])
def test_too_many_open_files_are_named_as_what_they_are(url: str, server: redis.Redis, kind: str) -> None:
    program = """
        import asyncio, os, resource, sys
        from delayq.core.errors import BackendUnavailable
        from delayq.redis.calls.call import command
        from delayq.redis.connection.asyncio import AsyncioLeaf
        from delayq.redis.connection.blocking import BlockingLeaf
        from delayq.redis.connection.server import ServerExecutor
        from delayq.redis.connection.url import Address

        async def ping(leaf):
            open_files = []
            try:
                while True:
                    open_files.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                pass
            try:
                await ServerExecutor(leaf, retry_timeout=0).run(command("PING", parse=bytes))
            except BackendUnavailable as error:
                for open_file in open_files:
                    os.close(open_file)
                print(error)

        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        asyncio.run(ping(globals()[sys.argv[1]](Address(sys.argv[2]))))
    """
    message = run_program(program, kind, url)
    assert "this process has too many open files (EMFILE); raise `ulimit -n`" in message


def test_a_blocked_read_works_with_more_than_1024_open_files(url: str, server: redis.Redis) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1_200:
        pytest.skip("this machine allows few open files")
    program = """
        import os, resource, sys
        from delayq.redis.calls.call import command
        from delayq.redis.connection.blocking import BlockingLeaf
        from delayq.redis.connection.server import ServerExecutor
        from delayq.redis.connection.leaf import drive
        from delayq.redis.connection.url import Address

        resource.setrlimit(resource.RLIMIT_NOFILE, (1_200, 1_200))
        open_files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
        call = command("BLPOP", "nothing", "0.01", parse=str)
        print(drive(ServerExecutor(BlockingLeaf(Address(sys.argv[1]))).run_all([call], block=0.01)))
    """
    assert run_program(program, url) == "['None']\n"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "The url '' is not the address of a Redis server."),
        ("redis://[::1", "The url 'redis://[::1' is not the address of a Redis server."),
        ("redis+cluster://[::1", "The url 'redis+cluster://[::1' is not the address of a Redis server."),
        ("redis://a b:1", "The url 'redis://a b:1' is not the address of a Redis server."),
        (
            "redis+sentinal://host/shop",
            "The url 'redis+sentinal://host/shop' is not the address of a Redis server. Write redis://host:6379/0, "
            "rediss://host:6379/0, unix:///path/to/redis.sock, redis+sentinel://host1:26379,host2:26379/SERVICE/0 or "
            "redis+cluster://host1:6379,host2:6379.",
        ),
        ("http://host", "The url 'http://host' is not the address of a Redis server."),
        ("redis://host/notadb", "The url 'redis://host/notadb' is not the address of a Redis server."),
        ("redis://:s3cret@host:port/0", "The url 'redis://:***@host:port/0' is not the address of a Redis server."),
        ("redis://:s3cret@host?colour=1", "The url 'redis://:***@host?colour=***' has an option that delayq does not"),
        (
            "redis://host?passwd=s3cret",
            "The url 'redis://host?passwd=***' has an option that delayq does not support: ",
        ),
        (
            "redis://host?credential_provider=s3cret",
            "The url 'redis://host?credential_provider=***' has an option that",
        ),
        (
            "redis://host?socket_timeout=1",
            "The url 'redis://host?socket_timeout=***' has an option that delayq does not",
        ),
        (
            "redis://host?ssl_cert_reqs=none",
            "The url 'redis://host?ssl_cert_reqs=***' has an option with an invalid",
        ),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_secrets(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        DelayQ(url)
    assert str(refused.value).startswith(sentence)
    assert "s3cret" not in str(refused.value)
    assert refused.value.field == "url"


@pytest.mark.parametrize(
    "option",
    [
        "ssl_keyfile=/key.pem",
        "ssl_certfile=/missing.pem",
        "ssl_certfile={folder}/text.pem",
        "ssl_ca_certs=/missing.pem",
        "ssl_ca_certs={folder}/text.pem",
        "ssl_ca_data=text",
        "ssl_ciphers=none-such",
    ],
)
def test_values_of_tls_are_refused_before_a_connection_is_tried(option: str, tmp_path: Path) -> None:
    (tmp_path / "text.pem").write_text("no certificate")
    secret, named = ("&ssl_password=s3cret", ", ssl_password") if HAS_SSL_PASSWORD else ("&password=s3cret", "")
    with pytest.raises(ConfigError) as refused:
        DelayQ(f"rediss://host?{option.format(folder=tmp_path)}{secret}")
    name = option.partition("=")[0]
    assert "has TLS options that cannot be used: " in str(refused.value)
    assert f"Check the values of {name}{named}. Certificates and keys must" in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("ssl_cert_reqs=s3cret", "Use none, optional or required."),
        ("ssl_check_hostname=maybe", "Use true or false."),
        ("ssl_min_version=TLSv1.3", "Use 771 for TLS 1.2, or 772 for TLS 1.3."),
        ("ssl_ca_path=/missing", "does not name an existing directory. Check the path."),
    ],
)
def test_values_of_tls_that_redis_py_would_accept_are_refused(option: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        DelayQ(f"rediss://host?{option}")
    assert f"The option {option.partition('=')[0]} of the url" in str(refused.value)
    assert str(refused.value).endswith(hint)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("option", ["ssl_ca_path=/etc/ssl/certs", "ssl_password=s3cret"])
def test_an_option_of_a_newer_redis_py_is_refused_by_an_older_one(option: str) -> None:
    if HAS_SSL_PASSWORD:
        DelayQ(f"rediss://host?{option}").close()
        return
    with pytest.raises(ConfigError, match=r"ssl_ca_path and ssl_password need redis-py 7\.2\."):
        DelayQ(f"rediss://host?{option}")


def test_an_unknown_option_of_a_url_is_told_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"does not support: 'passwd'\. Did you mean password\?"):
        DelayQ("redis://host?passwd=s3cret")


def test_options_of_a_url_are_taken_by_both_clients(url: str, server: redis.Redis) -> None:
    with DelayQ(f"{url}?client_name=shop&socket_connect_timeout=1") as client:
        client.schedule("n", delay="1h")
        assert "shop" in {row["name"] for row in server.client_list()}
    awaited = AsyncDelayQ(f"{url}?client_name=shop&socket_connect_timeout=1")
    assert asyncio.run(awaited.stats())[0].scheduled == 1


def test_the_protocol_stays_resp2_whatever_the_url_says(url: str, server: redis.Redis) -> None:
    with DelayQ(f"{url}?protocol=3") as client:
        client.schedule("n", delay="1h")
        assert client.upcoming(span="1d", spans=1).counts == [1]
        assert {row.get("resp", "2") for row in server.client_list()} == {"2"}


def test_a_client_that_is_closed_can_be_used_again(url: str, server: redis.Redis) -> None:
    client = DelayQ(f"{url}?client_name=to-close")
    client.schedule("n", delay="1h")
    assert "to-close" in [one["name"] for one in server.client_list()]
    client.close()
    wait_until(lambda: "to-close" not in [one["name"] for one in server.client_list()])
    assert client.queues() == ["default"]
    client.close()


def test_a_server_that_is_not_there_is_named_without_its_secrets() -> None:
    executor = ServerExecutor(BlockingLeaf(Address("unix://:s3cret@/nowhere.sock")), retry_timeout=0)
    with pytest.raises(BackendUnavailable, match=r"Redis at unix://:\*\*\*@/nowhere.sock cannot be reached"):
        drive(executor.run(COUNT))


def test_a_replica_that_takes_no_writes_is_asked_again() -> None:
    with private_server(["--replicaof", "127.0.0.1", "1"]) as replica:
        executor = ServerExecutor(BlockingLeaf(Address(replica)), retry_timeout=0.1)
        with pytest.raises(BackendUnavailable, match="is not ready: it is a read-only replica"):
            drive(executor.run(COUNT))


@pytest.mark.parametrize("try_timeout", [0.5, 2.0])
def test_the_time_of_one_try_is_an_argument(url: str, try_timeout: float) -> None:
    leaf = BlockingLeaf(Address(url), try_timeout=try_timeout)
    connection = drive(leaf.send(pack_command(("PING",))))
    sock: Any = connection._sock
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        seconds, microseconds = struct.unpack("ll", sock.getsockopt(socket.SOL_SOCKET, option, 16))
        assert seconds + microseconds / 1_000_000 == pytest.approx(try_timeout, abs=0.01)
    assert drive(leaf.receive(connection, 1)) == [b"PONG"]
    drive(leaf.close())
    tls = Address("rediss://localhost:1").blocking_connection(try_timeout)
    assert (tls.socket_timeout, tls.socket_connect_timeout) == (try_timeout, try_timeout)


def test_an_awaited_try_ends_after_its_time() -> None:
    """A server that accepts and never answers: the try ends, and the call reports it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address(f"redis://127.0.0.1:{silent.getsockname()[1]}")
        executor = make_executor(address, is_async=True, retry_timeout=0, try_timeout=0.05)
        with pytest.raises(BackendUnavailable, match=r"no reply came in time\. The request was not sent\."):
            asyncio.run(executor.run(COUNT))


def test_under_green_threads_a_try_ends_after_its_time() -> None:
    program = """
        from gevent import monkey
        monkey.patch_all()

        import socket
        from delayq.core.errors import BackendUnavailable
        from delayq.redis.calls.call import command
        from delayq.redis.connection.factory import make_executor
        from delayq.redis.connection.leaf import drive
        from delayq.redis.connection.url import Address

        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = Address(f"redis://127.0.0.1:{silent.getsockname()[1]}")
            try:
                drive(make_executor(address, retry_timeout=0, try_timeout=0.05).run(command("PING", parse=bytes)))
            except BackendUnavailable as error:
                print(error)
    """
    assert "no reply came in time" in run_program(program)


def test_a_client_needs_no_poll(url: str, server: redis.Redis) -> None:
    """Windows has none, and eventlet removes it."""
    program = """
        import select, sys
        del select.poll

        from delayq import DelayQ

        with DelayQ(sys.argv[1]) as client:
            print(*[client.schedule("n", id=id, delay="1h").outcome for id in "ab"])
    """
    assert run_program(program, url).split() == ["created", "created"]


@pytest.mark.parametrize("banner", [b"HTTP/1.0 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"])
def test_a_server_that_is_not_redis_is_told_as_one_that_cannot_be_reached(count: Any, banner: bytes) -> None:
    with (
        server_that_answers(*[banner] * 100) as url,
        pytest.raises(BackendUnavailable, match=r"The request was not sent\. Check that the url is the address of"),
    ):
        count(url, retry_timeout=0.5)
