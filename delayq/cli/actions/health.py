"""healthcheck."""

from __future__ import annotations

import http.client
import json
from typing import Final

from delayq.cli.session import Session
from delayq.core.diagnosis import refused
from delayq.core.standstill import last_look_ms, no_mover
from delayq.redis.client import Client
from delayq.redis.server_state import server_states
from delayq.worker.names import host_name

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
    stats = client.stats()
    looked_ms = last_look_ms(stats)
    return next((sentence for one in stats if (sentence := no_mover(one, looked_ms))), "")


def _redis(client: Client) -> str:
    states = server_states(client.connector, client.options.prefix)
    return next((sentence for state in states if (sentence := refused(state))), "")


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
