"""`delayq serve` as a process: its address, its end, its refusals; and what it says when Redis is away."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from delayq import DelayQ
from delayq.core.api_keys import Scope, format_line, new_key
from delayq.core.errors import ConfigError
from delayq.http.binding import Binding
from tests.support.cli import Cli, end, environment
from tests.support.machine import fair_clock
from tests.support.servers import OwnServer
from tests.support.waiting import wait_until
from tests.support.web import problem


@pytest.fixture
def cli(redis_url: str, tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(tmp_path, environment(DELAYQ_URL=redis_url))
    yield cli
    cli.close()


def serving(cli: Cli, *words: str) -> tuple[str, int]:
    """The address and the number of a server that was started."""
    process = cli.start("serve", *words)
    assert process.stdout is not None
    return process.stdout.readline().strip(), len(cli.running) - 1


def wait_long(url: str) -> None:
    """Ask for a job that does not come."""
    assert httpx.post(f"{url}/v1/queues/default/reservations", json={"wait": "50s"}, timeout=60).status_code == 200


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_ends_well(cli: Cli, redis_url: str, stop: signal.Signals) -> None:
    url, number = serving(cli, "--port", "0")
    with httpx.Client(base_url=url) as api:
        assert api.post("/v1/jobs", json={"name": "order.close", "id": "a", "delay": "1h"}).status_code == 201
        polling = threading.Thread(target=wait_long, args=(url,))
        polling.start()
        wait_until(lambda: api.get("/v1/workers").json()["workers"], what="the request waits in its line")
    process = cli.running[number]
    process.send_signal(stop)
    done = end(process)  # long before the minute that somebody waits for
    polling.join()
    assert (done.code, done.err.splitlines()[-1:]) == (0, [f"Serving the HTTP API of {redis_url}. Stop with Ctrl-C."])
    with DelayQ(redis_url) as delayq:
        assert delayq.get("a") is not None


def test_an_open_address_needs_a_key(cli: Cli, tmp_path: Path) -> None:
    refused = cli("serve", "--host", "0.0.0.0", "--port", "0")
    assert (refused.code, "without an API key" in refused.err) == (6, True)
    key, token = new_key(0, [Scope.ADMIN])
    (tmp_path / "keys").write_text(format_line(key))
    cli.env["DELAYQ_API_KEYS_FILE"] = str(tmp_path / "keys")
    line, _ = serving(cli, "--host", "0.0.0.0", "--port", "0", "--json")
    said = json.loads(line)
    url = said["url"].replace("0.0.0.0", "127.0.0.1")
    assert said["keys"] is True
    problem(httpx.delete(f"{url}/v1/jobs/a"), 401, "unauthorized")
    assert httpx.get(f"{url}/v1/queues", headers={"authorization": f"Bearer {token}"}).status_code == 200


def test_a_place_that_is_taken() -> None:
    with Binding(port=0).open() as taken:
        with pytest.raises(ConfigError, match="cannot be listened on: Address already in use"):
            Binding(port=taken.getsockname()[1]).open()
        assert Binding(port=0).url(taken).startswith("http://127.0.0.1:")
    with pytest.raises(ConfigError, match="is no address of this machine"):
        assert Binding("not an address").loopback
    assert Binding("::1", 80).loopback
    assert not Binding("0.0.0.0", 80).hosts
    assert Binding("127.0.0.1").hosts == {"localhost", "127.0.0.1", "::1"}


def test_nonsense_on_the_wire_harms_nobody(cli: Cli) -> None:
    url, _ = serving(cli, "--port", "0")
    port = int(url.rpartition(":")[2])
    for nonsense in (
        b"\x00" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"x" * 100_000,
        b"POST /v1/jobs HTTP/1.1\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port)) as wire:
            wire.sendall(nonsense)
    assert httpx.get(f"{url}/livez").status_code == 200


@pytest.mark.timed
def test_a_redis_that_dies_is_told_within_five_seconds(own_server: OwnServer, tmp_path: Path) -> None:
    server = own_server()
    cli = Cli(tmp_path, environment(DELAYQ_URL=server.url))
    try:
        url, _ = serving(cli, "--port", "0")
        with httpx.Client(base_url=url, timeout=30) as api:
            assert api.post("/v1/jobs", json={"name": "order.close"}).status_code == 201
            server.kill()
            asks: list[tuple[str, str, Any]] = [
                ("POST", "/v1/jobs", {"name": "order.close"}),
                ("GET", "/v1/queues", None),
                ("POST", "/v1/queues/default/reservations", {}),
            ]
            for method, path, body in asks:
                began = fair_clock()
                answer = api.request(method, path, json=body)
                assert fair_clock() - began < 6
                assert answer.status_code == 503, answer.text
                assert answer.headers["retry-after"]
                assert answer.headers["content-type"] == "application/problem+json"
            assert api.get("/readyz").status_code == 503
            assert api.get("/livez").status_code == 200
    finally:
        cli.close()


@pytest.mark.parametrize(("proxies", "secure"), [(["--trusted-proxy", "127.0.0.0/8"], True), ([], False)])
def test_a_cookie_is_secure_behind_a_trusted_proxy(cli: Cli, tmp_path: Path, proxies: list[str], secure: bool) -> None:
    key, token = new_key(0, [Scope.ADMIN])
    (tmp_path / "keys").write_text(format_line(key))
    cli.env["DELAYQ_API_KEYS_FILE"] = str(tmp_path / "keys")
    url, _ = serving(cli, "--port", "0", *proxies)
    answer = httpx.post(f"{url}/login", data={"key": token}, headers={"x-forwarded-proto": "https"})
    assert answer.status_code == 303
    assert ("secure" in answer.headers["set-cookie"].lower().replace(" ", "").split(";")) is secure


def test_a_proxy_is_an_address(cli: Cli) -> None:
    refused = cli("serve", "--port", "0", "--trusted-proxy", "proxy.example")
    assert (refused.code, "--trusted-proxy 'proxy.example' is not an IP address or network" in refused.err) == (2, True)
