"""The bare protocol: what redis-py does with such keys and nothing else.

One EVALSHA a job, 1,000 a pipeline; a loop of XREADGROUP, XACK and XDEL, 100 entries at a time. There is no mover.
"""

from __future__ import annotations

import json

import redis
import roles

STREAM, GROUP = "bench:stream", "bench"
ADD = """
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return redis.call('XADD', KEYS[1], '*', 'id', ARGV[1], 'job', ARGV[2])
"""


class Raw:
    """A stream and a hash, by hand."""

    def __init__(self) -> None:
        self.client = redis.Redis.from_url(roles.URL)
        self.sha = self.client.script_load(ADD)
        try:
            self.client.xgroup_create(STREAM, GROUP, "0", mkstream=True)
        except redis.ResponseError:
            self.client.ping()  # another one made it
        self.sent = 0

    def send(self, payloads: list[dict[str, object]], at: float) -> None:
        """Only now."""
        for start in range(0, len(payloads), 1_000):
            pipe = self.client.pipeline(transaction=False)
            for data in payloads[start : start + 1_000]:
                self.sent += 1
                pipe.evalsha(self.sha, 2, STREAM, "bench:jobs", f"{self.sent:026}", json.dumps(data))
            pipe.execute()

    def work(self) -> None:
        """Until it is ended."""
        name = f"c{id(self)}"
        while True:
            reply = self.client.xreadgroup(GROUP, name, {STREAM: ">"}, count=100, block=1_000)
            for _, rows in reply.items() if isinstance(reply, dict) else reply or ():
                rows = rows[0] if isinstance(rows[0], list) else rows
                for _, fields in rows:
                    roles.record(json.loads(fields[b"job"])["at"])
                entries = [row[0] for row in rows]
                self.client.xack(STREAM, GROUP, *entries)
                self.client.xdel(STREAM, *entries)


if __name__ == "__main__":
    raw = Raw()
    roles.main(raw.send, raw.work)
