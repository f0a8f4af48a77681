"""Redis decides the time, delays are added there, and no millisecond is lost up to 2^53 - 1."""

from collections.abc import Callable

import pytest

from delayq.core.errors import BackendError
from tests.support.queue import HOUR, LEASE, NOW, QueueOnServer, new_job

LAST = 2**53 - 1
"""The last millisecond that a number of Redis holds."""


def _put_failed_and_retry(queue: QueueOnServer) -> None:
    queue.put("job", "failed")
    queue.retry("job", now="")


def _put_scheduled_and_reschedule(queue: QueueOnServer) -> None:
    queue.put("job", "scheduled")
    queue.reschedule("job", f"+{HOUR}", now="")


def _put_reserved_and_cancel(queue: QueueOnServer) -> None:
    queue.put("job", "reserved")
    queue.cancel("job", running=True, now="")


def _bury(queue: QueueOnServer) -> None:
    queue.tidy()
    queue.bury(queue.server.xadd(queue.stream, {"foreign": "entry"}), now="")


def _mend(queue: QueueOnServer) -> None:
    queue.server.hset(queue.key("jobs"), "job", "{}")
    queue.mend("job", now="")


def _time(role: str) -> Callable[[QueueOnServer], float]:
    return lambda queue: next(iter(queue.times(role).values()))


def _meta(field: str) -> Callable[[QueueOnServer], float]:
    return lambda queue: float(queue.rows("meta")[field])


BY_THE_SERVER: dict[str, tuple[Callable[[QueueOnServer], object], Callable[[QueueOnServer], float], int]] = {
    "schedule": (lambda queue: queue.schedule("job", f"+{HOUR}", now=""), _time("scheduled"), HOUR),
    "schedule (plain)": (
        lambda queue: queue.schedule("first") and queue.schedule("job", f"+{HOUR}", now=""),
        _time("scheduled"),
        HOUR,
    ),
    "mend": (
        lambda queue: queue.server.hset(queue.key("jobs"), "job", "{}") and queue.mend("job", now=""),
        _time("scheduled"),
        0,
    ),
    "replace": (lambda queue: queue.replace("job", f"+{HOUR}", now=""), _time("scheduled"), HOUR),
    "reschedule": (_put_scheduled_and_reschedule, _time("scheduled"), HOUR),
    "release": (lambda queue: queue.release(queue.reserve("job")[0], HOUR, now=""), _time("scheduled"), HOUR),
    "retry": (_put_failed_and_retry, _time("scheduled"), 0),
    "fail": (lambda queue: queue.fail(queue.reserve("job")[0], now=""), _time("failed"), 0),
    "ack": (lambda queue: queue.ack(queue.reserve("job")[0], retention_ms=HOUR, now=""), _time("completed"), HOUR),
    "cancel": (_put_reserved_and_cancel, lambda queue: float(queue.rows("cancel")["job"]), 0),
    "bury": (_bury, _time("failed"), 0),
    "pause": (lambda queue: queue.pause(HOUR, now=""), _meta("paused_until_ms"), HOUR),
    "promote": (lambda queue: queue.promote(now=""), _meta("mover_tick"), 0),
    "reclaim": (lambda queue: queue.reclaim(now="") if queue.schedule("job") else None, _meta("reclaim_hold"), LEASE),
    "stats": (lambda queue: None, lambda queue: queue.stats(now="").now_ms, 0),
}
"""What is done, where its time can be read, and how far that should lie from now."""


@pytest.mark.parametrize("name", BY_THE_SERVER)
def test_now_is_the_time_of_the_server(queue: QueueOnServer, name: str) -> None:
    def server_ms() -> int:
        seconds, micros = queue.server.time()
        return int(seconds * 1000 + micros // 1000)

    act, read_time, after_ms = BY_THE_SERVER[name]
    before = server_ms()
    act(queue)
    assert before + after_ms <= read_time(queue) <= server_ms() + after_ms


def test_the_wait_of_the_mover_is_told_in_microseconds(queue: QueueOnServer) -> None:
    def server_us() -> int:
        seconds, micros = queue.server.time()
        return int(seconds * 1_000_000 + micros)

    due_ms = server_us() // 1000 + 60_000
    queue.schedule("job", str(due_ms), now="")
    before = server_us()
    wait_us = queue.promote(now="").wait_us
    assert due_ms * 1000 - server_us() <= wait_us <= due_ms * 1000 - before


@pytest.mark.parametrize("past", ["0", "-5", str(NOW - 1), str(NOW)])
def test_the_past_means_now(queue: QueueOnServer, past: str) -> None:
    queue.pause()
    assert queue.schedule("job", past).due_ms == NOW
    assert queue.replace("job", past).due_ms == NOW
    assert queue.replace("job", past, word="postponed").due_ms == NOW
    assert queue.reschedule("job", past).due_ms == NOW
    assert queue.stats(now=NOW + HOUR).overdue_oldest_ms == HOUR


@pytest.mark.parametrize("wrong", ["soon", "", "nan", "inf", "-inf", "-9007199254740992", "+9007199254740991"])
def test_a_new_due_time_that_is_none_is_refused(queue: QueueOnServer, wrong: str) -> None:
    queue.schedule("job", "+5000")
    with queue.unchanged(), pytest.raises(BackendError, match="below 2\\^53"):
        queue.reschedule("job", wrong)


@pytest.mark.parametrize("when", [str(LAST), "+1"])
def test_the_last_millisecond_comes_through_every_script(queue: QueueOnServer, when: str) -> None:
    assert queue.schedule("job", when, now=LAST - 1).due_ms == LAST
    assert queue.replace("job", when, now=LAST - 1).due_ms == LAST
    assert queue.replace("job", when, word="postponed", now=LAST - 1).due_ms == LAST
    assert queue.reschedule("job", when, now=LAST - 1).due_ms == LAST
    assert queue.page("scheduled", limit=1).cursor == f"{LAST} job"
    assert queue.promote(now=LAST - 1).wait_us == 1000
    queue.promote(now=LAST)
    queue.hand_back(queue.read()[0], now=LAST)
    assert queue.entries()[0]["due"] == str(LAST)
    queue.release(queue.read()[0], 0, now=LAST)
    queue.promote(now=LAST)
    queue.fail(queue.read()[0], now=LAST)
    assert queue.times("failed") == {"job": LAST}
    assert queue.rows("meta")["mover_tick"] == str(LAST)
    assert queue.stats(now=LAST).now_ms == LAST


def test_jobs_of_one_millisecond_run_in_the_order_of_their_ids(queue: QueueOnServer) -> None:
    ids = ["a", "B", "b", "Z", "0", "~", "!", "aa", "ab"]
    queue.schedule_all(*(new_job(id, "+5") for id in ids))
    queue.promote(now=NOW + 5)
    assert [job.id for job in queue.read()] == sorted(ids)


@pytest.mark.parametrize("score", ["+inf", "1800000000000000000", "9300000000000000"])
def test_a_time_beyond_all_calendars_never_comes(queue: QueueOnServer, score: str) -> None:
    queue.schedule("odd", "+5000")
    queue.schedule("job", "+1")
    queue.server.execute_command("ZADD", queue.key("scheduled"), score, "odd")
    answer = queue.promote(now=NOW + 1)
    assert (answer.promoted, answer.wait_us) == (1, LAST)


@pytest.mark.parametrize("score", ["-inf", "-5", "-1e300"])
def test_a_time_before_1970_counts_as_now(queue: QueueOnServer, score: str) -> None:
    queue.schedule_all(new_job("odd", "+5000"), new_job("promoted", "+5000"))
    for id in ("odd", "promoted"):
        queue.server.execute_command("ZADD", queue.key("scheduled"), score, id)
    assert queue.stats(now=NOW + 1).overdue_oldest_ms == NOW + 1
    assert queue.run_now("odd").due_ms == NOW
    queue.promote(now=NOW + 1)
    assert [entry["due"] for entry in queue.entries()] == [str(NOW), str(NOW + 1)]


@pytest.mark.parametrize("fraction", [0.25, 0.5])
def test_a_score_with_a_fraction_does_not_make_the_mover_spin(queue: QueueOnServer, fraction: float) -> None:
    queue.schedule("job", "+5000")
    queue.server.zadd(queue.key("scheduled"), {"job": NOW + fraction})
    assert queue.promote().wait_us == fraction * 1000
    assert queue.promote(now=NOW + 1).promoted == 1
