"""Celery: the solo pool, prefetch 64, no gossip, mingle or heartbeat, results ignored. It has no bulk call."""

from __future__ import annotations

from datetime import UTC, datetime

import roles
from celery import Celery

app = Celery("bench", broker=roles.URL)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=64,
    broker_connection_retry_on_startup=True,
    task_default_queue="bench",
)


@app.task(name="note")
def note(data: dict[str, float]) -> None:
    roles.record(data["at"])


def send(payloads: list[dict[str, object]], at: float) -> None:
    due = datetime.fromtimestamp(at, UTC) if at else None
    for data in payloads:
        note.apply_async((data,), eta=due)


def work() -> None:
    options = ["--pool=solo", "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
    app.worker_main(["worker", *options])


if __name__ == "__main__":
    roles.main(send, work)
