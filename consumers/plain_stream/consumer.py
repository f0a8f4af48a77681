"""A consumer of a delayq queue that knows nothing but Redis: redis-py, one stream, and one Lua file if you like.

    python consumers/plain_stream/consumer.py --queue orders                  XREADGROUP, handle, XACK
    python consumers/plain_stream/consumer.py --queue orders --settle ack     the same, settled by ack.lua

At least once: a job may come twice (this process may die after the work and before the XACK), so `handle` must
be able to meet the same id again. It must never claim entries of other consumers: delayq takes those back itself.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

GROUP, COUNT, BLOCK_MS = "delayq", 10, 2_000
ACK_LUA = Path(__file__).resolve().parents[2] / "scripts" / "lua" / "ack.lua"


def handle(job: dict[str, Any]) -> None:
    """Your work. Here: one line on stdout, and as many seconds as the payload asks for."""
    print(json.dumps({"id": job["id"], "name": job["name"], "data": job["data"]}), flush=True)
    if isinstance(job["data"], dict):
        time.sleep(job["data"].get("seconds", 0))


class PlainConsumer:
    """Reads one queue under one name. Give every instance a name of its own that stays the same over a restart."""

    def __init__(self, client: redis.Redis, prefix: str, queue: str, name: str, *, with_ack: bool) -> None:
        self.stop = threading.Event()
        self._client: Any = client  # redis-py types its streams too narrowly
        self._name, self._key = name, f"{prefix}:{{{queue}}}:%s"
        self._stream = self._key % "stream"
        self._held: set[bytes] = set()
        self._done = b""  # handled, but Redis went away before it was settled
        text = ACK_LUA.read_text(encoding="utf-8") if with_ack else ""
        self._ack = client.register_script(text) if text else None  # EVALSHA, and the text when Redis forgot it
        self._ack_keys = [self._key % role for role in re.findall(r"^-- KEYS\[\d+\] +(\w+)", text, re.MULTILINE)]

    def run(self) -> None:
        """Until `stop` is set: what is read by then is finished first."""
        threading.Thread(target=self._renew, name="renew", daemon=True).start()
        after = "0"  # first what was delivered under this name and never settled
        while not self.stop.is_set():
            try:
                read = self._client.xreadgroup(GROUP, self._name, {self._stream: after}, COUNT, BLOCK_MS)
                rows = read[0][1] if read else []
                self._held = {entry for entry, _ in rows}
                for entry, fields in rows:
                    self._one(entry, fields)
                after = ">" if after == ">" or not rows else rows[-1][0].decode()
            except redis.RedisError as error:
                # Also NOGROUP: the queue has never had a job. A lost reply may have brought some: ask for them first.
                print(f"{error}; again in a second", file=sys.stderr, flush=True)
                after = "0"
                self.stop.wait(1.0)

    def _one(self, entry: bytes, fields: dict[bytes, bytes]) -> None:
        try:
            job = json.loads(fields[b"job"]) if fields else None  # None: somebody deleted the entry under us
            if job is not None and entry != self._done:
                handle(job)
        except Exception as error:  # noqa: BLE001  (a job may raise anything; it must not end the consumer)
            # Neither settled nor renewed any more: delayq takes it back after the lease, three times at most.
            print(f"{entry.decode()}: {error!r}; left for delayq to take back", file=sys.stderr, flush=True)
        else:
            self._done = entry
            self._settle(entry, job)
        self._held.discard(entry)

    def _settle(self, entry: bytes, job: dict[str, Any] | None) -> None:
        if self._ack is None or job is None:
            self._client.xack(self._stream, GROUP, entry)  # the janitor closes the job within a minute
        elif self._ack(self._ack_keys, ["", job["id"], entry, job.get("retention_ms", 0), ""]) == [0]:
            print(f"{job['id']}: taken back meanwhile, somebody else runs it too", file=sys.stderr, flush=True)

    def _renew(self) -> None:
        """Every third of the queue's lease, for whatever is held: work may last as long as it likes."""
        pause_s = 0.0
        while True:
            time.sleep(pause_s)
            try:
                pause_s = int(self._client.hget(self._key % "meta", "lease_ms") or 30_000) / 3_000
                if held := list(self._held):
                    self._client.xclaim(self._stream, GROUP, self._name, 0, held, justid=True)
            except redis.RedisError as error:
                pause_s = 1.0
                print(f"not renewed: {error}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Consume a delayq queue with redis-py alone.")
    parser.add_argument("--url", default="redis://localhost:6379/0")
    parser.add_argument("--queue", default="default")
    parser.add_argument("--prefix", default="delayq")
    parser.add_argument("--name", default=socket.gethostname(), help="not of the form dq:…, those are delayq's own")
    parser.add_argument("--settle", choices=["xack", "ack"], default="xack")
    chosen = parser.parse_args()
    timeout_s = BLOCK_MS / 1000 + 5  # longer than the block, or redis-py gives up on a quiet queue
    client = redis.Redis.from_url(chosen.url, protocol=2, socket_timeout=timeout_s, retry=Retry(NoBackoff(), 0))
    consumer = PlainConsumer(client, chosen.prefix, chosen.queue, chosen.name, with_ack=chosen.settle == "ack")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: consumer.stop.set())
    consumer.run()


if __name__ == "__main__":
    main()
