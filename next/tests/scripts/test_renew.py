"""renew.lua: a consumer still works on its jobs."""

import pytest

from delayq.backends.values import DeliveryRef
from delayq.redis.calls.delivery import renew
from delayq.redis.keys import GROUP
from tests.support.queue import LEASE, OTHER, OURS, PLAIN, QueueOnServer

RESTED = LEASE - 5000


def resting(queue: QueueOnServer) -> set[str]:
    """Return the entries whose consumers were not heard of since `rest`."""
    return {row["message_id"] for row in queue.server.xpending_range(queue.stream, GROUP, "-", "+", 9, idle=RESTED)}


def test_the_leases_of_the_named_jobs_begin_anew(queue: QueueOnServer) -> None:
    one, two = queue.reserve("one", "two")
    queue.rest("one", "two", idle_ms=RESTED)
    renewed = queue.renew(one)
    assert (renewed.lease_ms, renewed.more, renewed.cancelled) == (LEASE, 1, [])
    assert resting(queue) == {two.entry}
    times = {row["times_delivered"] for row in queue.server.xpending_range(queue.stream, GROUP, "-", "+", 9)}
    assert times == {1}


def test_it_names_the_jobs_that_are_no_longer_the_consumers(queue: QueueOnServer) -> None:
    mine, gone = queue.reserve("mine", "gone")
    queue.hand_back(gone)
    queue.read(OTHER)
    before = queue.pending()
    held = [mine.ref, gone.ref, DeliveryRef("orders", "nobody", "1-1")]
    assert queue.run_raw(renew(queue.keys, "orders", OURS, held))[2] == [b"gone", b"nobody"]
    assert queue.pending() == before


def test_a_caller_with_another_entry_renews_nothing(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.rest("job", idle_ms=RESTED)
    queue.renew(DeliveryRef("orders", "job", "1-1"), DeliveryRef("orders", "other", job.entry))
    assert resting(queue) == {job.entry}


def test_it_tells_which_jobs_are_asked_to_stop_until_they_end(queue: QueueOnServer) -> None:
    one, two = queue.reserve("one", "two")
    queue.cancel("two", running=True)
    assert [queue.renew(one, two).cancelled for _ in range(2)] == [[("orders", "two")]] * 2
    queue.ack(two)
    assert queue.renew(one, two).cancelled == []


def test_a_deleted_consumer_gets_its_entries_back(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.server.xgroup_delconsumer(queue.stream, GROUP, OURS)
    assert queue.renew(job).more == 0
    assert queue.pending() == {job.entry: OURS}
    assert queue.ack(job)


def test_a_deleted_entry_is_not_held_again(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    (job,) = queue.reserve("job")
    queue.server.xack(queue.stream, GROUP, job.entry)
    queue.server.xdel(queue.stream, job.entry)
    queue.renew(job)
    assert queue.pending() == {}


def test_the_lease_of_the_queue_is_told(queue: QueueOnServer) -> None:
    queue.configure(5000)
    assert queue.renew().lease_ms == 5000


@pytest.mark.parametrize("is_lost", ["group", "stream"])
def test_without_group_or_stream_nothing_is_renewed(damaged_queue: QueueOnServer, is_lost: str) -> None:
    queue = damaged_queue
    (job,) = queue.reserve("job")
    if is_lost == "group":
        queue.server.xgroup_destroy(queue.stream, GROUP)
    else:
        queue.server.delete(queue.stream)
    held = [job.ref, DeliveryRef("orders", "nobody", "1-1")]
    with queue.unchanged():
        assert queue.run_raw(renew(queue.keys, "orders", OURS, held)) == [LEASE, 0, [b"nobody"], []]


def test_before_its_first_read_a_consumer_is_made_and_recorded(queue: QueueOnServer) -> None:
    queue.tidy()
    for name in ("dq:host:7:a12", "dq:host:7:a1", PLAIN):
        queue.renew(consumer=name)
    assert queue.rows("meta")["consumers"] == "dq:host:7:a12 dq:host:7:a1"
    assert queue.consumers() == {"dq:host:7:a12", "dq:host:7:a1"}
    with queue.unchanged():
        queue.renew(consumer="dq:host:7:a1")


def test_a_plain_consumer_renews_too(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job", consumer=PLAIN)
    queue.rest("job", idle_ms=RESTED)
    queue.renew(job, consumer=PLAIN)
    assert resting(queue) == set()
    assert "consumers" not in queue.rows("meta")


def test_500_jobs_are_renewed_in_one_call(queue: QueueOnServer) -> None:
    jobs = queue.reserve(*(f"job-{number}" for number in range(500)))
    assert queue.renew(*jobs).more == 0
