"""RQ: its worker that does not fork, with the scheduler, results dropped."""

from __future__ import annotations

from datetime import UTC, datetime

import roles
import rq_tasks
from redis import Redis
from rq import Queue, SimpleWorker

connection = Redis.from_url(roles.URL)
queue = Queue("bench", connection=connection)


def send(payloads: list[dict[str, object]], at: float) -> None:
    if at:
        due = datetime.fromtimestamp(at, UTC)
        for data in payloads:
            queue.enqueue_at(due, rq_tasks.note, data, result_ttl=0)
        return
    made = [Queue.prepare_data(rq_tasks.note, args=(data,), result_ttl=0) for data in payloads]
    queue.enqueue_many(made)


def work() -> None:
    SimpleWorker([queue], connection=connection).work(with_scheduler=True, logging_level="ERROR")


if __name__ == "__main__":
    roles.main(send, work)
