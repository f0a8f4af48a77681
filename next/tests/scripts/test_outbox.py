"""What follows a job: every script that ends one leaves its end in the outbox; outbox_read.lua and outbox_ack.lua."""

from collections.abc import Callable

import pytest
import redis

from delayq.backends.values import Acked, DeliveryRef, Failed
from delayq.redis.calls import delivery
from delayq.redis.calls.upkeep import Outbox
from tests.support.queue import FAILURE, HOUR, NOW, PLAIN, QueueOnServer, envelope_of, large_envelope, new_job

LINKED = {
    "chain": envelope_of("job", extra=',"chain":[1]'),
    "batch": envelope_of("job", extra=',"batch":"b1"'),
}
CHAINED = LINKED["chain"]


def _reclaim(queue: QueueOnServer, job: DeliveryRef) -> None:
    queue.trust_leases()
    queue.rest("job")
    queue.reclaim(max_recoveries=0)


ENDS: dict[str, tuple[str, Callable[[QueueOnServer, DeliveryRef], object]]] = {
    "ack": ("done", lambda queue, job: queue.ack(job)),
    "ack with retention": ("done", lambda queue, job: queue.ack(job, retention_ms=HOUR)),
    "ack, stopped": ("cancelled", lambda queue, job: queue.ack_stopped(job)),
    "fail": ("failed", lambda queue, job: queue.fail(job)),
    "reclaim": ("failed", _reclaim),
    "recover": ("failed", lambda queue, job: queue.recover(job, max_recoveries=0)),
    "cancel": ("cancelled", lambda queue, _: queue.cancel("job")),
    "archive": ("failed", lambda queue, _: queue.archive("job")),
    "replace": ("cancelled", lambda queue, _: queue.replace("job", "+5000")),
    "clear": ("cancelled", lambda queue, _: queue.clear()),
}
"""The word for each end of a job, and how it ends."""
RUNNING = ("ack", "ack with retention", "ack, stopped", "fail", "reclaim", "recover")


def end(queue: QueueOnServer, way: str, envelope: bytes) -> None:
    if way in RUNNING:
        queue.reserve("job", consumer=PLAIN, envelope=envelope)
        ENDS[way][1](queue, queue.held("job"))
    else:
        queue.schedule("job", "+5000", envelope=envelope)
        ENDS[way][1](queue, DeliveryRef("orders", "job", ""))


@pytest.mark.parametrize("kind", LINKED)
@pytest.mark.parametrize("way", ENDS)
def test_the_end_of_a_job_is_left_for_the_relay(queue: QueueOnServer, way: str, kind: str) -> None:
    end(queue, way, LINKED[kind])
    (row,) = queue.outbox()
    assert (row["ended"], row["job"]) == (ENDS[way][0], LINKED[kind].decode())
    assert ("failure" in row) == (row["ended"] == "failed")
    if way in ("reclaim", "recover"):
        assert "WorkerVanished" in row["failure"]
    elif way == "fail":
        assert row["failure"] == FAILURE.decode()


@pytest.mark.parametrize("way", ENDS)
def test_a_job_that_nothing_follows_leaves_nothing(queue: QueueOnServer, way: str) -> None:
    end(queue, way, envelope_of("job"))
    assert queue.outbox() == []


@pytest.mark.parametrize("way", ["ack", "fail"])
def test_it_is_left_once_and_by_the_owner_alone(queue: QueueOnServer, way: str) -> None:
    queue.reserve("job", envelope=CHAINED)
    job = queue.held("job")
    ENDS[way][1](queue, DeliveryRef("orders", "job", "1-1"))
    assert queue.outbox() == []
    for _ in range(2):
        ENDS[way][1](queue, job)
    assert len(queue.outbox()) == 1


def test_a_job_that_goes_on_leaves_nothing(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job", envelope=CHAINED)
    queue.release(job, 0, envelope=b"")
    queue.promote()
    queue.hand_back(queue.read()[0])
    queue.replace("job", "+5", word="postponed")
    queue.reschedule("job", "+9")
    assert queue.outbox() == []


@pytest.mark.parametrize("state", ["failed", "completed"])
def test_a_job_in_the_place_of_one_that_has_ended_ends_nothing(queue: QueueOnServer, state: str) -> None:
    (job,) = queue.reserve("job", envelope=CHAINED)
    if state == "failed":
        queue.fail(job)
    else:
        queue.ack(job, retention_ms=HOUR)
    queue.replace("job", "+5000")
    assert len(queue.outbox()) == 1


@pytest.mark.parametrize("way", ["ack", "fail"])
def test_a_caller_that_has_read_the_envelopes_says_that_nothing_follows(queue: QueueOnServer, way: str) -> None:
    queue.reserve("job", envelope=CHAINED)
    job = queue.held("job")
    if way == "ack":
        assert queue.ack_all(Acked("orders", job.id, job.entry), alone=True) == [True]
    else:
        assert queue.fail_all(Failed("orders", job.id, job.entry, b"", b""), alone=True) == [True]
    assert queue.outbox() == []


@pytest.mark.parametrize("way", ["ack", "fail"])
def test_a_lost_payload_is_read_in_its_entry(damaged_queue: QueueOnServer, way: str) -> None:
    queue = damaged_queue
    queue.reserve("job", envelope=CHAINED)
    queue.server.hdel(queue.key("jobs"), "job")
    ENDS[way][1](queue, queue.held("job"))
    assert queue.outbox()[0]["job"] == CHAINED.decode()


@pytest.mark.parametrize("way", [*RUNNING, "cancel", "archive", "clear"])
def test_a_full_server_takes_the_end_of_a_job(queue: QueueOnServer, way: str) -> None:
    if way in RUNNING:
        queue.reserve("job", envelope=CHAINED)
        job = queue.held("job")
        queue.trust_leases()
        queue.rest("job")
    else:
        queue.schedule("job", "+5000", envelope=CHAINED)
        job = DeliveryRef("orders", "job", "")
    with queue.full():
        if way == "reclaim":
            queue.reclaim(max_recoveries=0)
        else:
            ENDS[way][1](queue, job)
    assert len(queue.outbox()) == 1


@pytest.mark.parametrize("way", ["ack", "fail"])
def test_a_user_who_may_not_write_to_the_outbox_leaves_the_job_acknowledged(queue: QueueOnServer, way: str) -> None:
    """The janitor closes the job then, with what follows it."""
    (job,) = queue.reserve("job", consumer=PLAIN, envelope=CHAINED)
    call = (
        delivery.ack(queue.keys, "orders", [Acked("orders", job.id, job.entry, is_followed=True)])
        if way == "ack"
        else delivery.fail(queue.keys, "orders", [Failed("orders", job.id, job.entry, b"", b"", is_followed=True)])
    )
    queue.server.execute_command("ACL", "SETUSER", "narrow", "on", "nopass", "~*", "&*", "+@all", "-xadd")
    with queue.server.client() as narrow:
        narrow.execute_command("AUTH", "narrow", "")
        with pytest.raises(redis.ResponseError, match=r"permission|can't run this command"):
            narrow.execute_command(*call.words_with_text())
        narrow.connection.disconnect()
    queue.server.acl_deluser("narrow")
    assert (queue.pending(), queue.state_of("job")) == ({}, "reserved")
    assert [(row.id, row.verdict) for row in queue.outside_acks().found] == [("job", "acked")]


# --- the relay


def fill(queue: QueueOnServer, *ids: str) -> None:
    queue.schedule_all(*(new_job(id, "+5000", envelope=envelope_of(id, extra=',"chain":[1]')) for id in ids))
    for id in ids:
        queue.cancel(id)


def test_the_oldest_ends_are_read_first_and_acknowledged_by_entry(queue: QueueOnServer) -> None:
    fill(queue, "a", "b")
    assert queue.promote().owed == 2
    page = queue.read_outbox()
    assert (page.is_held, page.is_more) == (False, False)
    assert [row.ended for row in page.rows] == ["cancelled", "cancelled"]
    assert [envelope_of(id, extra=',"chain":[1]') for id in "ab"] == [row.envelope for row in page.rows]
    assert queue.read_outbox(after=page.rows[0].entry).rows == page.rows[1:]
    assert queue.ack_outbox(page.rows[0].entry, "1-1") == 1
    assert queue.read_outbox().rows == page.rows[1:]
    assert queue.ack_outbox(*(row.entry for row in page.rows)) == 1
    with queue.unchanged():
        assert (queue.ack_outbox(), queue.ack_outbox("1-1"), queue.read_outbox().rows) == (0, 0, [])


def test_one_relay_at_a_time_reads_the_outbox(queue: QueueOnServer) -> None:
    fill(queue, "a")
    assert queue.read_outbox("first", hold_ms=1000).rows
    with queue.unchanged():
        assert queue.read_outbox("second", hold_ms=1000, now=NOW + 999).is_held
    assert queue.read_outbox("first", hold_ms=1000, now=NOW + 500).rows
    assert queue.read_outbox("second", hold_ms=1000, now=NOW + 1500).rows


def test_a_hold_from_before_the_clock_went_back_is_over(queue: QueueOnServer) -> None:
    fill(queue, "a")
    queue.read_outbox("first", hold_ms=1000, now=NOW + HOUR)
    assert queue.read_outbox("second", hold_ms=1000).rows


def test_a_page_is_a_megabyte_but_one_end_at_least(queue: QueueOnServer) -> None:
    for size in (1_500_000, 600_000, 300_000):
        queue.server.xadd(queue.key("outbox"), {"ended": "done", "job": large_envelope(size)})
    pages: list[Outbox] = []
    after = "-"
    while not pages or pages[-1].is_more:
        pages.append(queue.read_outbox(after=after))
        after = pages[-1].rows[-1].entry
    assert [len(page.rows) for page in pages] == [1, 2]
