"""Fills a queue with far-future jobs from inside the server: millions in seconds, in the shape `schedule` leaves."""

from __future__ import annotations

from typing import Any, Final

from benchmarks import raw
from benchmarks.work import QUEUE, raw_jobs
from delayq.redis.keys import Keys

FAR_MS: Final = 3_000_000_000_000
_AT_ONCE: Final = 1_000

_FILL: Final = """
local at, step, from, count = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local before, after = ARGV[5], ARGV[6]
local places, jobs = {}, {}
for n = from, from + count - 1 do
  local id = string.format('far%023d', n)
  places[#places + 1], places[#places + 2] = string.format('%.0f', at + math.floor(n * step)), id
  jobs[#jobs + 1], jobs[#jobs + 2] = id, before .. id .. after
end
redis.call('ZADD', KEYS[1], unpack(places))
redis.call('HSET', KEYS[2], unpack(jobs))
"""


def fill(client: Any, prefix: str, count: int, *, first_ms: int = FAR_MS, step_ms: float = 1.0) -> None:
    """Put `count` jobs into delayq's queue: the first due at `first_ms` (in about fifty years), then one each step."""
    keys = Keys(prefix, QUEUE)
    _fill(client, keys.of("scheduled"), keys.of("jobs"), count, first_ms, step_ms)


def fill_raw(client: Any, count: int) -> None:
    """The same jobs into the bare protocol's two keys."""
    _fill(client, raw.SCHEDULED, raw.JOBS, count, FAR_MS, 1.0)


def _fill(client: Any, scheduled: str, jobs: str, count: int, first_ms: int, step_ms: float) -> None:
    job_id, envelope = raw_jobs(1)[0]
    before, after = envelope.split(job_id.encode())
    script = client.register_script(_FILL)
    for start in range(0, count, _AT_ONCE):
        some = min(_AT_ONCE, count - start)
        script([scheduled, jobs], [first_ms, repr(step_ms), start, some, before, after])
