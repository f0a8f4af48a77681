"""`delayq serve` under a flood from callers without a key: honest requests go on, memory and the log stay small."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from delayq.core.api_keys import Scope, format_line, new_key
from delayq.http.limits import BATCH_BODY, MAX_DEPTH, depth
from tests.support.cli import Cli, environment
from tests.support.machine import fair_clock
from tests.support.waiting import wait_until

HEAD_S = 10
"""What docs/http.md promises: a connection sends a whole head within so long."""


@pytest.fixture
def cli(redis_url: str, tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(tmp_path, environment(DELAYQ_URL=redis_url))
    yield cli
    cli.close()


def serve(cli: Cli, tmp_path: Path, descriptors: int = 0) -> tuple[str, str, int]:
    """Start a server that asks for keys; its address, the token of a write key, and its process id.

    `descriptors` is the hard limit it starts with; 0 leaves it as it is.
    """
    key, token = new_key(0, [Scope.WRITE])
    (tmp_path / "keys").write_text(format_line(key))
    cli.env["DELAYQ_API_KEYS_FILE"] = str(tmp_path / "keys")
    by = ("sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh") if descriptors else ()
    process = cli.start("serve", "--port", "0", by=by)
    assert process.stdout is not None
    return process.stdout.readline().strip(), token, process.pid


def connect(url: str, flood: ExitStack, count: int) -> list[socket.socket]:
    """Open that many connections and send nothing; `flood` closes them."""
    place = urlsplit(url)
    assert place.hostname
    assert place.port
    return [flood.enter_context(socket.create_connection((place.hostname, place.port))) for _ in range(count)]


def rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def closed_by_server(connection: socket.socket) -> bool:
    connection.setblocking(False)
    with suppress(BlockingIOError):
        try:
            return connection.recv(65536) == b""
        except ConnectionResetError:
            return True
    return False


def head(path: str, length: int, token: str = "") -> bytes:
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"{bearer}Content-Length: {length}\r\n\r\n"
    ).encode()


async def honest(url: str, token: str, count: int, per_s: float, name: str = "honest") -> list[float]:
    """Schedule `count` jobs at that rate, each over a connection of its own; how long each took, in seconds."""
    taken: list[float] = []
    headers = {"authorization": f"Bearer {token}"}

    async def one(number: int) -> None:
        async with httpx.AsyncClient(timeout=20) as client:
            start = time.monotonic()
            body = {"name": "order.close", "id": f"{name}-{number}", "delay": "1h"}
            answer = await client.post(f"{url}/v1/jobs", json=body, headers=headers)
            taken.append(time.monotonic() - start)
            assert answer.status_code == 201, answer.text

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(one(number))
            await asyncio.sleep(1 / per_s)
    return taken


def test_honest_requests_go_on_beside_a_flood(cli: Cli, tmp_path: Path) -> None:
    """More idle connections than descriptors, and 40 bodies that do not end: no request fails, memory is bounded."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    url, token, pid = serve(cli, tmp_path, descriptors=1024)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    try:
        with ExitStack() as flood:
            asyncio.run(honest(url, token, 20, 100, "before"))
            before = rss_mb(pid)
            connect(url, flood, 1500)
            for connection in connect(url, flood, 40):
                connection.sendall(head("/v1/jobs/batch", BATCH_BODY) + b"[" * 60_000)
            assert len(asyncio.run(honest(url, token, 200, 50))) == 200
            assert rss_mb(pid) - before <= 64
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    cli.running[0].terminate()
    assert len(cli.running[0].communicate(timeout=20)[1].splitlines()) <= 100


def test_a_body_is_not_read_before_the_key_is_known(cli: Cli, tmp_path: Path) -> None:
    url, token, _ = serve(cli, tmp_path)
    with ExitStack() as flood:
        for bearer in ("", "x", token + "x"):
            (connection,) = connect(url, flood, 1)
            connection.settimeout(20)
            connection.sendall(head("/v1/jobs/batch", BATCH_BODY, bearer) + b"[")
            assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")
        (known,) = connect(url, flood, 1)
        known.sendall(head("/v1/jobs", 2, token))
        known.settimeout(0.2)
        with pytest.raises(TimeoutError):  # it waits for the rest of the body
            known.recv(1)
        known.settimeout(20)
        known.sendall(b"{}")
        assert known.recv(65536).startswith(b"HTTP/1.1 422 ")


def test_bodies_that_do_not_end_share_a_bounded_memory(cli: Cli, tmp_path: Path) -> None:
    """Also with a key: what does not fit is refused with 503, small bodies always fit."""
    url, token, pid = serve(cli, tmp_path)
    httpx.get(f"{url}/livez")
    before = rss_mb(pid)
    part = b"[" * (BATCH_BODY - 1000)
    with ExitStack() as flood:
        answers = []
        for connection in connect(url, flood, 8):
            connection.settimeout(20)
            with suppress(OSError):  # a refused sender may find its connection closed
                connection.sendall(head("/v1/jobs/batch", BATCH_BODY, token) + part)
            connection.settimeout(0.5)
            with suppress(TimeoutError):
                answers.append(connection.recv(65536)[:13])
        assert b"HTTP/1.1 503 " in answers
        assert rss_mb(pid) - before <= 80
        assert len(asyncio.run(honest(url, token, 5, 50))) == 5


@pytest.mark.timed
def test_a_connection_sends_a_whole_head_in_time(cli: Cli, tmp_path: Path) -> None:
    url, _, _ = serve(cli, tmp_path)
    with ExitStack() as flood:
        idle, slow, again = connect(url, flood, 3)
        slow.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        again.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /livez HTTP/1.1\r\n")
        start, start_fair = time.monotonic(), fair_clock()
        wait_until(lambda: all(map(closed_by_server, (idle, slow, again))), timeout=30, what="all three are closed")
        assert time.monotonic() - start >= HEAD_S - 1
        assert fair_clock() - start_fair <= HEAD_S + 3


def test_two_framings_are_refused(cli: Cli, tmp_path: Path) -> None:
    """A proxy in front may believe the other one: the second request would be somebody else's."""
    url, token, _ = serve(cli, tmp_path)
    with ExitStack() as flood:
        (connection,) = connect(url, flood, 1)
        connection.settimeout(20)
        smuggled = b"0\r\n\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
        first = head("/v1/jobs", 5, token).replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(first + smuggled)
        said = b""
        while part := connection.recv(65536):
            said += part
        assert said.startswith(b"HTTP/1.1 400 ")
        assert said.count(b"HTTP/1.1 ") == 1


@pytest.mark.timed
def test_depth_takes_one_pass() -> None:
    """What took 2 s: 63 levels, again and again, up to the largest body. A scan of the bytes is the measure."""
    block = b"[" * 63 + b"]" * 63 + b","
    body = block * (BATCH_BODY // len(block))
    quotes = b'["[",' * (BATCH_BODY // 5)
    for hostile in (body, quotes):
        start = time.process_time()
        found = depth(hostile)
        assert found <= MAX_DEPTH or hostile is quotes
        assert time.process_time() - start <= 1.5


def test_depth_across_pieces() -> None:
    """Strings and escapes that lie across the pieces in which a large body is read."""
    for size in (2**20 - 1, 2**20, 2**20 + 1):
        text = b'["' + b"\\" * (size // 2 * 2) + b'\\"[[[["]'
        assert depth(b"[" * 30 + text + b"]" * 30 + b"," * MAX_DEPTH + b"[]" * MAX_DEPTH) == 31
        assert depth(b'["' + b"x" * size + b'"' + b",[" * 70 + b"]" * 71) > MAX_DEPTH
        assert depth(b'["' + b"[" * size + b'",' + b"[],[]," * MAX_DEPTH + b"1]") == 2
