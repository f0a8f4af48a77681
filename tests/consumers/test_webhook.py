"""consumers/webhook: pushed by real workers to a real receiver; forged, stale and repeated requests."""

from __future__ import annotations

import base64
import http.client
import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from consumers.webhook.receiver import keys_of, verified
from delayq import DelayQ
from delayq.core.states import State
from delayq.jobs.notifications.signature import signed
from tests.consumers.programs import Program, running
from tests.support.waiting import wait_until

KEYS = [b"0123456789abcdef0123456789abcdef", b"another-key-of-32-bytes-in-length"]
OLD, NEW = ("whsec_" + base64.b64encode(key).decode() for key in KEYS)
BODY = json.dumps({"id": "o-1", "name": "order.close", "data": {"a": 1}}).encode()


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Program]:
    words = ["consumers/webhook/receiver.py", "--port", "0", "--seen", str(tmp_path / "done.sqlite3")]
    with running(words, tmp_path, WEBHOOK_SECRETS=f"{OLD}\n{NEW}") as program:
        wait_until(lambda: "listening" in program.complaints, what="it listens")
        yield program


def port_of(program: Program) -> int:
    found = re.search(r"listening on (\d+)", program.complaints)
    assert found is not None
    return int(found[1])


def posted(port: int, body: bytes, heads: Mapping[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", "/", body, dict(heads))
    status = connection.getresponse().status
    connection.close()
    return status


def test_pushed_jobs_arrive_and_trouble_brings_them_again(receiver: Program, redis_url: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{NEW}\n")
    words = ["--to", f"http://127.0.0.1:{port_of(receiver)}/", "--allow", "127.0.0.0/8", "--secret-file", str(secret)]
    folder = tmp_path / "worker"
    folder.mkdir()
    with DelayQ(redis_url) as q:
        q.schedule("order.close", {"order_id": 1}, id="o-1", queue="orders")
        q.schedule("order.close", {"trouble": "no"}, id="o-2", queue="orders", tries=2, backoff="10ms")
        push = ["-m", "delayq", "push", "orders", *words]
        with running(push, folder, DELAYQ_URL=redis_url) as worker:
            wait_until(lambda: _state(q, "o-2") is State.FAILED, what="o-2 has failed")
            wait_until(lambda: _state(q, "o-1") is None, what="o-1 is done")
            assert worker.terminate() == 0, worker.complaints
    assert sorted(receiver.ids()) == ["o-1", "o-2", "o-2"]
    assert receiver.terminate() == 0


def _state(q: DelayQ, job_id: str) -> State | None:
    job = q.get(job_id, queue="orders")
    return job.state if job else None


def test_the_same_request_again_is_answered_and_not_worked_on(receiver: Program) -> None:
    heads = signed(KEYS[:1], "orders:o-1:7", int(time.time()), BODY)
    assert [posted(port_of(receiver), BODY, heads) for _ in range(2)] == [204, 200]
    assert receiver.ids() == ["o-1"]


def test_forged_stale_and_unsigned_requests_are_refused(receiver: Program) -> None:
    port, now = port_of(receiver), int(time.time())
    good = signed(KEYS, "x", now, BODY)
    refused = [
        (BODY + b" ", good),
        (BODY, {**good, "webhook-id": "y"}),
        (BODY, {**good, "webhook-timestamp": str(now + 1)}),
        (BODY, signed([b"somebody-elses-key-that-is-long"], "x", now, BODY)),
        (BODY, signed(KEYS, "x", now - 3600, BODY)),
        (BODY, signed(KEYS, "x", now + 3600, BODY)),
        (BODY, {}),
        (BODY, {**good, "webhook-signature": " ".join(["v1,AAAA"] * 50)}),
    ]
    assert [posted(port, body, heads) for body, heads in refused] == [401] * len(refused)
    assert receiver.ids() == []


@pytest.mark.parametrize("signing", [KEYS[:1], KEYS[1:], KEYS, KEYS[::-1]])
@pytest.mark.parametrize("known", [OLD, NEW, f"{OLD} {NEW}"])
def test_two_keys_roll(signing: list[bytes], known: str) -> None:
    heads = signed(signing, "x", 1000, BODY)
    assert verified(keys_of(known), heads, BODY, 1200.0) is bool(set(keys_of(known)) & set(signing))


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_c2hvcnQ="])
def test_it_does_not_start_without_a_secret(text: str) -> None:
    with pytest.raises(SystemExit):
        keys_of(text)
