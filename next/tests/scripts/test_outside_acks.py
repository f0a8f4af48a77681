"""outside_acks.lua: which delivered entries are no longer pending, and what became of them."""

import pytest

from delayq.redis.calls.upkeep import OutsideAck, OutsideAcks
from delayq.redis.keys import GROUP
from tests.support.queue import OTHER, OURS, PLAIN, QueueOnServer, large_envelope


def xack(queue: QueueOnServer, *ids: str) -> None:
    for id in ids:
        assert queue.server.xack(queue.stream, GROUP, queue.held(id).entry) == 1


def verdicts(queue: QueueOnServer) -> dict[str, str]:
    return {row.id: row.verdict for row in queue.outside_acks().found}


def test_work_in_progress_is_left_alone(queue: QueueOnServer) -> None:
    queue.reserve("a", consumer=PLAIN)
    queue.renew(consumer=OURS)
    queue.reserve("b")
    queue.schedule("c")
    with queue.unchanged():
        assert queue.outside_acks() == queue.outside_acks(scope="all") == OutsideAcks("", "|", [])


def test_what_a_plain_consumer_acknowledged_is_done(queue: QueueOnServer) -> None:
    _, two = queue.reserve("one", "two", consumer=PLAIN)
    xack(queue, "two")
    with queue.unchanged():
        assert queue.outside_acks().found == [OutsideAck(two.entry, "two", "acked")]


def test_without_a_plain_consumer_nothing_counts_as_acknowledged(queue: QueueOnServer) -> None:
    queue.reserve("job")
    xack(queue, "job")
    assert verdicts(queue) == {"job": "again"}


@pytest.mark.parametrize("name", ["dq:host", "dq:host:x:a", "dq::1:a", "Dq:h:1:a", "dq:h:1:a b", "worker-1", "dq:h:1:"])
def test_every_other_form_of_name_is_a_plain_consumer(queue: QueueOnServer, name: str) -> None:
    queue.reserve("job", consumer=name)
    xack(queue, "job")
    assert verdicts(queue) == {"job": "acked"}


@pytest.mark.parametrize("was_seen", [False, True])
def test_what_a_vanished_consumer_of_delayq_held_is_delivered_again(queue: QueueOnServer, was_seen: bool) -> None:
    """Once one has vanished, an acknowledgement is in doubt too."""
    queue.reserve("plain", consumer=PLAIN)
    queue.renew()
    queue.reserve("ours")
    if was_seen:
        queue.outside_acks()
    xack(queue, "plain")
    queue.server.xgroup_delconsumer(queue.stream, GROUP, OURS)
    assert verdicts(queue) == {"plain": "again", "ours": "again"}
    assert queue.rows("meta")["vanished"].split() == [OURS]
    assert queue.rows("meta")["consumers"] == ""


def test_after_a_pass_that_found_nothing_acknowledgements_count_again(queue: QueueOnServer) -> None:
    queue.reserve("plain", consumer=PLAIN)
    queue.renew()
    (job,) = queue.reserve("ours")
    queue.server.xgroup_delconsumer(queue.stream, GROUP, OURS)
    assert verdicts(queue) == {"ours": "again"}
    assert "vanished" in queue.rows("meta")
    queue.hand_back(job)
    assert verdicts(queue) == {}
    assert "vanished" not in queue.rows("meta")
    xack(queue, "plain")
    assert verdicts(queue) == {"plain": "acked"}


def test_a_consumer_that_left_in_order_has_not_vanished(queue: QueueOnServer) -> None:
    queue.reserve("plain", consumer=PLAIN)
    queue.renew()
    (job,) = queue.reserve("ours")
    queue.ack(job)
    queue.remove_consumer()
    xack(queue, "plain")
    assert verdicts(queue) == {"plain": "acked"}


def test_a_new_consumer_is_recorded(queue: QueueOnServer) -> None:
    queue.reserve("job", consumer=OTHER)
    queue.outside_acks()
    assert queue.rows("meta")["consumers"] == OTHER


def test_the_marks_go_only_after_a_whole_pass_that_began_with_them(queue: QueueOnServer) -> None:
    queue.reserve(*(f"job-{number}" for number in range(520)), consumer=PLAIN)
    queue.renew()
    first = queue.outside_acks()
    assert (first.found, first.after) == ([], queue.held("job-499").entry)
    queue.server.xgroup_delconsumer(queue.stream, GROUP, OURS)
    assert queue.outside_acks(first.after, first.marks).after == ""
    assert "vanished" in queue.rows("meta")
    first = queue.outside_acks()
    assert "vanished" in queue.rows("meta")
    assert queue.outside_acks(first.after, first.marks).found == []
    assert "vanished" not in queue.rows("meta")


def test_pending_rows_of_deleted_entries_hide_no_work(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    jobs = queue.reserve(*(f"job-{number}" for number in range(60)), consumer=PLAIN)
    queue.server.xdel(queue.stream, *(job.entry for job in jobs[5:35]))
    assert queue.outside_acks().found == queue.outside_acks(scope="all").found == []


def test_an_acknowledged_entry_of_no_job_is_garbage(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    queue.tidy()
    entry = queue.server.xadd(queue.stream, {"foreign": "entry"})
    queue.read()
    queue.server.xack(queue.stream, GROUP, entry)
    found = [OutsideAck(entry, "", "garbage")]
    assert queue.outside_acks().found == queue.outside_acks(scope="all").found == found


@pytest.mark.parametrize("is_held", [False, True])
def test_garbage_elsewhere_is_looked_for_only_on_request(damaged_queue: QueueOnServer, is_held: bool) -> None:
    queue = damaged_queue
    queue.schedule("job")
    entry = queue.server.xadd(queue.stream, {"id": "job", "job": "copy"})
    if is_held:
        queue.read()
    assert queue.outside_acks().found == []
    assert queue.outside_acks(scope="all").found == [OutsideAck(entry, "job", "garbage")]


def test_a_page_is_a_megabyte_but_one_entry_at_least(queue: QueueOnServer) -> None:
    for id, size in (("a", 600_000), ("b", 600_000), ("c", 1_500_000)):
        queue.reserve(id, envelope=large_envelope(size))
    page = queue.outside_acks()
    assert page.after == queue.held("b").entry
    page = queue.outside_acks(page.after, page.marks)
    assert page.after == queue.held("c").entry
    assert queue.outside_acks(page.after, page.marks).after == ""


@pytest.mark.parametrize("is_lost", ["group", "stream"])
def test_without_group_or_stream_there_is_no_verdict(damaged_queue: QueueOnServer, is_lost: str) -> None:
    queue = damaged_queue
    queue.reserve("job")
    if is_lost == "group":
        queue.server.xgroup_destroy(queue.stream, GROUP)
    else:
        queue.server.delete(queue.stream)
    with queue.unchanged():
        assert queue.outside_acks(scope="all") == OutsideAcks("", "", [])
