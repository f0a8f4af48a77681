"""prune.lua and consumer_remove.lua: what was kept long enough is forgotten, and consumers that are gone for good."""

import pytest

from delayq.backends.values import Failed
from delayq.redis.calls.upkeep import PRUNE_LIMIT, Pruned
from delayq.redis.keys import GROUP
from tests.support.queue import FAILURE, HOUR, NOW, OTHER, OURS, PLAIN, QueueOnServer

# --- prune


def test_what_is_old_enough_is_forgotten(queue: QueueOnServer) -> None:
    (failed,) = queue.reserve("failed")
    queue.fail(failed)
    queue.put("completed", "completed")
    queue.server.hset(queue.key("recoveries"), "failed", 1)
    with queue.unchanged():
        assert queue.prune(keep_failed_ms=HOUR, now=NOW + HOUR - 1) == Pruned(0, 0, 0)
    assert queue.prune(keep_failed_ms=HOUR, now=NOW + HOUR) == Pruned(1, 1, 0)
    assert set(queue.server.keys()) == {queue.stream, queue.key("meta")}


def test_what_is_younger_stays(queue: QueueOnServer) -> None:
    for number, job in enumerate(queue.reserve("old", "young")):
        queue.fail(job, now=NOW + number)
    queue.schedule("waiting", "+1")
    assert queue.prune(keep_failed_ms=HOUR, now=NOW + HOUR).failed == 1
    assert set(queue.rows("jobs")) == {"young", "waiting"}


def test_more_than_the_limit_is_called_for_again(queue: QueueOnServer) -> None:
    queue.reserve(*(f"job-{number}" for number in range(PRUNE_LIMIT + 1)))
    queue.fail_all(*(Failed("orders", id, entry, b"", FAILURE) for id, entry in queue.rows("entries").items()))
    assert [queue.prune().failed for _ in range(3)] == [PRUNE_LIMIT, 1, 0]


def test_windows_that_are_over_are_dropped_and_others_stay(queue: QueueOnServer) -> None:
    queue.schedule("short", "+5", lock="short.1000")
    queue.schedule("long", "+5", lock=f"long.{HOUR}")
    queue.schedule("owner", "+5", lock="digest")
    windows = ["unknown", *queue.rows("unique")]
    with queue.unchanged():
        assert queue.prune(windows=windows, now=NOW + 999).windows == 0
    assert queue.prune(windows=windows, now=NOW + 1000).windows == 1
    assert set(queue.rows("unique")) == {f"long.{HOUR}", "digest"}


def test_a_window_that_was_taken_again_stays(queue: QueueOnServer) -> None:
    queue.schedule("first", "+5", lock="window.1000")
    queue.schedule("second", "+5", lock="window.1000", now=NOW + 1000)
    with queue.unchanged():
        assert queue.prune(windows=["window.1000"], now=NOW + 1000).windows == 0


# --- consumer_remove


def test_a_consumer_leaves_group_and_meta_in_one_step(queue: QueueOnServer) -> None:
    queue.tidy()
    for name in ("dq:h:1:ab", "dq:h:1:a"):
        queue.renew(consumer=name)
    assert queue.remove_consumer("dq:h:1:a")
    assert (queue.consumers(), queue.rows("meta")["consumers"]) == ({"dq:h:1:ab"}, "dq:h:1:ab")
    assert queue.remove_consumer("dq:h:1:ab")
    assert (queue.consumers(), "consumers" in queue.rows("meta")) == (set(), False)


def test_a_consumer_that_holds_a_job_stays(queue: QueueOnServer) -> None:
    queue.reserve("job")
    with queue.unchanged():
        assert not queue.remove_consumer(OURS)


def test_a_consumer_that_may_be_alive_stays(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job", consumer=PLAIN)
    queue.ack(job)
    with queue.unchanged():
        assert not queue.remove_consumer(PLAIN, idle_ms=HOUR)
    assert queue.remove_consumer(PLAIN)


def test_a_consumer_that_is_not_there_counts_as_removed(queue: QueueOnServer) -> None:
    queue.tidy()
    with queue.unchanged():
        assert queue.remove_consumer(OTHER)


@pytest.mark.parametrize("is_lost", ["group", "stream"])
def test_without_group_or_stream_only_the_name_goes(queue: QueueOnServer, is_lost: str) -> None:
    queue.tidy()
    queue.renew()
    if is_lost == "group":
        queue.server.xgroup_destroy(queue.stream, GROUP)
    else:
        queue.server.delete(queue.stream)
    assert queue.remove_consumer()
    assert "consumers" not in queue.rows("meta")
