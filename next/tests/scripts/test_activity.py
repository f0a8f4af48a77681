"""activity_record.lua: what happened in a queue, minute by minute and day by day."""

import json

import pytest

from tests.support.queue import NOW, QueueOnServer, new_job

MINUTE_MS = 60_000
DAY_MS = 86_400_000
MINUTE = NOW // MINUTE_MS
DAY = NOW // DAY_MS


def rows(queue: QueueOnServer, role: str) -> dict[str, dict[str, float]]:
    return {place: json.loads(row) for place, row in queue.rows(role).items()}


def test_nothing_is_recorded_while_nothing_happens(queue: QueueOnServer) -> None:
    queue.tidy()
    with queue.unchanged():
        queue.record_activity()


def test_every_step_of_a_counter_is_recorded_once(queue: QueueOnServer) -> None:
    queue.schedule_all(new_job("a"), new_job("b", "+5000"))
    queue.cancel("b")
    queue.ack(queue.read()[0])
    queue.record_activity()
    happened = {"scheduled": 2, "cancelled": 1, "acked": 1}
    assert rows(queue, "activity") == {str(MINUTE % 1440): {"minute": MINUTE, **happened}, "sums": happened}
    assert rows(queue, "history") == {str(DAY % 90): {"day": DAY, **happened}}
    with queue.unchanged():
        queue.record_activity()
    queue.schedule("c", "+5000")
    queue.record_activity()
    assert rows(queue, "activity")["sums"]["scheduled"] == 3


def record(queue: QueueOnServer, now: int) -> None:
    queue.server.hincrby(queue.key("meta"), "acked_total", 1)
    queue.record_activity(now=now)


def test_the_next_day_writes_over_the_rows_of_the_minutes(queue: QueueOnServer) -> None:
    for minute in range(1440 + 10):
        record(queue, NOW + minute * MINUTE_MS)
    found = rows(queue, "activity")
    assert len(found) == 1440 + 1
    assert found[str(MINUTE % 1440)] == {"minute": MINUTE + 1440, "acked": 1}
    assert found["sums"] == {"acked": 1450}
    assert 0 < queue.server.pttl(queue.key("activity")) <= 25 * 60 * MINUTE_MS
    assert queue.server.memory_usage(queue.key("activity")) < 600_000


def test_the_ninetieth_day_writes_over_the_row_of_the_first(queue: QueueOnServer) -> None:
    for day in range(95):
        record(queue, NOW + day * DAY_MS)
    found = rows(queue, "history")
    assert len(found) == 90
    assert found[str(DAY % 90)] == {"day": DAY + 90, "acked": 1}
    assert 90 * DAY_MS < queue.server.pttl(queue.key("history")) <= 91 * DAY_MS


@pytest.mark.parametrize("row", ["garbage", "[1]", "17", '{"minute":"x","day":[1]}', '{"other":1}', ""])
def test_a_row_of_other_hands_is_written_over(queue: QueueOnServer, row: str) -> None:
    queue.server.hset(queue.key("activity"), str(MINUTE % 1440), row)
    queue.server.hset(queue.key("history"), str(DAY % 90), row)
    record(queue, NOW)
    assert rows(queue, "activity")[str(MINUTE % 1440)] == {"minute": MINUTE, "acked": 1}
    assert rows(queue, "history")[str(DAY % 90)] == {"day": DAY, "acked": 1}


def test_a_counter_that_began_anew_is_counted_from_0(queue: QueueOnServer) -> None:
    queue.schedule_all(new_job("a", "+5"), new_job("b", "+5"))
    queue.record_activity()
    queue.server.hset(queue.key("meta"), "scheduled_total", 1)
    queue.record_activity()
    assert rows(queue, "activity")["sums"] == {"scheduled": 3}
