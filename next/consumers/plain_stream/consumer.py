"""Run the jobs of a delayq queue with redis-py only. This program does not import delayq.

python consumer.py orders                  acknowledge each job by XACK
python consumer.py orders --scripts lua    acknowledge each job by ack.lua; `delayq scripts export lua` writes it
"""

import argparse
import hashlib
import json
import os
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

GROUP = "delayq"
BLOCK_MS = 1_000


def handle(job: dict[str, Any]) -> None:
    """Do the work of one job. A job may run twice, so make this function idempotent."""
    data = job["data"] or {}  # a job without a payload has null
    time.sleep(data.get("seconds", 0))
    print(job["name"], job["id"], flush=True)


class Consumer:
    """Runs the jobs of one queue, one at a time, until `stopping` is set.

    `name` identifies this consumer. Give each process its own name, and use the same name again after a restart. Names
    that start with `dq:` belong to workers of delayq.
    """

    def __init__(self, client: redis.Redis, queue: str, name: str, scripts: Path | None) -> None:
        self.stopping = threading.Event()
        self._client: Any = client
        self._keys = f"delayq:{{{queue}}}:"
        self._stream = f"{self._keys}stream"
        self._name = name
        self._running = ""  # the entry of the job that runs now
        self._finished = ""  # the entry of the last job that was handled; Redis may not know this yet
        self._ack = ""  # the text of ack.lua; without it, jobs are acknowledged by XACK
        if scripts is not None:
            about = json.loads((scripts / "index.json").read_text())["ack"]
            self._ack = (scripts / about["file"]).read_text()
            self._ack_keys = [self._keys + key for key in about["keys"]]

    def run(self) -> None:
        """Read and run jobs. Start with jobs that an earlier process with this name received but did not settle."""
        threading.Thread(target=self._renew, daemon=True).start()
        after = "0"
        while not self.stopping.is_set():
            try:
                reply = self._client.xreadgroup(GROUP, self._name, {self._stream: after}, count=1, block=BLOCK_MS)
                rows = reply[0][1] if reply else []
                for entry, fields in rows:
                    self._process(entry, fields or {})
                if after != ">":
                    after = rows[-1][0] if rows else ">"
            except redis.RedisError as error:
                # NOGROUP means that the queue has no stream yet. After any other error, a reply with a job may have
                # been lost, so read the pending jobs of this consumer again.
                print(f"{error}; next try in 1 s", file=sys.stderr, flush=True)
                after = "0"
                self.stopping.wait(1)

    def _process(self, entry: str, fields: dict[str, str]) -> None:
        if not fields:  # somebody deleted the entry
            self._client.xack(self._stream, GROUP, entry)
            return
        self._running = entry
        try:
            job = json.loads(fields["job"])
            is_stopped = "stop" in fields  # somebody cancelled the job while an earlier consumer had it
            if entry != self._finished and not is_stopped:
                handle(job)
        except Exception as error:
            # The lease is no longer renewed. After its end, delayq delivers the job again.
            print(f"job {fields.get('id')} raised {error!r}", file=sys.stderr, flush=True)
        else:
            self._finished = entry
            if not self._settle(job, entry, alone=2 if is_stopped else 0):
                print(f"job {job['id']} was delivered to another consumer too", file=sys.stderr, flush=True)
        finally:
            self._running = ""

    def _settle(self, job: dict[str, Any], entry: str, *, alone: int) -> bool:
        """Acknowledge a job. Return False if the job no longer belongs to this consumer. `alone` is for ack.lua."""
        if not self._ack:
            return bool(self._client.xack(self._stream, GROUP, entry) == 1)
        row = [job["id"], entry, job.get("retention_ms") or 0, "", ""]
        words = [len(self._ack_keys), *self._ack_keys, "", alone, *row]
        try:
            answer = self._client.evalsha(hashlib.sha1(self._ack.encode()).hexdigest(), *words)
        except redis.exceptions.NoScriptError:
            answer = self._client.eval(self._ack, *words)  # the server then knows the script
        return bool(answer == [1])

    def _renew(self) -> None:
        """Renew the lease of the running job after each third of the lease."""
        pause = 0.0
        while True:
            time.sleep(pause)
            try:
                if self._running:
                    self._client.xclaim(self._stream, GROUP, self._name, 0, [self._running], justid=True)
                lease_ms = self._client.hget(f"{self._keys}meta", "lease_ms") or 30_000
                pause = int(lease_ms) / 3_000
            except redis.RedisError as error:
                print(f"the lease was not renewed: {error}", file=sys.stderr, flush=True)
                pause = 1.0


def main() -> None:
    """Read the command line, and run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser()
    parser.add_argument("queue")
    parser.add_argument("--scripts", type=Path)
    parser.add_argument("--name", default=socket.gethostname())
    given = parser.parse_args()
    client = redis.Redis.from_url(
        os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
        decode_responses=True,
        protocol=2,
        socket_timeout=BLOCK_MS / 1000 + 5,
        retry=Retry(NoBackoff(), 0),  # `run` must see each error, because the lost reply may have had a job
    )
    consumer = Consumer(client, given.queue, given.name, given.scripts)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: consumer.stopping.set())
    consumer.run()


if __name__ == "__main__":
    main()
