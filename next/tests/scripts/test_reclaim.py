"""reclaim.lua: reserved -> ready, reserved -> failed. renew.lua keeps jobs from it."""

import time

from delayq.redis.commands.delivery import read_pending, renew
from tests.support.queue import LEASE, NOW, QueueOnServer


def test_after_a_standstill_no_lease_is_trusted_for_one_lease(queue: QueueOnServer) -> None:
    queue.schedule("job")
    assert queue.reclaim(now=NOW).hold_ms == LEASE
    assert queue.reclaim(now=NOW + LEASE // 3).hold_ms == LEASE - LEASE // 3
    assert queue.reclaim(now=NOW + LEASE).hold_ms == LEASE


def test_what_nobody_renewed_for_a_lease_is_taken_back(queue: QueueOnServer) -> None:
    queue.schedule("job")
    queue.server.hset(queue.key("meta"), "lease_ms", 10)
    queue.read("dq:a:1:x")
    time.sleep(0.02)
    answers = [queue.reclaim(now=NOW + tick) for tick in (0, 5, 10)]
    assert [answer.reclaimed for answer in answers] == [0, 0, 1]
    assert queue.read("dq:b:2:y")[0].recoveries == 1


def test_the_fourth_worker_that_vanishes_fails_the_job(queue: QueueOnServer) -> None:
    queue.schedule("poison")
    for vanished in range(4):
        (delivery,) = queue.read()
        assert delivery.recoveries == vanished
        (answer,) = queue.recover(delivery.held)
        assert answer == (1 if vanished < 3 else 2)
    assert queue.place_of("poison") == "failed"


def test_a_renewed_entry_is_still_its_consumers(queue: QueueOnServer) -> None:
    queue.schedule("job")
    (job,) = queue.read("dq:a:1:x")
    queue.server.xgroup_delconsumer(queue.key("stream"), "delayq", "dq:a:1:x")
    assert queue.run(renew(queue.keys, "orders", "dq:a:1:x", [job.held])).more == 0
    assert queue.run(renew(queue.keys, "orders", "dq:a:1:x", [])).more == 1
    assert queue.ack(job)


def test_reading_again_begins_the_lease_anew(queue: QueueOnServer) -> None:
    queue.schedule("job")
    queue.read("dq:a:1:x")
    time.sleep(0.05)
    assert [job.id for job in queue.run(read_pending(queue.keys, "orders", "dq:a:1:x"))] == ["job"]
    assert queue.server.xpending_range(queue.key("stream"), "delayq", "-", "+", 1, idle=40) == []


def test_a_renewal_tells_which_jobs_are_asked_to_stop(queue: QueueOnServer) -> None:
    queue.schedule("job")
    (job,) = queue.read("dq:a:1:x")
    queue.cancel("job", running=True)
    assert queue.run(renew(queue.keys, "orders", "dq:a:1:x", [job.held])).cancelled == ["job"]
