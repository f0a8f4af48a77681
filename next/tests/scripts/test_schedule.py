"""schedule.lua: absent -> scheduled, absent -> ready."""

import pytest

from delayq.core.errors import BackendError
from tests.support.queue import NOW, SECOND, QueueOnServer


def test_a_later_job_waits_in_the_set(queue: QueueOnServer) -> None:
    placed = queue.schedule("later", f"+{5 * SECOND}")
    assert (placed.answer, placed.state, placed.due_ms) == ("created", "scheduled", NOW + 5 * SECOND)
    assert queue.place_of("later") == "scheduled"


def test_a_job_due_now_goes_into_the_stream(queue: QueueOnServer) -> None:
    placed = queue.schedule("now", str(NOW - SECOND))
    assert (placed.answer, placed.state, placed.due_ms) == ("created", "ready", NOW)
    assert queue.place_of("now") == "stream"


def test_a_job_due_now_does_not_overtake_an_older_one(queue: QueueOnServer) -> None:
    queue.schedule("older", "+0", now=NOW - SECOND)
    queue.schedule("due", "+10", now=NOW - SECOND)
    queue.schedule("newer", "+0")
    assert queue.place_of("newer") == "scheduled"


def test_a_paused_queue_lets_nothing_into_the_stream(queue: QueueOnServer) -> None:
    queue.server.hset(queue.key("meta"), "paused_until_ms", 0)
    assert queue.schedule("now").state == "scheduled"


def test_a_taken_id_is_kept(queue: QueueOnServer) -> None:
    queue.schedule("order-42", "+5000")
    assert queue.schedule("order-42", "+9000").answer == "kept"
    assert queue.schedule("order-42", "+9000", taken="conflict").answer == "conflict"
    assert queue.server.zscore(queue.key("scheduled"), "order-42") == NOW + 5000


def test_a_resent_call_gets_its_first_answer(queue: QueueOnServer) -> None:
    first = queue.schedule("now", token="t1")
    (delivery,) = queue.read()
    queue.ack(delivery)
    assert queue.schedule("now", token="t1") == first
    assert queue.place_of("now") == "nowhere"


def test_a_time_that_is_none_is_refused_before_anything_is_written(queue: QueueOnServer) -> None:
    with pytest.raises(BackendError, match="below 2\\^53"):
        queue.schedule("bad", "nan")
    assert queue.server.keys() == []


def test_an_earlier_head_wakes_the_mover(queue: QueueOnServer) -> None:
    listener = queue.server.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(queue.keys.wake)
    listener.get_message(timeout=1)
    queue.schedule("far", "+9000")
    queue.schedule("farther", "+9999")
    assert listener.get_message(timeout=1)["data"] == f"orders {NOW + 9000}"
    assert listener.get_message() is None
