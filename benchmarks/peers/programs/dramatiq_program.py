"""dramatiq: eight threads, queue prefetch 1,000. It has no bulk call."""

from __future__ import annotations

import os
import signal
import threading
import time

import roles

os.environ["dramatiq_queue_prefetch"] = "1000"  # noqa: SIM112  # its own spelling
import dramatiq
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=roles.URL)
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=0)
def note(data: dict[str, float]) -> None:
    roles.record(data["at"])


def send(payloads: list[dict[str, object]], at: float) -> None:
    for data in payloads:
        if at:
            note.send_with_options(args=(data,), delay=max(0, int((at - time.time()) * 1000)))
        else:
            note.send(data)


def work() -> None:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    worker = dramatiq.Worker(broker, worker_threads=8)
    worker.start()
    ended.wait()
    worker.stop()


if __name__ == "__main__":
    roles.main(send, work)
