"""What strangers write into Redis ends as a failed job, runs nothing, and costs a worker little memory."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import DelayQ
from delayq.core.envelope import UNKNOWN_SINCE
from tests.support.cli import Cli, environment
from tests.support.waiting import wait_until

MB = 1024 * 1024
MOST = 150 * MB
KEY = "delayq:{default}:"
JOBS = """
from pathlib import Path
from delayq import job

@job("harmless")
def harmless() -> None:
    Path("harmless").touch()
"""


# Fills are made in the server: what they cost is to be the worker's, not the wire's.
PLANT = """
local job = string.gsub(ARGV[2], 'FILL', function() return string.rep(string.rep('x', 1024), ARGV[3] / 1024) end)
local entry = redis.call('XADD', KEYS[1], '*', 'id', ARGV[1], 'job', job, 'due', '0', 'recoveries', '0')
redis.call('HSET', KEYS[2], ARGV[1], job)
redis.call('HSET', KEYS[3], ARGV[1], entry)
"""


class Opened:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return (Path.touch, (self.trace,))


def envelope(job_id: str, data: bytes, name: bytes = b"harmless") -> bytes:
    head = b'{"v":1,"id":"%s","name":"%s","queue":"default","attempts":0,"created_ms":0,"data":' % (
        job_id.encode(),
        name,
    )
    return head + data + b"}"


HOSTILE = {
    "bytes": bytes(range(256)) * 4,
    "deep": envelope("deep", b"[" * MB + b"]" * MB),
    "deeper": b"[" * MB,
    "longname": envelope("longname", b"1", b"n" * MB),
    **{job_id: envelope(job_id, b'"FILL"') for job_id in ("huge", "large", "larger")},
}
FILLS = {"huge": 60 * MB, "large": 40 * MB, "larger": 40 * MB}


IMPORTS = ("hostile_trap", "hostile_trap.run", "hostile_trap@run")
"""Names that would be imported by who takes names for paths."""


@pytest.fixture
def cli(redis_url: str, tmp_path: Path) -> Iterator[Cli]:
    (tmp_path / "hostile_shop.py").write_text(JOBS)
    (tmp_path / "hostile_trap.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    cli = Cli(tmp_path, environment(DELAYQ_URL=redis_url))
    yield cli
    cli.close()


def test_it_is_dead_lettered_and_costs_little(
    cli: Cli, redis_client: redis.Redis, redis_url: str, tmp_path: Path
) -> None:
    with DelayQ(redis_url) as q:
        q.schedule("harmless")
        worker = cli.start("work", "--app", "hostile_shop", "--no-mover", "--threads", "9")  # so many at once
        wait_until((cli.folder / "harmless").exists, what="the worker works")
        q.pause()
        before = peak(worker.pid)
        hostile = {"pickle": pickle.dumps(Opened(tmp_path / "unpickled")), **HOSTILE}
        for job_id, raw in hostile.items():
            keys = (f"{KEY}{key}" for key in ("stream", "jobs", "entries"))
            redis_client.eval(PLANT, 3, *keys, job_id, raw, FILLS.get(job_id, 0))
        q.resume()
        for name in IMPORTS:
            q.schedule(name, id=name, tries=1, headers={UNKNOWN_SINCE: "0"})  # for more than an hour
        ended = len(hostile) + len(IMPORTS)
        wait_until(lambda: q.stats("default")[0].failed == ended, timeout=60, what="all of it has failed")
        cost = peak(worker.pid) - before
        unknown = [q.get(name) for name in IMPORTS]
    failures = [json.loads(raw) for raw in redis_client.hmget(f"{KEY}errors", list(hostile)) if raw]
    assert [failure["type"] for failure in failures] == ["BadEnvelope"] * len(hostile)
    assert all(len(failure["message"]) < 200 for failure in failures)
    for job_id, fill in FILLS.items():
        assert redis_client.hstrlen(f"{KEY}jobs", job_id) > fill, "the bytes are kept"
    assert cost <= MOST, f"it cost {cost / MB:.0f} MB"
    assert {info.failure.type for info in unknown if info and info.failure} == {"UnknownJob"}
    assert not (tmp_path / "unpickled").exists()
    assert not (tmp_path / "imported").exists()
    worker.terminate()
    worker.communicate(timeout=60)


def peak(pid: int) -> int:
    """The most memory that any process of a worker ever had, in bytes."""
    return max(_of(one) for one in _tree(pid))


def _of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in _tree(int(child)))]
