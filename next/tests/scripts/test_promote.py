"""promote.lua: scheduled -> ready, scheduled -> failed."""

from tests.support.queue import NOW, SECOND, QueueOnServer


def test_due_jobs_become_ready_oldest_first(queue: QueueOnServer) -> None:
    queue.schedule("second", "+2000")
    queue.schedule("first", "+1000")
    queue.schedule("third", "+3000")
    answer = queue.promote(now=NOW + 2000)
    assert (answer.promoted, answer.lost, answer.wait_us) == (2, 0, 1_000_000)
    assert [delivery.id for delivery in queue.read()] == ["first", "second"]


def test_nothing_waits(queue: QueueOnServer) -> None:
    assert queue.promote().wait_us == -1


def test_more_than_the_limit_is_called_for_again(queue: QueueOnServer) -> None:
    for number in range(3):
        queue.schedule(f"job-{number}", "+1000")
    assert queue.promote(now=NOW + SECOND, limit=2).wait_us == 0


def test_a_job_whose_payload_is_lost_fails(queue: QueueOnServer) -> None:
    queue.schedule("lost", "+1000")
    queue.server.hdel(queue.key("jobs"), "lost")
    assert queue.promote(now=NOW + SECOND).lost == 1
    assert queue.place_of("lost") == "failed"
    assert "PayloadLost" in str(queue.server.hget(queue.key("errors"), "lost"))
