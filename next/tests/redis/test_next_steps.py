"""Errors of servers that cannot be used contain the next step, whatever the kind of the address."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delayq.core.errors import BackendUnavailable, ConfigError, LoginRefused
from delayq.redis.calls.call import read
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.errors import check_mode, hint_of_lost
from delayq.redis.connection.factory import make_executor, parse_address
from delayq.redis.connection.leaf import ConnectionLost, drive
from delayq.redis.connection.sentinel import SentinelAddress
from tests.support.topologies import Server

KINDS = {"redis": "", "redis+sentinel": "/main", "redis+cluster": ""}
GET = read("GET", "key", parse=lambda reply: reply)


def message(kind: str, port: int, *, is_tls: bool = False) -> str:
    url = f"{kind}://127.0.0.1:{port}{KINDS[kind]}"
    address = parse_address(url.replace("redis", "rediss", 1) if is_tls else url)
    with pytest.raises((BackendUnavailable, LoginRefused)) as raised:
        drive(make_executor(address, retry_timeout=0.3, try_timeout=0.3).run(GET))
    return str(raised.value)


@contextmanager
def one_server(folder: Path, *options: str, password: str | None = None) -> Iterator[Server]:
    server = Server(folder, *options, password=password)
    try:
        yield server
    finally:
        server.end()


@pytest.mark.parametrize("kind", KINDS)
def test_a_port_without_tls(tmp_path: Path, kind: str) -> None:
    with one_server(tmp_path) as server:
        told = message(kind, server.port, is_tls=True)
        assert f"rediss://127.0.0.1:{server.port}" in told
        assert "that its port uses TLS, and whether the server demands a client certificate." in told


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_accepts_no_more_clients(tmp_path: Path, kind: str) -> None:
    with one_server(tmp_path) as server:
        server.client.config_set("maxclients", 1)
        told = message(kind, server.port)
    assert "max number of clients reached" in told
    assert "Raise `maxclients` of the server" in told


@pytest.mark.parametrize("kind", ["redis", "redis+cluster"])
def test_a_missing_password(tmp_path: Path, kind: str) -> None:
    form = {"redis": "redis://:password@host:6379/0", "redis+cluster": "redis+cluster://:password@host1:6379,host2"}
    with one_server(tmp_path, "--requirepass", "pw", password="pw") as server:
        assert f"Put the password into the url: {form[kind]}" in message(kind, server.port)


def test_a_url_with_a_password_has_the_form_of_the_url_of_the_user() -> None:
    service = "redis+sentinel://:password@host1:26379,host2:26379/SERVICE/0"
    assert SentinelAddress("redis+sentinel://h/main").primary("h", 1).form_with_password == service
    service = service.replace("redis+", "rediss+")
    assert SentinelAddress("rediss+sentinel://h/main").primary("h", 1).form_with_password == service
    assert parse_address("unix:///x.sock").form_with_password == "unix://:password@/path/to/redis.sock"  # type: ignore[union-attr]


def test_the_reason_of_each_node_or_sentinel_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(leaf: BlockingLeaf, request: bytes, *, within: float | None = None) -> None:
        reason = "certificate verify failed" if "h1" in leaf.where else "no reply came in time"
        raise ConnectionLost(reason, sent=False)

    monkeypatch.setattr(BlockingLeaf, "send", refuse)
    for url in ("rediss+cluster://h1,h2,h3", "rediss+sentinel://h1,h2,h3/main"):
        executor = make_executor(parse_address(url), retry_timeout=1.0)
        with pytest.raises(BackendUnavailable) as raised:
            drive(executor.run(GET))
        assert "h3" in raised.value.message
        assert raised.value.message.count("certificate verify failed; no reply came in time.") == 1
        assert "name the file with the CA certificate of the server" in raised.value.hint


@pytest.mark.parametrize(
    ("mode", "form"), [("cluster", "redis+cluster://host1"), ("sentinel", "redis+sentinel://host1")]
)
def test_the_next_step_has_tls_if_the_url_of_the_user_has_it(mode: str, form: str) -> None:
    hello = [b"server", b"redis", b"mode", mode.encode()]
    with pytest.raises(LoginRefused, match=f"Write {re.escape(form)}"):
        check_mode(hello, "redis://h:1")
    with pytest.raises(LoginRefused, match=f"Write {re.escape(form.replace('redis', 'rediss', 1))}"):
        check_mode(hello, "rediss://h:1")


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("rediss+sentinel://h1", "Write rediss+sentinel://host1:26379,host2:26379/SERVICE/0."),
        ("rediss+cluster://h1:x", "Write rediss+cluster://host1:6379,host2:6379."),
    ],
)
def test_the_form_of_a_wrong_url_has_tls(url: str, form: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(form)):
        parse_address(url)


def test_a_refused_client_certificate_is_named() -> None:
    demanded = hint_of_lost("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", "rediss://h")
    assert demanded.startswith("The server demands a client certificate")
    refused = hint_of_lost("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:2580)", "rediss://h")
    assert refused == "In ssl_certfile, name a client certificate that is signed by a CA that the server accepts."
