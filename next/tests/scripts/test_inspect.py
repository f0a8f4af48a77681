"""get.lua, list.lua, stats.lua and the counts of what falls due. None of them writes anything."""

from itertools import chain

import pytest

from delayq.core.states import STATES, State
from delayq.core.views import JobInfo, QueueStats
from delayq.redis.calls.inspect import list_rows
from delayq.redis.keys import GROUP
from tests.support.queue import HOUR, LEASE, NOW, OURS, SECOND, QueueOnServer, new_job

# --- get


def info_of(queue: QueueOnServer, id: str) -> JobInfo:
    info = queue.get(id)
    assert info is not None
    return info


def test_an_unknown_id_is_none(queue: QueueOnServer) -> None:
    assert queue.get("unknown") is None


def test_a_scheduled_job_shows_when_it_is_due(queue: QueueOnServer) -> None:
    queue.schedule("job", "+5000")
    info = info_of(queue, "job")
    assert (info.state, info.due_ms, info.name, info.data) == ("scheduled", NOW + 5000, "name", {})
    assert (info.entry, info.failure, info.result, info.failed_ms, info.forget_ms) == ("", None, None, None, None)


def test_a_ready_job_shows_its_entry(queue: QueueOnServer) -> None:
    queue.schedule("job")
    info = info_of(queue, "job")
    assert (info.state, info.due_ms, info.entry) == ("ready", NOW, queue.held("job").entry)
    assert (info.consumer, info.idle_ms) == ("", None)


def test_a_running_job_shows_everything(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.release(job, 0)
    queue.server.hset(queue.key("recoveries"), "job", 2)
    queue.promote()
    (job,) = queue.read()
    queue.cancel("job", running=True)
    queue.rest("job", idle_ms=5000)
    info = info_of(queue, "job")
    assert (info.state, info.entry, info.consumer, info.recoveries) == ("reserved", job.entry, OURS, 2)
    assert (info.due_ms, info.cancel_asked_ms) == (NOW, NOW)
    assert info.idle_ms is not None and info.idle_ms >= 5000
    assert info.failure is not None and info.failure.message == "m"


def test_a_job_that_has_ended_shows_its_failure_or_its_result(queue: QueueOnServer) -> None:
    queue.put("failed", "failed")
    queue.put("completed", "completed")
    failed, completed = info_of(queue, "failed"), info_of(queue, "completed")
    assert (failed.state, failed.failed_ms, failed.due_ms) == ("failed", NOW, None)
    assert failed.failure is not None and failed.failure.type == "E"
    assert (completed.state, completed.forget_ms, completed.result) == ("completed", NOW + HOUR, "result")


def test_what_was_acknowledged_and_not_closed_is_reserved(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.server.xack(queue.stream, GROUP, job.entry)
    assert (info_of(queue, "job").state, info_of(queue, "job").consumer) == ("reserved", "")
    assert counts(queue.stats())[1:3] == (0, 0)


def test_a_damaged_job_can_be_looked_at(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    queue.put("job", "reserved")
    queue.server.xgroup_destroy(queue.stream, GROUP)
    assert info_of(queue, "job").state == "reserved"
    queue.server.delete(queue.stream)
    assert (info_of(queue, "job").state, info_of(queue, "job").due_ms) == ("reserved", None)
    queue.server.hset(queue.key("entries"), "job", "junk")
    assert info_of(queue, "job").raw
    queue.server.delete(queue.key("entries"))
    assert queue.get("job") is None


@pytest.mark.parametrize("report", ["[]", b"\xff"])
def test_a_report_of_other_hands_can_be_looked_at(queue: QueueOnServer, report: str | bytes) -> None:
    queue.put("job", "reserved")
    queue.server.hset(queue.key("progress"), "job", report)
    assert info_of(queue, "job").state == "reserved"


@pytest.mark.parametrize("score", ["inf", "-inf", "1e300"])
def test_a_job_with_a_time_beyond_all_times_can_be_looked_at(queue: QueueOnServer, score: str) -> None:
    queue.schedule("job", "+5000")
    queue.server.execute_command("ZADD", queue.key("scheduled"), score, "job")
    assert info_of(queue, "job").state == "scheduled"
    assert [job.id for job in queue.page("scheduled").jobs] == ["job"]
    assert queue.stats().scheduled == 1


# --- list


def pages(queue: QueueOnServer, state: State, limit: int = 500) -> list[list[str]]:
    """Return the ids of every page, up to the empty cursor."""
    found, cursor = [], ""
    while True:
        page = queue.page(state, cursor, limit=limit)
        found.append([job.id for job in page.jobs])
        cursor = page.cursor
        if not cursor:
            return found


def test_each_state_lists_its_own_jobs(queue: QueueOnServer) -> None:
    for state in ("failed", "completed", "reserved", "ready", "scheduled"):
        assert pages(queue, state) == [[]]
        queue.put(state, state)
    listed = {state: queue.page(state).jobs for state in STATES[1:]}
    assert {state: [job.id for job in jobs] for state, jobs in listed.items()} == {s: [s] for s in STATES[1:]}
    assert [listed[state][0].due_ms for state in ("scheduled", "ready", "reserved")] == [NOW + HOUR, NOW, NOW]
    assert [listed[state][0].entry for state in ("ready", "reserved", "failed")] == [
        *(queue.held(id).entry for id in ("ready", "reserved")),
        "",
    ]
    assert (listed["failed"][0].failed_ms, listed["completed"][0].forget_ms) == (NOW, NOW + HOUR)
    assert all(jobs[0].raw.decode() == queue.rows("jobs")[state] for state, jobs in listed.items())


@pytest.mark.parametrize("state", ["scheduled", "ready", "reserved"])
def test_pages_are_in_the_order_of_the_jobs(queue: QueueOnServer, state: State) -> None:
    ids = [f"job-{number:02}" for number in range(50)]
    queue.schedule_all(*(new_job(id, "+5000" if state == "scheduled" else "+0") for id in ids))
    if state == "reserved":
        queue.read()
        queue.schedule("not yet delivered")
    found = pages(queue, state, limit=20)
    assert [len(page) for page in found] == [20, 20, 10]
    assert [*chain(*found)] == ids


def newest_first(queue: QueueOnServer, state: State, *, cursor: bytes = b"", limit: int = 500) -> list[list[str]]:
    """Return the ids of every page, latest first."""
    found = []
    while True:
        call = list_rows(queue.keys, "orders", state, cursor=cursor, limit=limit, newest_first=True)
        cursor, rows = queue.run(call)
        found.append([row.id.decode() for row in rows])
        if not cursor:
            return found


@pytest.mark.parametrize("limit", [1, 20, 500])
@pytest.mark.parametrize("state", ["scheduled", "ready", "reserved"])
def test_pages_can_begin_with_the_latest_job(queue: QueueOnServer, state: State, limit: int) -> None:
    ids = [f"job-{number:02}" for number in range(50)]
    queue.schedule_all(*(new_job(id, "+5000" if state == "scheduled" else "+0") for id in ids))
    if state == "reserved":
        queue.read()
        queue.schedule("not yet delivered")
    assert [*chain(*newest_first(queue, state, limit=limit))] == ids[::-1]


@pytest.mark.parametrize("gone", ["b", "B", "~", "b0", "!"])
def test_a_cursor_whose_job_is_gone_goes_on_before_its_place(queue: QueueOnServer, gone: str) -> None:
    ids = sorted(["!", "A", "B", "Z", "a", "b", "b0", "c", "z", "~"])
    queue.schedule_all(*(new_job(id, "+5000") for id in ids))
    cursor = f"{NOW + 5000} {gone}".encode()
    for _ in range(2):
        assert [*chain(*newest_first(queue, "scheduled", cursor=cursor))] == ids[: ids.index(gone)][::-1]
        queue.cancel(gone)


def test_the_latest_reserved_jobs_end_where_ready_jobs_begin(queue: QueueOnServer) -> None:
    queue.schedule_all(*map(new_job, "abcd"))
    queue.read(limit=2)
    assert (newest_first(queue, "reserved"), newest_first(queue, "ready")) == ([["b", "a"]], [["d", "c"]])
    behind = queue.held("d").entry.encode()
    assert newest_first(queue, "reserved", cursor=behind) == [["b", "a"]]
    assert newest_first(queue, "ready", cursor=queue.held("a").entry.encode()) == [[]]


@pytest.mark.parametrize("gone", ["b", "B", "~", "b0"])
def test_a_cursor_whose_job_is_gone_goes_on_behind_its_place(queue: QueueOnServer, gone: str) -> None:
    ids = sorted(["!", "A", "B", "Z", "a", "b", "b0", "c", "z", "~", '"', "%s", "(", "[x", "{1}"])
    queue.schedule_all(*(new_job(id, "+5000") for id in ids))
    rest = ids.index(gone) + 1
    cursor = queue.page("scheduled", limit=rest).cursor
    queue.cancel(gone)
    assert [job.id for job in queue.page("scheduled", cursor).jobs] == ids[rest:]


def test_a_cursor_whose_job_moved_goes_on_behind_its_old_place(queue: QueueOnServer) -> None:
    queue.schedule_all(*(new_job(id, f"+{number}") for number, id in enumerate("abcd", start=5)))
    cursor = queue.page("scheduled", limit=2).cursor
    queue.reschedule("b", "+1")
    assert [job.id for job in queue.page("scheduled", cursor).jobs] == ["c", "d"]


def test_a_cursor_of_ready_jobs_that_were_read_meanwhile_goes_on_with_what_is_ready(queue: QueueOnServer) -> None:
    queue.schedule_all(*map(new_job, "abcd"))
    cursor = queue.page("ready", limit=1).cursor
    queue.read(limit=2)
    assert [job.id for job in queue.page("ready", cursor).jobs] == ["c", "d"]


def test_a_job_whose_payload_is_lost_is_listed_without_it(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    queue.schedule("job", "+5000")
    queue.server.delete(queue.key("jobs"))
    assert [(job.id, job.raw) for job in queue.page("scheduled").jobs] == [("job", b"")]


def test_entries_of_no_job_are_passed_by(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    queue.reserve("a", "b")
    for _ in range(4):
        queue.server.xadd(queue.stream, {"foreign": "x" * 600_000})
    queue.server.xadd(queue.stream, {"id": "b", "job": "copy"})
    queue.schedule("c")
    queue.ack(queue.held("a"))
    assert pages(queue, "reserved") == [["b"]]
    assert [*chain(*pages(queue, "ready"))] == ["c"]
    assert len(pages(queue, "ready")) > 1
    assert (newest_first(queue, "reserved"), [*chain(*newest_first(queue, "ready"))]) == ([["b"]], ["c"])


@pytest.mark.parametrize("is_set_back", [False, True])
def test_without_a_group_to_trust_every_job_is_reserved(queue: QueueOnServer, is_set_back: bool) -> None:
    queue.reserve("a")
    queue.tidy()
    queue.schedule("b")
    queue.server.xgroup_destroy(queue.stream, GROUP)
    if is_set_back:
        queue.server.xgroup_create(queue.stream, GROUP, "0")
    assert (pages(queue, "ready"), pages(queue, "reserved")) == ([[]], [["a", "b"]])


# --- stats


def counts(stats: QueueStats) -> tuple[int, int, int, int, int]:
    return stats.scheduled, stats.ready, stats.reserved, stats.failed, stats.completed


def test_an_unknown_queue_holds_nothing(queue: QueueOnServer) -> None:
    stats = queue.stats()
    assert counts(stats) == (0, 0, 0, 0, 0)
    assert (stats.paused, stats.overdue_oldest_ms, stats.lease_ms, stats.mover_tick_ms) == (False, 0, 0, 0)
    assert (stats.now_ms, set(stats.counters.values())) == (NOW, {0})


def test_the_jobs_of_each_state_are_counted(queue: QueueOnServer) -> None:
    for number, state in enumerate(("failed", "completed", "completed", "reserved", "reserved", "reserved")):
        queue.put(f"{state}-{number}", state)  # type: ignore[arg-type]
    queue.schedule_all(*map(new_job, "ab"))
    queue.schedule_all(*(new_job(id, "+5000") for id in "cdef"))
    queue.promote()
    stats = queue.stats()
    assert counts(stats) == (4, 2, 3, 1, 2)
    assert (stats.lease_ms, stats.mover_tick_ms) == (LEASE, NOW)
    assert (stats.counters["scheduled"], stats.counters["acked"], stats.counters["failed"]) == (12, 2, 1)


def test_a_counter_that_is_no_number_counts_as_0(queue: QueueOnServer) -> None:
    queue.schedule("job")
    queue.server.hset(queue.key("meta"), "acked_total", "many")
    assert queue.stats().counters["acked"] == 0


def test_the_oldest_overdue_job_is_in_the_set_or_in_the_stream(queue: QueueOnServer) -> None:
    queue.schedule("ready")
    queue.schedule("waiting", "+10")
    assert queue.stats(now=NOW + 5).overdue_oldest_ms == 5
    queue.read()
    assert [queue.stats(now=NOW + after).overdue_oldest_ms for after in (5, 13)] == [0, 3]


def test_a_pause_is_shown_until_it_is_over(queue: QueueOnServer) -> None:
    queue.pause(5 * SECOND)
    assert queue.stats().paused_until_ms == NOW + 5 * SECOND
    assert not queue.stats(now=NOW + 5 * SECOND).paused
    queue.pause()
    assert queue.stats().paused_until_ms == 0


def test_a_cancelled_ready_job_leaves_the_counts_right(queue: QueueOnServer) -> None:
    queue.schedule_all(*map(new_job, "abc"))
    queue.cancel("b")
    assert counts(queue.stats())[1:3] == (2, 0)


def test_pending_rows_of_deleted_entries_make_no_count_negative(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    jobs = queue.reserve("a", "b", "c")
    queue.server.xdel(queue.stream, *(job.entry for job in jobs[:2]))
    assert counts(queue.stats())[1:3] == (0, 1)
    queue.server.xtrim(queue.stream, maxlen=0, approximate=False)
    assert counts(queue.stats())[1:3] == (0, 0)


def test_without_its_group_nothing_is_ready(queue: QueueOnServer) -> None:
    queue.schedule("job")
    queue.server.xgroup_destroy(queue.stream, GROUP)
    assert counts(queue.stats())[1:3] == (0, 1)


def test_an_entry_id_far_in_the_future_is_no_due_time(queue: QueueOnServer) -> None:
    queue.tidy()
    queue.server.execute_command("XSETID", queue.stream, "99999999999999-7")
    queue.schedule("job")
    assert queue.stats(now=NOW + 5).overdue_oldest_ms == 5


@pytest.mark.parametrize("word", ["abc", "", "-10", "1.5", "nan", "1" + "0" * 30, b"\xff\x00"])
def test_what_is_no_number_in_meta_stops_no_script(queue: QueueOnServer, word: str | bytes) -> None:
    queue.schedule("later", "+1000")
    fields = ("lease_ms", "paused_until_ms", "mover_tick", "reclaim_tick", "reclaim_hold")
    queue.server.hset(queue.key("meta"), mapping=dict.fromkeys(fields, word))
    stats = queue.stats()
    assert (stats.lease_ms, stats.mover_tick_ms, stats.paused) == (0, 0, False)
    assert queue.configure().lease_ms == LEASE
    assert queue.schedule("now").state == "ready"
    assert queue.promote(now=NOW + 1000).promoted == 1
    queue.read()
    assert queue.renew().lease_ms == LEASE
    assert queue.reclaim().lease_ms == LEASE
    assert queue.tidy().lease_ms == LEASE
    assert queue.rows("meta")["lease_ms"] == str(LEASE)


# --- what falls due


def test_every_scheduled_job_falls_due_in_one_span(queue: QueueOnServer) -> None:
    for number, due in enumerate((0, 1, 10, 11, 20, 30, 31, HOUR)):
        queue.schedule(f"job-{number}", f"+{due + 1}", now=NOW - 1)
    assert queue.count_due(NOW, NOW + 10, NOW + 20, NOW + 30) == [0, 2, 2, 1, 3]
