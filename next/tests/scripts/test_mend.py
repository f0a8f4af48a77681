"""mend.lua and bury.lua: one place and a payload for every job, and no place for what is none."""

from typing import get_args

import pytest

from delayq.core.failure import Failure
from delayq.core.states import STATES, State
from tests.support.queue import FAILURE, HOUR, NOW, OURS, PLAIN, QueueOnServer, envelope_of, large_envelope

IDS = STATES[1:]
SETS = ("scheduled", "failed", "completed")


@pytest.fixture
def filled(queue: QueueOnServer) -> QueueOnServer:
    """A queue with a job in every state, named like it."""
    for state in ("failed", "completed", "reserved", "ready", "scheduled"):
        queue.put(state, state, lock=f"digest-{state}")
    return queue


def test_what_is_in_order_is_left_alone(filled: QueueOnServer) -> None:
    with filled.unchanged():
        assert filled.mend(*IDS) == ["fine"] * 5
        assert (filled.mend(), filled.mend("unknown")) == ([], ["dropped"])


# --- no place


def test_a_payload_without_a_place_is_due_now(filled: QueueOnServer) -> None:
    filled.server.delete(filled.key("scheduled"))
    assert filled.mend("scheduled", now=NOW + 7) == ["scheduled"]
    assert filled.times("scheduled") == {"scheduled": NOW + 7}
    assert "scheduled" in filled.rows("locks")


def test_a_job_that_was_done_does_not_run_again(filled: QueueOnServer) -> None:
    filled.server.delete(filled.key("completed"))
    assert filled.mend("completed") == ["completed"]
    assert filled.times("completed") == {"completed": NOW}


@pytest.mark.parametrize("state", ["ready", "reserved"])
def test_a_job_whose_entry_is_gone_is_appended(filled: QueueOnServer, state: State) -> None:
    filled.server.hset(filled.key("recoveries"), state, 2)
    old = filled.held(state).entry
    filled.server.xdel(filled.stream, old)
    assert filled.mend(state) == ["appended"]
    assert filled.held(state).entry != old
    assert filled.entries()[-1] == {
        "id": state,
        "job": envelope_of(state).decode(),
        "due": str(NOW),
        "recoveries": "2",
    }
    assert (filled.state_of(state), old in filled.pending()) == ("ready", False)


@pytest.mark.parametrize("entry", ["junk", "1", "-", "1-1-1", "", "1-1"])
def test_a_row_that_leads_to_no_entry_is_replaced(queue: QueueOnServer, entry: str) -> None:
    queue.schedule("job", "+5000")
    queue.tidy()
    queue.server.zrem(queue.key("scheduled"), "job")
    queue.server.hset(queue.key("entries"), "job", entry)
    assert queue.mend("job") == ["appended"]


def test_a_row_that_leads_to_the_entry_of_another_job_takes_nothing_from_it(filled: QueueOnServer) -> None:
    held = filled.held("reserved").entry
    filled.server.zrem(filled.key("scheduled"), "scheduled")
    filled.server.hset(filled.key("entries"), "scheduled", held)
    assert filled.mend("scheduled", "reserved") == ["appended", "fine"]
    assert filled.pending() == {held: OURS}


def test_a_wish_to_stop_outlives_a_lost_stream(queue: QueueOnServer) -> None:
    queue.reserve("job")
    queue.server.delete(queue.stream)
    assert queue.cancel("job", running=True) == "running"
    queue.tidy()
    queue.mend("job")
    assert queue.entries()[0]["stop"] == "1"
    assert list(queue.rows("cancel")) == ["job"]


def test_without_a_stream_none_is_made_and_the_job_waits(queue: QueueOnServer) -> None:
    queue.reserve("job")
    queue.server.delete(queue.stream)
    assert queue.mend("job") == ["scheduled"]
    assert not queue.server.exists(queue.stream)


# --- no payload


def test_a_lost_payload_comes_back_from_the_entry(filled: QueueOnServer) -> None:
    payloads = filled.rows("jobs")
    filled.server.hdel(filled.key("jobs"), "ready", "reserved")
    assert filled.mend("ready", "reserved") == ["restored", "restored"]
    assert filled.rows("jobs") == payloads


@pytest.mark.parametrize("state", ["scheduled", "ready", "reserved"])
def test_a_job_whose_payload_is_nowhere_fails(filled: QueueOnServer, state: State) -> None:
    filled.server.hset(filled.key("errors"), state, FAILURE)
    filled.server.hdel(filled.key("jobs"), state)
    if state != "scheduled":
        filled.server.xdel(filled.stream, filled.held(state).entry)
    assert filled.mend(state) == ["lost"]
    assert filled.times("failed")[state] == NOW
    failure = filled.failure_of(state)
    assert (failure.type, failure.at_ms, failure.history) == ("PayloadLost", NOW, [Failure("E", "m")])
    assert '"name":"delayq.lost"' in filled.rows("jobs")[state]
    assert state not in filled.rows("locks")


def test_so_does_one_whose_entry_carries_none(queue: QueueOnServer) -> None:
    queue.tidy()
    entry = queue.server.xadd(queue.stream, {"id": "job"})
    queue.server.hset(queue.key("entries"), "job", entry)
    queue.read()
    assert queue.mend("job") == ["lost"]
    assert (queue.entries(), queue.pending()) == ([], {})


def test_a_job_that_has_ended_keeps_its_failure_or_its_result(filled: QueueOnServer) -> None:
    filled.server.hdel(filled.key("jobs"), "failed", "completed")
    assert filled.mend("failed", "completed", now=NOW + HOUR) == ["lost", "lost"]
    assert filled.times("failed") == {"failed": NOW}
    assert filled.failure_of("failed").type == "E"
    assert filled.rows("results") == {"completed": '"result"'}
    filled.server.hdel(filled.key("jobs"), "failed")
    filled.server.delete(filled.key("errors"))
    filled.mend("failed")
    assert filled.failure_of("failed").type == "PayloadLost"


# --- two places, and rows beside jobs


@pytest.mark.parametrize("state", ["ready", "reserved"])
@pytest.mark.parametrize("extra", SETS)
def test_of_two_places_the_one_nearest_to_a_worker_stays(queue: QueueOnServer, state: State, extra: str) -> None:
    queue.put("job", state)
    queue.server.zadd(queue.key(extra), {"job": 1})
    assert queue.mend("job") == ["single"]
    assert queue.state_of("job") == state


@pytest.mark.parametrize(("first", "second"), [(0, 1), (0, 2), (1, 2)])
def test_then_scheduled_then_failed(queue: QueueOnServer, first: int, second: int) -> None:
    queue.server.hset(queue.key("jobs"), "job", "{}")
    for number in (first, second):
        queue.server.zadd(queue.key(SETS[number]), {"job": 5})
    assert queue.mend("job") == ["single"]
    assert queue.place_of("job") == SETS[first]


def test_rows_of_no_job_are_dropped(queue: QueueOnServer) -> None:
    for role in ("recoveries", "errors", "results", "cancel"):
        queue.server.hset(queue.key(role), "ghost", "1")
    queue.server.hset(queue.key("locks"), "ghost", "digest")
    queue.server.hset(queue.key("unique"), "digest", "ghost")
    assert queue.mend("ghost") == ["dropped"]
    assert queue.server.keys() == []


def test_rows_that_belong_to_another_place_are_dropped(filled: QueueOnServer) -> None:
    for id in IDS:
        for role in ("results", "cancel", "progress"):
            filled.server.hset(filled.key(role), id, "1")
        filled.server.hset(filled.key("locks"), id, f"digest-{id}")
        filled.server.hset(filled.key("unique"), f"digest-{id}", id)
    assert filled.mend(*IDS) == ["fine"] * 5
    assert list(filled.rows("results")) == ["completed"]
    assert set(filled.rows("cancel")) == set(filled.rows("progress")) == {"ready", "reserved"}


def test_a_lost_unique_key_is_taken_again_when_it_is_free(filled: QueueOnServer) -> None:
    before = filled.rows("unique")
    filled.server.delete(filled.key("unique"))
    filled.schedule("second", "+5000", lock="digest-ready")
    filled.mend(*IDS)
    assert filled.rows("unique") == before | {"digest-ready": "second"}
    assert "ready" not in filled.rows("locks")


def test_a_call_looks_at_a_megabyte_and_250_ids(queue: QueueOnServer) -> None:
    queue.reserve("a", "b", "c", envelope=large_envelope(600_000))
    assert [len(queue.mend(*ids)) for ids in ("abc", "c")] == [2, 1]
    assert len(queue.mend(*(f"job-{number}" for number in range(251)))) == 250


# --- bury


@pytest.mark.parametrize("reader", [OURS, PLAIN, ""])
def test_an_entry_of_no_job_is_kept_as_a_failed_job(queue: QueueOnServer, reader: str) -> None:
    queue.tidy()
    entries = [
        queue.server.xadd(queue.stream, {"id": "unknown", "job": b"\x00\xff"}),
        queue.server.xadd(queue.stream, {"order": "42", "state": "paid"}),
    ]
    if reader:
        queue.read(reader)
    assert queue.bury(*entries) == ["buried", "buried"]
    assert queue.times("failed") == {f"x-{entry}": NOW for entry in entries}
    assert queue.rows("jobs") == {f"x-{entries[0]}": "\x00\\xff", f"x-{entries[1]}": "order=42\nstate=paid"}
    assert set(queue.rows("errors").values()) == {FAILURE.decode()}
    assert (queue.pending(), queue.rows("meta")["failed_total"]) == ({}, "2")


@pytest.mark.parametrize("state", get_args(State)[1:])
def test_a_stray_copy_of_a_job_is_dropped(queue: QueueOnServer, state: State) -> None:
    queue.put("job", state)
    queue.tidy()
    copy = queue.server.xadd(queue.stream, {"id": "job", "job": "copy"})
    assert queue.bury(copy) == ["dropped"]
    assert queue.state_of("job") == state


@pytest.mark.parametrize("is_full", [False, True])
def test_an_entry_whose_row_was_lost_goes_back_to_its_job_with_its_lease(queue: QueueOnServer, is_full: bool) -> None:
    (job,) = queue.reserve("job")
    copy = queue.server.xadd(queue.stream, {"id": "job", "job": "copy"})
    queue.server.delete(queue.key("entries"))
    if is_full:
        with queue.full():
            assert queue.bury(job.entry, copy) == ["adopted", "dropped"]
    else:
        assert queue.bury(job.entry, copy) == ["adopted", "dropped"]
    assert queue.pending() == {job.entry: OURS}
    assert queue.ack(job)


def test_an_acknowledged_entry_whose_row_was_lost_does_not_look_like_done_work(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job", consumer=PLAIN)
    queue.server.hdel(queue.key("entries"), "job")
    queue.server.xack(queue.stream, "delayq", job.entry)
    assert queue.bury(job.entry) == ["dropped"]
    assert queue.mend("job") == ["scheduled"]


def test_the_entry_of_a_job_is_left_alone(filled: QueueOnServer) -> None:
    with filled.unchanged():
        entries = [filled.held("ready").entry, filled.held("reserved").entry, "1-1"]
        assert (filled.bury(*entries), filled.bury()) == (["left"] * 3, [])


def test_a_call_buries_a_megabyte_but_one_entry_at_least(queue: QueueOnServer) -> None:
    queue.tidy()
    left = [queue.server.xadd(queue.stream, {"foreign": "x" * size}) for size in (1_500_000, 600_000, 600_000, 10)]
    looked = []
    while left:
        looked.append(len(queue.bury(*left)))
        left = left[looked[-1] :]
    assert looked == [1, 1, 2]
