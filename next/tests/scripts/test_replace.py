"""replace.lua: a taken id gets a new due time and, on request, a new payload."""

from typing import Literal, get_args

import pytest

from delayq.core.states import State
from tests.support.queue import FAILURE, HOUR, LEASE, NOW, QueueOnServer, envelope_of, new_job

Word = Literal["replaced", "postponed"]
either_word = pytest.mark.parametrize("word", get_args(Word))


@either_word
def test_a_free_id_is_created(queue: QueueOnServer, word: Word) -> None:
    placed = queue.replace("job", "+5000", word=word, lock="digest")
    assert (placed.answer, placed.state, placed.due_ms) == ("created", "scheduled", NOW + 5000)
    assert queue.rows("jobs") == {"job": envelope_of("job").decode()}
    assert queue.rows("meta") == {"schema": "1", "lease_ms": str(LEASE), "shards": "1", "scheduled_total": "1"}


def test_a_replaced_job_has_the_new_payload_and_a_postponed_one_the_old(queue: QueueOnServer) -> None:
    queue.schedule("replaced", "+5", envelope=b"old")
    queue.schedule("postponed", "+5", envelope=b"old")
    queue.replace("replaced", f"+{HOUR}", envelope=b"new")
    queue.replace("postponed", f"+{HOUR}", word="postponed", envelope=b"new")
    assert queue.rows("jobs") == {"replaced": "new", "postponed": "old"}
    assert queue.times("scheduled") == {"replaced": NOW + HOUR, "postponed": NOW + HOUR}


@either_word
def test_a_ready_job_goes_back_to_the_set(queue: QueueOnServer, word: Word) -> None:
    queue.schedule_all(new_job("job"), new_job("other"))
    queue.replace("job", "+5000", word=word)
    assert queue.times("scheduled") == {"job": NOW + 5000}
    assert [job.id for job in queue.read()] == ["other"]


@either_word
def test_a_refusal_says_where_the_job_is_and_no_due_time(queue: QueueOnServer, word: Word) -> None:
    queue.put("job", "reserved")
    with queue.unchanged():
        placed = queue.replace("job", "+5000", word=word)
    assert (placed.answer, placed.state, placed.due_ms) == ("running", "reserved", None)


@pytest.mark.parametrize("state", ["failed", "completed"])
def test_what_has_ended_is_not_postponed(queue: QueueOnServer, state: State) -> None:
    queue.put("job", state)
    with queue.unchanged():
        assert queue.replace("job", "+5000", word="postponed").state == state


@pytest.mark.parametrize("state", ["failed", "completed"])
def test_a_job_in_the_place_of_one_that_has_ended_starts_over(queue: QueueOnServer, state: State) -> None:
    queue.put("job", state)
    queue.server.hset(queue.key("errors"), "job", FAILURE)
    counted = int(queue.rows("meta")["scheduled_total"])
    assert queue.replace("job", "+5000", envelope=b"new").answer == "replaced"
    assert queue.rows("jobs") == {"job": "new"}
    assert queue.rows("errors") == queue.rows("results") == queue.rows("recoveries") == {}
    assert int(queue.rows("meta")["scheduled_total"]) == counted + 1


def test_a_replaced_job_loses_its_failures_and_a_postponed_one_keeps_them(queue: QueueOnServer) -> None:
    for job in queue.reserve("replaced", "postponed"):
        queue.release(job, HOUR)
        queue.server.hset(queue.key("recoveries"), job.id, 2)
    queue.replace("replaced", "+5000")
    queue.replace("postponed", "+5000", word="postponed")
    assert queue.rows("errors") == {"postponed": FAILURE.decode()}
    assert queue.rows("recoveries") == {"postponed": "2"}


def test_a_wish_to_stop_goes_with_the_job_that_gave_way(queue: QueueOnServer) -> None:
    (job,) = queue.reserve("job")
    queue.cancel("job", running=True)
    queue.hand_back(job)
    queue.replace("job", "+5000")
    assert queue.rows("cancel") == {}


@either_word
def test_only_new_jobs_count_as_scheduled(queue: QueueOnServer, word: Word) -> None:
    for token, ids, total in (("1", "ab", "2"), ("2", "ab", "2"), ("3", "ac", "3")):
        queue.replace_all(*(new_job(id, "+5000") for id in ids), word=word, token=token)
        assert queue.rows("meta")["scheduled_total"] == total


def test_of_an_id_that_comes_twice_in_a_call_the_last_one_stays(queue: QueueOnServer) -> None:
    placed = queue.replace_all(new_job("job", "+5", envelope=b"1"), new_job("job", "+9", envelope=b"2"))
    assert [one.answer for one in placed] == ["created", "replaced"]
    assert (queue.rows("jobs"), queue.times("scheduled")) == ({"job": "2"}, {"job": NOW + 9})


def test_it_never_appends_to_the_stream(queue: QueueOnServer) -> None:
    assert queue.replace("job").state == "scheduled"
    assert queue.promote().promoted == 1


def test_a_resent_call_gets_its_first_answer(queue: QueueOnServer) -> None:
    first = queue.replace("job", token="t1")
    queue.promote()
    queue.read()
    with queue.unchanged():
        assert queue.replace("job", token="t1") == first


def test_a_lost_payload_is_created_anew(queue: QueueOnServer) -> None:
    queue.schedule("job", "+9000")
    queue.server.hdel(queue.key("jobs"), "job")
    assert queue.replace("job", "+5", word="postponed").answer == "created"
    assert queue.times("scheduled") == {"job": NOW + 5}
