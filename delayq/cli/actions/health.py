"""healthcheck."""

from __future__ import annotations

import http.client
import json
from typing import Final

from delayq.cli.session import Session
from delayq.core.views import QueueStats
from delayq.redis.client import Client
from delayq.worker.names import host_name

STILL_MS: Final = 10_000
"""A mover looks every second."""
ANSWER_S: Final = 5.0


def check(session: Session, role: str, port: int) -> int:
    """0 when the role is well, else 1, with one line that says why."""
    if role == "serve":
        why = _serve(port)
    else:
        with session.client() as client:
            why = {"worker": _worker, "mover": _mover, "redis": _redis}[role](client)
    session.out.line(why or "well")
    return 1 if why else 0


def _worker(client: Client) -> str:
    here = host_name()
    for worker in client.workers():
        if worker.about.get("host") == here:
            return ""
    return f"No worker of the host {here} has announced itself."


def _mover(client: Client) -> str:
    return next((sentence for stats in client.stats() if (sentence := _stands_still(stats))), "")


def _stands_still(stats: QueueStats) -> str:
    if not stats.scheduled or stats.paused:
        return ""
    still_ms = stats.now_ms - stats.mover_tick_ms
    return f"No mover looked at the queue {stats.queue} for {still_ms // 1000} s." if still_ms > STILL_MS else ""


def _redis(client: Client) -> str:
    client.control()
    return ""


def _serve(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    try:
        connection.request("GET", "/readyz", headers={"host": f"localhost:{port}"})
        answer = connection.getresponse()
        body = answer.read(65_536)
    except (OSError, http.client.HTTPException) as error:
        return f"Nothing answers on port {port}: {error!r}."
    finally:
        connection.close()
    return "" if answer.status == 200 else _why(answer.status, body)


def _why(status: int, body: bytes) -> str:
    try:
        said = json.loads(body).get("why", ())
        return " ".join(str(one) for one in said) or f"It answers with {status}."
    except (ValueError, AttributeError, TypeError):
        return f"It answers with {status}."
