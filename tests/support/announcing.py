"""Workers that are announced and not there, for pages and routes that show them."""

from __future__ import annotations

import json
from typing import Any

import redis


def announce(url: str, name: str, queues: list[str], **about: Any) -> None:
    """Announce a process of a worker for ten minutes."""
    said = {"name": name, "queues": queues, "state": "working", "host": "web-1", "pid": 4712, "runs": 0, **about}
    with redis.Redis.from_url(url) as server:
        server.set(f"delayq:worker:{name}", json.dumps(said), ex=600)
        server.zadd("delayq:workers", {name: 2**52})


def order_of(url: str, worker: str) -> str:
    """What a worker was told, '' = nothing."""
    with redis.Redis.from_url(url) as server:
        word = server.get(f"delayq:order:{worker}")
        return word.decode() if isinstance(word, bytes) else ""
