"""The bare protocol: the least that redis-py can do for the same result. The yardstick, not a product.

Nothing here checks an id, a conflict, a lease or an owner. Scripts touch two or three keys and are sent by redis-py
with hiredis on the same socket; ids and envelopes come ready made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

SCHEDULED: Final = "raw:scheduled"
JOBS: Final = "raw:jobs"
STREAM: Final = "raw:stream"
GROUP: Final = "raw"
CONSUMER: Final = "one"

SCHEDULE: Final = """
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return 1
"""

PROMOTE: Final = """
local due = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[2])
if #due == 0 then return 0 end
local envelopes = redis.call('HMGET', KEYS[2], unpack(due))
for i, id in ipairs(due) do redis.call('XADD', KEYS[3], '*', 'id', id, 'job', envelopes[i]) end
redis.call('ZREM', KEYS[1], unpack(due))
return #due
"""


class RawQueue:
    """The three keys, used by hand."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._schedule = _sha(SCHEDULE)
        self._promote = _sha(PROMOTE)
        self.load()

    def load(self) -> None:
        """Let the server know both scripts."""
        self.client.script_load(SCHEDULE)
        self.client.script_load(PROMOTE)

    def reset(self) -> None:
        """Forget every job; the group stays."""
        self.client.delete(SCHEDULED, JOBS, STREAM)
        self.client.xgroup_create(STREAM, GROUP, "0", mkstream=True)

    def forget(self, jobs: Sequence[tuple[str, bytes]]) -> None:
        """Drop the envelopes of jobs that were consumed: the bare loop leaves them behind."""
        for start in range(0, len(jobs), 1_000):
            self.client.hdel(JOBS, *(job_id for job_id, _ in jobs[start : start + 1_000]))

    def schedule_one(self, job_id: str, envelope: bytes, due_ms: int) -> None:
        """One EVALSHA, one round trip."""
        self.client.evalsha(self._schedule, 2, SCHEDULED, JOBS, job_id, due_ms, envelope)

    def schedule_many(self, jobs: Sequence[tuple[str, bytes]], due_ms: int, *, per_pipeline: int = 1_000) -> None:
        """One EVALSHA for each job, `per_pipeline` of them in a round trip."""
        for start in range(0, len(jobs), per_pipeline):
            pipe = self.client.pipeline(transaction=False)
            for job_id, envelope in jobs[start : start + per_pipeline]:
                pipe.evalsha(self._schedule, 2, SCHEDULED, JOBS, job_id, due_ms, envelope)
            pipe.execute()

    def promote_all(self, now_ms: int, batch: int = 500) -> int:
        """Batches until nothing is due; how many moved."""
        moved = 0
        while some := self.client.evalsha(self._promote, 3, SCHEDULED, JOBS, STREAM, now_ms, batch):
            moved += some
        return moved

    def consume_all(self, count: int = 100) -> int:
        """Read, acknowledge, delete, until nothing is left; how many came."""
        done = 0
        client = self.client
        while reply := client.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=count):
            rows = reply[0][1]
            entries = [row[0] for row in rows]
            client.xack(STREAM, GROUP, *entries)
            client.xdel(STREAM, *entries)
            done += len(entries)
        return done


def _sha(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
