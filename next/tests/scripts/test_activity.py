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
    for minute in (0, 1, 1440):
        record(queue, NOW + minute * MINUTE_MS)
    first, second = str(MINUTE % 1440), str((MINUTE + 1) % 1440)
    assert rows(queue, "activity") == {
        first: {"minute": MINUTE + 1440, "acked": 1},
        second: {"minute": MINUTE + 1, "acked": 1},
        "sums": {"acked": 3},
    }
    assert 0 < queue.server.pttl(queue.key("activity")) <= 25 * 60 * MINUTE_MS


def test_the_ninetieth_day_writes_over_the_row_of_the_first(queue: QueueOnServer) -> None:
    for day in (0, 0, 1, 90):
        record(queue, NOW + day * DAY_MS)
    assert rows(queue, "history") == {
        str(DAY % 90): {"day": DAY + 90, "acked": 1},
        str((DAY + 1) % 90): {"day": DAY + 1, "acked": 1},
    }
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
