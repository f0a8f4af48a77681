"""progress.lua: what a running job reports of itself."""

from collections.abc import Callable

import msgspec
import pytest

from delayq.backends.values import Delivery
from delayq.core.errors import BackendError
from delayq.redis.calls.call import queue_call
from tests.support.queue import HOUR, NOW, QueueOnServer


def report(queue: QueueOnServer, job: Delivery, text: bytes = b'{"done":3', *, now: int = NOW) -> bool:
    return queue.report_progress((job.id, job.entry, text), now=now) == [1]


def test_the_last_report_is_read_with_the_job(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    assert report(queue, job)
    assert report(queue, job, b'{"done":4', now=NOW + 5)
    info = queue.get("job")
    assert info is not None
    assert info.progress == {"done": 4, "at_ms": NOW + 5}


def test_only_the_owner_of_a_job_reports(queue: QueueOnServer) -> None:
    one, two = queue.reserve("one", "two")
    rows = [("one", one.entry, b'{"n":1'), ("two", one.entry, b'{"n":2'), ("two", two.entry, b'{"n":3')]
    assert queue.report_progress(*rows, ("nobody", one.entry, b'{"n":4')) == [1, 0, 1, 0]
    with queue.unchanged():
        assert queue.report_progress() == []
    assert queue.rows("progress") == {"one": f'{{"n":1,"at_ms":{NOW}}}', "two": f'{{"n":3,"at_ms":{NOW}}}'}


def test_half_a_row_is_refused(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    call = queue_call("progress", queue.keys, "orders", list, now="", rows=[("job", job.entry, b"{")])
    with queue.unchanged(), pytest.raises(BackendError, match="complete rows of"):
        queue.run(msgspec.structs.replace(call, words=call.words[:-1]))


def _reclaim(queue: QueueOnServer, job: Delivery) -> None:
    queue.trust_leases()
    queue.rest(job.id)
    queue.reclaim()


def _lose_the_entry(queue: QueueOnServer, job: Delivery) -> None:
    queue.server.xdel(queue.stream, job.entry)
    assert queue.mend(job.id) == ["appended"]


END: dict[str, Callable[[QueueOnServer, Delivery], object]] = {
    "ack": lambda queue, job: queue.ack(job),
    "ack with retention": lambda queue, job: queue.ack(job, retention_ms=HOUR),
    "release": lambda queue, job: queue.release(job, 0),
    "fail": lambda queue, job: queue.fail(job),
    "hand_back": lambda queue, job: queue.hand_back(job),
    "recover": lambda queue, job: queue.recover(job),
    "reclaim": _reclaim,
    "mend": _lose_the_entry,
}


@pytest.mark.parametrize("end", END)
def test_the_report_goes_with_the_delivery(queue: QueueOnServer, end: str) -> None:
    job, other = queue.reserve("job", "other")
    report(queue, job)
    report(queue, other)
    END[end](queue, job)
    assert list(queue.rows("progress")) == ["other"]
    assert not report(queue, job)


def test_an_owner_that_comes_too_late_drops_no_report(queue: QueueOnServer) -> None:
    (old,) = queue.reserve("job")
    queue.hand_back(old)
    (new,) = queue.read()
    report(queue, new)
    queue.ack(old)
    assert list(queue.rows("progress")) == ["job"]
