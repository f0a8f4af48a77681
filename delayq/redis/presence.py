"""What a worker says of itself, and the few things it reads beside its deliveries. Plain pipelines, each one trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from delayq.redis.calls.call import text
from delayq.redis.keys import Globals, Keys

Time = tuple[int, int]


class Here(NamedTuple):
    """A worker's announcement: JSON about itself, good for `ttl_ms` from `now_ms` (server's time) on."""

    name: str
    queues: Sequence[str]
    document: bytes
    now_ms: int
    ttl_ms: int


def announce(prefix: str, here: Here, client: Any) -> Time:
    """Write the announcement and make the queues known; answers the server's time."""
    names = Globals(prefix)
    pipe = client.pipeline(transaction=False)
    pipe.time()
    pipe.set(names.worker(here.name), here.document, px=here.ttl_ms)
    pipe.zremrangebyscore(names.workers, "-inf", here.now_ms)
    pipe.zadd(names.workers, {here.name: here.now_ms + here.ttl_ms})
    pipe.sadd(names.queues, *here.queues)
    seconds, micros = pipe.execute()[0]
    return seconds, micros


def leave(prefix: str, name: str, client: Any) -> None:
    """Take the announcement back."""
    names = Globals(prefix)
    pipe = client.pipeline(transaction=False)
    pipe.delete(names.worker(name))
    pipe.zrem(names.workers, name)
    pipe.execute()


def announced(prefix: str, client: Any) -> list[dict[str, Any]]:
    """The announcements of all workers that are here, by name."""
    names = Globals(prefix)
    workers = [text(name) for name in client.zrange(names.workers, 0, -1)]
    pipe = client.pipeline(transaction=False)
    for name in workers:
        pipe.get(names.worker(name))
    found: list[dict[str, Any]] = [msgspec.json.decode(document) for document in pipe.execute() if document]
    return sorted(found, key=lambda about: str(about.get("name")))


def server_time(client: Any) -> Time:
    """Redis TIME: seconds and microseconds."""
    seconds, micros = client.time()
    return seconds, micros


def paused(prefix: str, queues: Sequence[str], now_ms: int, client: Any) -> frozenset[str]:
    """Which of the queues are paused."""
    pipe = client.pipeline(transaction=False)
    for queue in queues:
        pipe.hget(Keys(prefix, queue).meta, "paused_until_ms")
    marks = zip(queues, pipe.execute(), strict=True)
    return frozenset(queue for queue, until in marks if until is not None and (until == b"0" or int(until) > now_ms))


def shortest_lease_ms(prefix: str, queues: Sequence[str], default_ms: int, client: Any) -> int:
    """The shortest lease of the queues; `default_ms` for one that has none yet."""
    pipe = client.pipeline(transaction=False)
    for queue in queues:
        pipe.hget(Keys(prefix, queue).meta, "lease_ms")
    return min(int(value or default_ms) for value in pipe.execute())


def failures_on_record(fields: Sequence[tuple[str, str]], client: Any) -> list[bytes]:
    """The failure on record for each (key, id); b'' where there is none."""
    pipe = client.pipeline(transaction=False)
    for key, job_id in fields:
        pipe.hget(key, job_id)
    return [value or b"" for value in pipe.execute()]


def idle_consumers(stream: str, group: str, idle_ms: int, client: Any) -> list[str]:
    """Consumers that hold nothing and have been silent that long."""
    if not client.exists(stream):
        return []
    rows = client.xinfo_consumers(stream, group)
    return [text(row["name"]) for row in rows if row["pending"] == 0 and row["idle"] >= idle_ms]


def present(prefix: str, workers: Sequence[str], client: Any) -> frozenset[str]:
    """Which of these workers are announced."""
    pipe = client.pipeline(transaction=False)
    for name in workers:
        pipe.exists(Globals(prefix).worker(name))
    return frozenset(name for name, here in zip(workers, pipe.execute(), strict=True) if here)
