"""What strangers wrote cannot steer a terminal: every command, with control characters in all that it shows."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import msgspec
import pytest
import redis

from delayq import DelayQ
from tests.cli.conftest import Inline
from tests.support.every_command import ALL, QUEUE

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2028\r\x00evil"
KEY = f"delayq:{{{QUEUE}}}:"


@pytest.fixture
def inline(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Inline:
    for name in [name for name in os.environ if name.startswith("DELAYQ_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DELAYQ_URL", redis_url)
    monkeypatch.setenv("DELAYQ_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Inline(capsys)


@pytest.fixture(autouse=True)
def planted(redis_client: redis.Redis, redis_url: str) -> None:
    """In names, payloads, errors, results, headers, workers, the log of deeds, limits, locks and batches."""
    with DelayQ(redis_url, queue=QUEUE) as q:
        for job_id in ("o1", "failed", "done", "odd", "held"):
            q.schedule("x", {"a": 1}, delay="1h", id=job_id, unique=f"key-{job_id}")
    data = {"text": EVIL, EVIL: EVIL}
    body = {"v": 1, "id": "o1", "name": EVIL, "queue": EVIL, "data": data, "attempts": 1, "created_ms": 0}
    more = {"headers": {EVIL: EVIL}, "tags": [EVIL], "unique": EVIL}
    raw = msgspec.json.encode({**body, **more})
    failure = msgspec.json.encode({"type": EVIL, "message": EVIL, "traceback": EVIL, "at_ms": 1, "attempt": 1})
    redis_client.hset(f"{KEY}jobs", mapping={"o1": raw, "failed": raw, "done": raw, "odd": EVIL})
    for job_id, place in (("failed", "failed"), ("odd", "failed"), ("done", "completed")):
        redis_client.zrem(f"{KEY}scheduled", job_id)
        redis_client.zadd(f"{KEY}{place}", {job_id: 1_900_000_000_000})
    redis_client.hset(f"{KEY}errors", mapping={"failed": failure, "odd": EVIL})
    redis_client.hset(f"{KEY}results", "done", EVIL)
    redis_client.hset(f"{KEY}progress", "o1", EVIL)
    said = {"name": EVIL, "host": EVIL, "pid": EVIL, "state": EVIL, "queues": [EVIL], "jobs": [EVIL]}
    redis_client.zadd("delayq:workers", {"w": 9_999_999_999_999, EVIL: 9_999_999_999_999})
    running = [{"queue": EVIL, "id": EVIL, "for_ms": 1}]
    for name in ("w", EVIL):
        redis_client.set(f"delayq:worker:{name}", msgspec.json.encode({**said, "running": running}), px=60_000)
    redis_client.xadd("delayq:audit", {"at": "1", "who": EVIL, "what": EVIL, "why": EVIL, "detail": EVIL, EVIL: EVIL})
    redis_client.sadd("delayq:limits", "lim")
    redis_client.zadd("delayq:{limit:lim}:places", {EVIL: 1})
    redis_client.zadd(f"delayq:{{limit:lim}}:holders:{EVIL}", {f"{QUEUE} o1 {EVIL}": 1})
    redis_client.zadd("delayq:batches", {"b1": 1})
    redis_client.hset("delayq:{batch:b1}:plan", mapping={"plan": msgspec.json.encode({"id": "b1", "name": EVIL})})
    redis_client.hset("delayq:control", mapping={"maintenance_until_ms": "0", "maintenance_reason": EVIL})
    redis_client.hset(f"{KEY}meta", mapping={"durability": EVIL, "lease_ms": "30000"})


@pytest.mark.foreign_keys("delayq:*")
def test_no_command_prints_one(inline: Inline) -> None:
    for words in (("batch", "show", "b1"), ("limit", "show", "lim"), ("failed", "show", "failed"), *ALL):
        done = inline("-v", *words)
        assert done.code in range(8), words
        wrong = {letter for letter in done.out + done.err if _steers(letter)}
        assert not wrong, f"delayq {' '.join(words)} printed {wrong}"
    for words in (("show", job_id) for job_id in ("failed", "done", "odd")):
        for some in ((*words, "--queue", QUEUE), (*words, "--queue", QUEUE, "--json")):
            done = inline(*some)
            assert not any(map(_steers, done.out + done.err)), some


def test_nor_what_was_typed(inline: Inline) -> None:
    for words in (("show", EVIL.replace("\0", "")), ("schedule", EVIL.replace("\0", "")), ("queue", "set", "a\x1b[2J")):
        done = inline(*words)
        assert not any(map(_steers, done.out + done.err)), words


def _steers(letter: str) -> bool:
    """A control or format character, or a separator of lines, but for the line's own end and tabs."""
    return letter not in "\n\t" and unicodedata.category(letter) in {"Cc", "Cf", "Zl", "Zp"}
