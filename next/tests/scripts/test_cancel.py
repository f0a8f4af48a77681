"""cancel.lua: scheduled or ready -> absent; with a failure, archive, -> failed. test_table.py has its answers."""

import msgspec
import pytest

from delayq.core.failure import Failure
from delayq.core.states import State
from delayq.redis.calls import jobs as producer
from delayq.redis.scripts import load
from tests.support.queue import FAILURE, NOW, QueueOnServer, new_job


@pytest.mark.parametrize("state", ["scheduled", "ready"])
def test_a_cancelled_job_leaves_nothing(queue: QueueOnServer, state: State) -> None:
    queue.put("job", "reserved", lock="digest")
    queue.server.hset(queue.key("recoveries"), "job", 1)
    queue.release(queue.held("job"), 0)
    if state == "ready":
        queue.promote()
    queue.schedule("other", "+5000")
    assert queue.cancel("job", token="t") == "cancelled"
    assert queue.rows("jobs").keys() == {"other"}
    left = {queue.stream, queue.key("meta"), queue.key("jobs"), queue.key("scheduled"), f"{queue.key('once')}:t"}
    assert set(queue.server.keys()) == left
    assert queue.rows("meta")["cancelled_total"] == "1"


def test_a_running_job_is_asked_to_stop_only_on_request(queue: QueueOnServer) -> None:
    queue.put("job", "reserved")
    with queue.unchanged():
        assert queue.cancel("job") == "running"
    assert queue.cancel("job", running=True) == "running"
    assert queue.rows("cancel") == {"job": str(NOW)}


def test_the_worker_is_told_of_a_wish_to_stop_and_of_nothing_else(queue: QueueOnServer) -> None:
    queue.put("job", "reserved")
    queue.schedule("waiting", "+5000")
    with queue.listening(queue.keys.cancel) as listener:
        queue.cancel("job")
        queue.cancel("waiting", running=True)
        queue.cancel("unknown", running=True)
        assert listener.heard() == []
        queue.cancel("job", running=True)
        assert listener.heard() == ["orders job"]


def test_a_job_that_does_not_run_is_not_asked_to_stop(queue: QueueOnServer) -> None:
    queue.put("failed", "failed")
    queue.put("finished", "completed")
    with queue.unchanged():
        answers = [queue.cancel(id, running=True) for id in ("failed", "finished", "unknown")]
    assert answers == ["failed", "finished", "unknown"]


@pytest.mark.parametrize("failure", [b"", b'{"type":"E","message":"m"'])
def test_a_second_sending_gets_the_first_answer(queue: QueueOnServer, failure: bytes) -> None:
    queue.schedule("job", "+5000")
    first = queue.cancel("job", token="t", failure=failure)
    assert first == ("archived" if failure else "cancelled")
    queue.forget("job")
    queue.schedule("job", "+5000")
    with queue.unchanged():
        assert queue.cancel("job", token="t", failure=failure) == first
    assert 0 < queue.server.pttl(f"{queue.key('once')}:t") <= producer.ONCE_MS


def test_a_second_sending_after_a_refusal_looks_again(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    assert queue.cancel("job", token="t") == "running"
    queue.hand_back(job)
    assert queue.cancel("job", token="t") == "cancelled"


def test_a_full_server_still_says_how_things_are(queue: QueueOnServer) -> None:
    queue.put("job", "reserved")
    with queue.full(), queue.unchanged():
        assert [queue.cancel(id) for id in ("job", "unknown")] == ["running", "unknown"]


def test_a_wish_to_stop_that_waits_with_the_job_goes_with_it(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.cancel("job", running=True)
    queue.hand_back(job)
    assert queue.cancel("job", token="t") == "cancelled"
    assert queue.rows("cancel") == {}


@pytest.mark.parametrize("state", ["scheduled", "ready"])
def test_an_archived_job_fails_and_can_be_retried(queue: QueueOnServer, state: State) -> None:
    queue.schedule("job", "+1" if state == "scheduled" else "+0", lock="digest")
    queue.server.hset(queue.key("errors"), "job", FAILURE)
    assert queue.archive("job") == "archived"
    assert queue.times("failed") == {"job": NOW}
    failure = queue.failure_of("job")
    assert (failure.type, failure.at_ms, failure.history) == ("Archived", NOW, [Failure("E", "m")])
    assert queue.rows("meta")["failed_total"] == "1"
    assert queue.retry("job").answer == "scheduled"


def test_a_job_without_a_payload_cannot_be_archived(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    queue.schedule("job", "+5000")
    queue.server.hdel(queue.key("jobs"), "job")
    with queue.unchanged():
        assert queue.archive("job") == "unknown"


def test_only_a_job_that_holds_the_text_is_cancelled(queue: QueueOnServer) -> None:
    """A caller that cancels a batch names it: another job may have taken the id of a member."""
    queue.schedule_all(new_job("job", "+5000", envelope=b'{"batch":"b1"}'))
    call = producer.cancel(queue.keys, "orders", "job", token="t")
    script = load("cancel")
    place = 3 + len(script.keys) + script.arguments.index("only")
    for only, answer in (('"batch":"b2"', "unknown"), ('"batch":"b1"', "cancelled")):
        words = (*call.words[:place], only, *call.words[place + 1 :])
        assert queue.run(msgspec.structs.replace(call, words=words)) == answer
