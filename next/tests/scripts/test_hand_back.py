"""hand_back.lua: reserved -> ready. test_settle.py has what it shares with the other scripts that settle."""

from delayq.backends.values import DeliveryRef
from tests.support.queue import NOW, OTHER, QueueOnServer, envelope_of, large_envelope


def test_a_job_handed_back_joins_the_tail_under_a_new_entry(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.schedule("other")
    queue.cancel("job", running=True)
    assert queue.hand_back(job, now=NOW + 7)
    assert queue.in_stream() == ["other", "job"]
    assert queue.entries()[1] == {
        "id": "job",
        "job": envelope_of("job").decode(),
        "due": str(NOW),
        "recoveries": "0",
        "stop": "1",
    }
    assert queue.pending() == {}
    again = queue.read(OTHER)[1]
    assert (again.entry != job.entry, again.recoveries, again.is_stopping) == (True, 0, True)


def test_what_the_janitor_found_unheld_does_not_count_as_handed_back(queue: QueueOnServer) -> None:
    one, two = queue.reserve("one", "two")
    assert queue.hand_back(one, unheld=True)
    assert "handed_back_total" not in queue.rows("meta")
    with queue.unchanged():
        assert not queue.hand_back(one, unheld=True)
    queue.hand_back(two)
    assert queue.rows("meta")["handed_back_total"] == "1"


def test_a_job_that_comes_twice_in_a_call_is_handed_back_once(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    assert queue.hand_back_all(job, job) == [True, False]


def test_the_failures_stay(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.server.hset(queue.key("recoveries"), "job", 2)
    queue.server.hset(queue.key("errors"), "job", "{}")
    queue.hand_back(job)
    assert queue.rows("errors") == {"job": "{}"}
    assert queue.entries()[0]["recoveries"] == "2"


def test_what_another_consumer_holds_stays_with_it(queue: QueueOnServer) -> None:
    (mine,) = queue.reserve("mine")
    (theirs,) = queue.reserve("theirs", consumer=OTHER)
    queue.hand_back(mine)
    assert queue.pending() == {theirs.entry: OTHER}


def test_a_trimmed_entry_comes_back_from_the_payload(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.server.xtrim(queue.stream, maxlen=0, approximate=False)
    assert queue.hand_back(job, now=NOW + 7)
    assert queue.entries() == [
        {"id": "job", "job": envelope_of("job").decode(), "due": str(NOW + 7), "recoveries": "0"}
    ]


def test_a_lost_payload_comes_back_from_the_entry(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.server.hdel(queue.key("jobs"), "job")
    assert queue.hand_back(job)
    assert queue.rows("jobs") == {"job": envelope_of("job").decode()}


def test_without_either_the_job_is_left_where_it_is(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    (job,) = queue.reserve("job")
    queue.server.xdel(queue.stream, job.entry)
    queue.server.hdel(queue.key("jobs"), "job")
    with queue.unchanged():
        assert not queue.hand_back(job)


def test_without_a_stream_nothing_is_handed_back(damaged_queue: QueueOnServer) -> None:
    """A stream without its group would be damage of our own; mend finds the job."""
    queue = damaged_queue
    (job,) = queue.reserve("job")
    queue.server.delete(queue.stream)
    with queue.unchanged():
        assert not queue.hand_back(job)


def test_a_paused_queue_takes_a_job_back(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.pause()
    queue.hand_back(job)
    assert queue.state_of("job") == "ready"


def test_a_call_looks_at_100_jobs_and_a_megabyte(queue: QueueOnServer) -> None:
    many: list[DeliveryRef] = [job.ref for job in queue.reserve(*(f"job-{number:03}" for number in range(101)))]
    assert len(queue.hand_back_all(*many)) == 100
    assert queue.hand_back_all(*many[100:]) == [True]
    queue.clear()
    large = queue.reserve("a", "b", "c", envelope=large_envelope(600_000))
    assert [len(queue.hand_back_all(*large[n:])) for n in range(3)] == [1, 1, 1]
