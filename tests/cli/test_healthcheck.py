"""`delayq healthcheck`: what a container says of itself."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from delayq import DelayQ
from delayq.worker.names import host_name
from tests.cli.conftest import Inline
from tests.support.cli import Cli
from tests.support.servers import connect
from tests.support.waiting import wait_until


@contextmanager
def answering(status: int, body: bytes) -> Iterator[int]:
    """Something on a port that answers every GET like that."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_redis_answers(inline: Inline) -> None:
    assert inline.ok("healthcheck").out == "well\n"


@pytest.mark.parametrize("role", ["redis", "mover", "worker"])
def test_a_redis_that_is_away_is_its_own_code(inline: Inline, monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    monkeypatch.setenv("DELAYQ_URL", "redis://127.0.0.1:1/0")
    assert inline("healthcheck", "--role", role).code == 5


def test_a_worker_is_well_while_one_of_this_host_is_announced(cli: Cli, inline: Inline) -> None:
    done = inline("healthcheck", "--role", "worker")
    assert (done.code, done.out.startswith("No worker of the host ")) == (1, True)
    worker = cli.start("work", "--app", "shop", "--queue", "default")
    wait_until(lambda: inline("healthcheck", "--role", "worker").code == 0, what="it is announced")
    worker.terminate()
    worker.communicate(timeout=30)
    wait_until(lambda: inline("healthcheck", "--role", "worker").code == 1, what="it has left")


def test_a_mover_is_well_unless_jobs_wait_that_nobody_looks_at(inline: Inline, q: DelayQ) -> None:
    assert inline.ok("healthcheck", "--role", "mover").out == "well\n"
    q.schedule("order.close", delay="1h")
    done = inline("healthcheck", "--role", "mover")
    assert done.code == 1
    assert done.out == "No mover ever looked at the queue default.\n"
    inline.ok("move", "--once")
    assert inline.ok("healthcheck", "--role", "mover").out == "well\n"
    q.pause("default")


def test_a_worker_in_another_language_shows_itself_as_the_protocol_page_says(inline: Inline, cli: Cli) -> None:
    assert inline("healthcheck", "--role", "worker").code == 1
    about = {"name": "node-1", "queues": ["orders"], "host": host_name(), "state": "working", "done": 3}
    with connect(cli.env["DELAYQ_URL"]) as client:
        now_ms = int(client.time()[0]) * 1000
        client.set("delayq:worker:node-1", json.dumps(about), px=15_000)
        client.zadd("delayq:workers", {"node-1": now_ms + 15_000})
        client.sadd("delayq:queues", "orders")
        assert inline.ok("healthcheck", "--role", "worker").out == "well\n"
        [shown] = inline.ok("workers", "--json").documents
        assert (shown["name"], shown["queues"], shown["state"], shown["done"]) == ("node-1", ["orders"], "working", 3)
        client.delete("delayq:worker:node-1")
        client.zrem("delayq:workers", "node-1")
    assert inline("healthcheck", "--role", "worker").code == 1


def test_the_server_is_asked_whether_it_is_ready(inline: Inline) -> None:
    with answering(200, b'{"ready":true}') as port:
        assert inline.ok("healthcheck", "--role", "serve", "--port", str(port)).out == "well\n"
    why = json.dumps({"ready": False, "why": ["No mover ever looked at the queue orders."]}).encode()
    for body, said in ((why, "No mover ever looked at the queue orders."), (b"[]", "It answers with 503.")):
        with answering(503, body) as port:
            done = inline("healthcheck", "--role", "serve", "--port", str(port))
        assert (done.code, done.out) == (1, f"{said}\n")
    done = inline("healthcheck", "--role", "serve", "--port", "1")
    assert (done.code, "Nothing answers on port 1" in done.out) == (1, True)


def test_an_unknown_role_is_refused(inline: Inline) -> None:
    done = inline("healthcheck", "--role", "cook")
    assert (done.code, "worker, mover, serve, redis" in done.err) == (2, True)
