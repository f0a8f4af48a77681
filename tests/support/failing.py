"""Jobs that have failed, or run, without a worker: read from the stream and settled by hand."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, TypeVar

from delayq import DelayQ
from delayq.core import failure as failures
from delayq.core.failure import Failure
from delayq.redis.calls import deliver
from delayq.redis.calls.call import Call
from delayq.redis.calls.deliver import Held
from delayq.redis.client import Client
from delayq.redis.keys import GROUP, Keys

T = TypeVar("T")


def take(q: Client, job_id: str, queue: str = "orders", consumer: str = "dq:test:1:a") -> Held:
    """Read the next ready job of a queue, which must be that one."""
    stream = Keys(q.options.prefix, queue).stream
    read = partial(_read, stream, consumer)
    entry, found = q.connector.call(read, safe=False)
    assert found == job_id, f"{found} was there before {job_id}"
    return Held(found, entry)


def _read(stream: str, consumer: str, client: Any) -> tuple[str, str]:
    reply = client.xreadgroup(GROUP, consumer, {stream: ">"}, count=1)
    rows = reply[stream.encode()][0] if isinstance(reply, dict) else reply[0][1]
    entry, fields = rows[0]
    return entry.decode(), fields[b"id"].decode()


def fail_job(q: DelayQ, job_id: str, message: str, queue: str = "orders", name: str = "order.close") -> None:
    """Schedule a job, read it, give it up. Nothing else may be ready in the queue."""
    q.schedule(name, {"token": "t0p-s3cret"}, delay="0s", id=job_id, queue=queue, tries=1)
    trace = f'Traceback (most recent call last):\n  File "shop.py", line 7\nValueError: {message}'
    failure = Failure("ValueError", message, trace, attempt=1)
    held = take(q, job_id, queue)
    done = q.run(_one(deliver.fail(q.verbs.scope(queue), [deliver.Failed(held, b"", failures.encode(failure))])))
    assert done == [True]


def _one(call: Call[T]) -> Generator[Call[T], T, T]:
    return (yield call)
