"""schedule.lua: absent -> scheduled, absent -> ready."""

from typing import Final, Literal

import msgspec
import pytest

from delayq.core.errors import BackendError
from delayq.core.job_spec import NewJob
from delayq.core.states import STATES
from delayq.redis.calls import jobs as producer
from delayq.redis.calls.jobs import ShardsChanged
from tests.support.dump import dump
from tests.support.queue import HOUR, LEASE, NOW, SECOND, QueueOnServer, envelope_of, new_job


def test_a_later_job_waits_in_the_set(queue: QueueOnServer) -> None:
    placed = queue.schedule("later", f"+{5 * SECOND}")
    assert (placed.answer, placed.state, placed.due_ms) == ("created", "scheduled", NOW + 5 * SECOND)
    assert queue.times("scheduled") == {"later": NOW + 5 * SECOND}
    assert queue.rows("jobs") == {"later": envelope_of("later").decode()}


def test_a_job_due_now_goes_into_the_stream(queue: QueueOnServer) -> None:
    placed = queue.schedule("now", str(NOW - SECOND))
    assert (placed.answer, placed.state, placed.due_ms) == ("created", "ready", NOW)
    assert queue.entries() == [
        {"id": "now", "job": envelope_of("now").decode(), "due": str(NOW), "recoveries": "0"},
    ]
    assert list(queue.rows("entries")) == ["now"]


def test_the_first_job_makes_the_queue(queue: QueueOnServer) -> None:
    queue.schedule_all(new_job("first", "+5000"), lease_ms=7000)
    queue.schedule_all(new_job("second", "+5000"), lease_ms=LEASE)
    assert queue.rows("meta") == {"schema": "1", "lease_ms": "7000", "shards": "1", "scheduled_total": "2"}
    assert queue.last_delivered() == "0-0"


def test_the_answer_says_whether_the_queue_is_new(queue: QueueOnServer) -> None:
    def call(id: str) -> bytes:
        call = producer.schedule(
            queue.keys, "orders", [new_job(id, "+5000")], taken="kept", high_water=100, lease_ms=LEASE
        )
        return bytes(queue.run_raw(call)[0])

    assert [call("first"), call("second")] == [b"1", b"0"]


def test_the_plain_case_leaves_what_the_whole_script_leaves(queue: QueueOnServer) -> None:
    queue.schedule("before", "+1")
    plain = queue.schedule("job", "+5000")
    after_plain = dump(queue.server)
    queue.server.flushall()
    queue.schedule("before", "+1")
    assert queue.schedule("job", "+5000", token="any") == plain
    assert dump(queue.server) == after_plain


@pytest.mark.parametrize("count", [2, 7, 500])
def test_the_plain_case_of_several_jobs_leaves_what_the_whole_script_leaves(queue: QueueOnServer, count: int) -> None:
    jobs = [new_job(f"job-{n}", f"+{5000 + n % 3}" if n % 4 else str(NOW + 9000)) for n in range(count)]
    queue.schedule("before", "+9")
    plain = queue.schedule_all(*jobs)
    after_plain = dump(queue.server)
    queue.server.flushall()
    queue.schedule("before", "+9")
    assert queue.schedule_all(*jobs, token="any") == plain
    assert dump(queue.server) == after_plain


def test_the_plain_case_has_a_short_answer(queue: QueueOnServer) -> None:
    def call(*jobs: NewJob, taken: Literal["kept", "conflict"] = "kept") -> list[bytes]:
        call = producer.schedule(queue.keys, "orders", jobs, taken=taken, high_water=9, lease_ms=LEASE, now_ms=str(NOW))
        return list(queue.run_raw(call))

    queue.schedule("before", "+9")
    due = str(NOW + 5000).encode()
    now = str(NOW).encode()
    assert call(new_job("one", "+5000")) == [b"0", now]
    assert call(new_job("two", "+5000"), new_job("three", due.decode())) == [b"0", now]
    assert call(new_job("four", "+5000"), new_job("one", "+7"), taken="conflict") == [
        *[b"0", b"created", b"scheduled", due, b"four"],
        *[b"conflict", b"scheduled", due, b"one"],
    ]


ODD_JOBS: Final = {
    "an id twice": new_job("one", "+7"),
    "a taken id": new_job("before", "+7"),
    "a time that has come": new_job("now"),
    "a unique key": new_job("locked", "+7", lock="digest"),
}


@pytest.mark.parametrize("odd", ODD_JOBS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_job_that_is_not_plain_takes_the_others_the_long_way(queue: QueueOnServer, odd: str, place: int) -> None:
    jobs = [new_job("one", "+5000"), new_job("two", "+5000")]
    jobs.insert(place, ODD_JOBS[odd])
    queue.schedule("before", "+9")
    queue.pause()  # what is due now waits too: an entry has an id by the clock
    placed = queue.schedule_all(*jobs)
    after = dump(queue.server)
    queue.server.flushall()
    queue.schedule("before", "+9")
    queue.pause()  # what is due now waits too: an entry has an id by the clock
    assert queue.schedule_all(*jobs, token="any") == placed
    assert dump(queue.server) == after


def test_several_plain_jobs_make_a_lost_stream_anew(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    queue.schedule("before", "+9")
    queue.server.delete(queue.stream)
    queue.schedule_all(new_job("one", "+5000"), new_job("two", "+5000"))
    assert queue.server.exists(queue.stream)


def test_a_job_due_now_does_not_overtake_an_older_one(queue: QueueOnServer) -> None:
    queue.schedule("older", "+0", now=NOW - SECOND)
    queue.schedule("due", "+10", now=NOW - SECOND)
    queue.schedule("newer", "+0")
    assert queue.place_of("newer") == "scheduled"


def test_a_job_due_now_need_not_wait_for_one_that_is_not_due(queue: QueueOnServer) -> None:
    queue.schedule("later", "+10")
    assert queue.schedule("now").state == "ready"


@pytest.mark.parametrize("for_ms", [0, 5 * SECOND])
def test_a_paused_queue_lets_nothing_into_the_stream(queue: QueueOnServer, for_ms: int) -> None:
    queue.pause(for_ms)
    assert queue.schedule("now").state == "scheduled"
    assert queue.schedule("later", "+5000").state == "scheduled"


def test_a_pause_that_is_over_stops_nothing(queue: QueueOnServer) -> None:
    queue.pause(5 * SECOND)
    assert queue.schedule("now", now=NOW + 5 * SECOND).state == "ready"


def test_what_does_not_fit_into_the_stream_waits_in_the_set(queue: QueueOnServer) -> None:
    placed = queue.schedule_all(*map(new_job, "abc"), high_water=2)
    assert [one.state for one in placed] == ["ready", "ready", "scheduled"]
    assert queue.schedule_all(new_job("d"), high_water=2)[0].state == "scheduled"


def test_a_taken_id_is_kept(queue: QueueOnServer) -> None:
    queue.schedule("order-42", "+5000")
    with queue.unchanged():
        assert queue.schedule("order-42", "+9000").answer == "kept"
        assert queue.schedule("order-42", "+9000", taken="conflict").answer == "conflict"


def test_an_id_is_free_when_its_job_is_over(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("order-42")
    queue.ack(job)
    assert queue.schedule("order-42", envelope=b"second").answer == "created"
    assert queue.rows("jobs") == {"order-42": "second"}


def test_kept_says_where_the_job_is(queue: QueueOnServer) -> None:
    for state in ("failed", "completed", "reserved", "ready", "scheduled"):
        queue.put(state, state)
    with queue.unchanged():
        placed = queue.schedule_all(*map(new_job, STATES[1:]))
    assert [(one.answer, one.state) for one in placed] == [("kept", state) for state in STATES[1:]]
    assert [one.due_ms for one in placed] == [NOW + HOUR, None, None, None, None]


def test_one_call_may_have_every_answer(queue: QueueOnServer) -> None:
    queue.schedule("old", "+9000")
    jobs = [new_job("new", "+5"), new_job("old"), new_job("new", "+9"), new_job("now"), new_job("now", "+5")]
    placed = queue.schedule_all(*jobs)
    assert [(one.answer, one.state, one.due_ms) for one in placed] == [
        ("created", "scheduled", NOW + 5),
        ("kept", "scheduled", NOW + 9000),
        ("kept", "scheduled", NOW + 5),
        ("created", "ready", NOW),
        ("kept", "ready", None),
    ]


def test_no_jobs_are_no_change(queue: QueueOnServer) -> None:
    queue.schedule("job", "+5000")
    with queue.unchanged():
        assert queue.schedule_all() == []


def test_a_resent_call_gets_its_first_answer(queue: QueueOnServer) -> None:
    first = queue.schedule("now", token="t1", taken="conflict")
    (delivery,) = queue.read()
    queue.ack(delivery)
    with queue.unchanged():
        assert queue.schedule("now", token="t1", taken="conflict") == first
    assert 0 < queue.server.pttl(f"{queue.key('once')}:t1") <= producer.ONCE_MS


def test_nothing_but_kept_is_answered_anew(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    assert queue.schedule("job", token="t1").answer == "kept"
    queue.ack(job)
    assert queue.schedule("job", token="t1").answer == "created"


def test_an_id_whose_payload_was_lost_is_taken_while_a_worker_may_hold_it(damaged_queue: QueueOnServer) -> None:
    queue = damaged_queue
    queue.reserve("job")
    queue.server.hdel(queue.key("jobs"), "job")
    with queue.unchanged():
        assert queue.schedule("job", "+5000").answer == "kept"
        assert queue.schedule_all(new_job("job"), new_job("job", "+9"))[0].answer == "kept"


def test_another_number_of_shards_is_answered_with_the_right_one(queue: QueueOnServer) -> None:
    queue.configure(shards=4)
    with queue.unchanged():
        for refused in (queue.schedule, queue.replace):
            with pytest.raises(ShardsChanged):
                refused("job", "+5000")


@pytest.mark.parametrize("loss", ["the number", "all"])
def test_a_shard_that_lost_its_number_takes_no_job_for_several_shards(queue: QueueOnServer, loss: str) -> None:
    queue.configure(shards=4)
    assert queue.schedule("first", shards=4)
    if loss == "all":
        queue.server.flushall()
    else:
        queue.server.hdel(queue.key("meta"), "shards")
    with queue.unchanged(), pytest.raises(ShardsChanged):
        queue.schedule("second", shards=4)
    assert queue.schedule("third").answer == "created"


@pytest.mark.parametrize("when", ["+0", "+9000"])
@pytest.mark.parametrize("payload", [b"\x00\xff\xfe", b'"\\ud800"', b"9007199254740993", b'"]]"'])
def test_a_payload_is_bytes(queue: QueueOnServer, payload: bytes, when: str) -> None:
    queue.schedule("job", when, envelope=payload)
    queue.promote(now=NOW + 9000)
    assert queue.read()[0].envelope == payload


@pytest.mark.parametrize(
    "when", ["soon", "", "+", "nan", "inf", "-inf", "+nan", "9007199254740992", "+9007199254740991"]
)
def test_a_time_that_is_none_is_refused_before_anything_is_written(queue: QueueOnServer, when: str) -> None:
    jobs = new_job("good"), new_job("bad", when)
    with queue.unchanged():
        for refused in (
            lambda: queue.schedule("bad", when),
            lambda: queue.schedule_all(*jobs),
            lambda: queue.replace_all(*jobs),
        ):
            with pytest.raises(BackendError, match="below 2\\^53"):
                refused()


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_half_a_row_is_refused_before_anything_is_written(queue: QueueOnServer, missing: int) -> None:
    jobs = [new_job("a"), new_job("b", "+5000")]
    calls = [
        producer.schedule(queue.keys, "orders", jobs, taken="kept", high_water=9, lease_ms=LEASE),
        producer.replace(queue.keys, "orders", jobs, word="replaced", lease_ms=LEASE, token="t"),
    ]
    for call in calls:
        with queue.unchanged(), pytest.raises(BackendError, match="complete rows of"):
            queue.run(msgspec.structs.replace(call, words=call.words[:-missing]))


def test_a_counter_that_is_no_number_fails_no_move(queue: QueueOnServer) -> None:
    queue.schedule("first", "+5000")
    queue.server.hset(queue.key("meta"), "scheduled_total", "many")
    assert queue.schedule("plain", "+5000").answer == "created"
    assert queue.schedule("whole", "+0").answer == "created"
