"""The jobs that measures schedule, and what the server says about itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import redis

from delayq import DelayQ, JobSpec

QUEUE: Final = "default"
BATCH: Final = 250
PAYLOAD: Final = {"text": "x" * 89}
"""100 bytes of JSON."""


def batch(name: str = "noop", *, delay: str | None = None) -> list[JobSpec]:
    """Return a batch of jobs, ids left to delayq."""
    return [JobSpec(name=name, data=PAYLOAD, delay=delay) for _ in range(BATCH)]


def preload(url: str, count: int, name: str = "noop", *, delay: str | None = None) -> None:
    """Schedule `count` jobs, a multiple of a batch."""
    with DelayQ(url) as client:
        for _ in range(count // BATCH):
            client.schedule_many(batch(name, delay=delay))


@contextmanager
def plain_client(url: str) -> Iterator[Any]:
    """Give a client of redis-py, to look at the server. Untyped: its replies are typed for two worlds at once."""
    with redis.Redis.from_url(url, protocol=2, decode_responses=True) as client:
        yield client


def jobs_left(client: Any) -> int:
    """Count the jobs that are not done."""
    return int(client.hlen(f"delayq:{{{QUEUE}}}:jobs"))


def server_cpu(client: Any) -> float:
    """Return the seconds of processor time that the server has used. They count no waiting for a processor."""
    used = client.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])
