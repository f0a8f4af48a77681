"""The bare protocol: the least that redis-py can do for the same result. The yardstick, not a product.

Nothing here checks an id, a conflict, a lease or an owner. Scripts touch two or three keys and are sent by redis-py
with hiredis on the same socket; ids and envelopes come ready made. What goes through Redis is the same on both sides:
the same envelopes, and stream entries with the same four fields.
"""

from __future__ import annotations

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
local due = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[2], 'WITHSCORES')
if #due == 0 then return 0 end
local ids = {}
for i = 1, #due, 2 do ids[#ids + 1] = due[i] end
local envelopes = redis.call('HMGET', KEYS[2], unpack(ids))
for i, id in ipairs(ids) do
  redis.call('XADD', KEYS[3], '*', 'id', id, 'job', envelopes[i], 'due', due[2 * i], 'recoveries', '0')
end
redis.call('ZREM', KEYS[1], unpack(ids))
return #ids
"""

# As above, for an entry that says less than the wire contract asks for: no due time, no count.
PROMOTE_LESS: Final = """
local ids = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[2])
if #ids == 0 then return 0 end
local envelopes = redis.call('HMGET', KEYS[2], unpack(ids))
for i, id in ipairs(ids) do redis.call('XADD', KEYS[3], '*', 'id', id, 'job', envelopes[i]) end
redis.call('ZREM', KEYS[1], unpack(ids))
return #ids
"""


class RawQueue:
    """The three keys, used by hand."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._schedule, self._promote, self._promote_less = map(client.script_load, (SCHEDULE, PROMOTE, PROMOTE_LESS))

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

    def promote_all(self, now_ms: int, *, less: bool = False) -> int:
        """Batches of 500 until nothing is due; how many moved. With `less`, entries hold id and job alone."""
        script, moved = self._promote_less if less else self._promote, 0
        while some := self.client.evalsha(script, 3, SCHEDULED, JOBS, STREAM, now_ms, 500):
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
