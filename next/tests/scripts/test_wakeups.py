"""The wake-up of movers: published exactly when the head of a queue comes earlier, with the name and the due time."""

from collections.abc import Iterator

import pytest
import redis

from delayq.backends.values import Acked
from delayq.core.job_spec import NewJob
from delayq.redis.calls import delivery
from delayq.redis.calls import jobs as producer
from tests.support.listener import Listener
from tests.support.queue import HOUR, LEASE, NOW, OURS, QueueOnServer, envelope_of, new_job

CHAINED = envelope_of("job", extra=',"chain":[1]')


@pytest.fixture
def listener(queue: QueueOnServer) -> Iterator[Listener]:
    with queue.listening() as listener:
        yield listener


def due(after_ms: int) -> list[str]:
    return [f"orders {NOW + after_ms}"]


@pytest.mark.parametrize("way", ["plain", "whole", "replace"])
def test_a_new_head_wakes_the_mover(queue: QueueOnServer, listener: Listener, way: str) -> None:
    def heard(after_ms: int) -> list[str]:
        if way == "replace":
            queue.replace(f"job-{after_ms}", f"+{after_ms}")
        else:
            queue.schedule(f"job-{after_ms}", f"+{after_ms}", token="" if way == "plain" else str(after_ms))
        return listener.heard()

    assert [heard(after_ms) for after_ms in (100, 200, 50, 60)] == [due(100), [], due(50), []]


def test_a_call_with_several_jobs_wakes_it_once(queue: QueueOnServer, listener: Listener) -> None:
    queue.schedule_all(new_job("a", "+300"), new_job("b", "+30"), new_job("c", "+40"))
    assert listener.heard() == due(30)
    queue.replace_all(new_job("d", "+20"), new_job("e", "+10"))
    assert listener.heard() == due(10)


def test_a_job_that_goes_into_the_stream_or_is_kept_wakes_no_mover(queue: QueueOnServer, listener: Listener) -> None:
    queue.schedule("now")
    queue.schedule("now", "+5")
    assert listener.heard() == []


def test_a_job_that_is_due_and_must_wait_does(queue: QueueOnServer, listener: Listener) -> None:
    queue.pause()
    queue.schedule("now")
    assert listener.heard() == due(0)


@pytest.mark.parametrize("way", ["replaced", "postponed", "rescheduled"])
def test_a_head_that_comes_earlier_wakes_it_and_one_that_goes_back_does_not(
    queue: QueueOnServer, listener: Listener, way: str
) -> None:
    queue.schedule_all(new_job("a", "+100"), new_job("b", "+200"))
    listener.heard()

    def heard(id: str, after_ms: int) -> list[str]:
        if way == "rescheduled":
            queue.reschedule(id, f"+{after_ms}")
        else:
            queue.replace(id, f"+{after_ms}", word="replaced" if way == "replaced" else "postponed")
        return listener.heard()

    assert [heard("a", 300), heard("b", 250), heard("b", 150), heard("a", 50)] == [[], [], due(150), due(50)]


def test_a_released_job_wakes_it(queue: QueueOnServer, listener: Listener) -> None:
    heard = []
    for job, delay_ms in zip(queue.reserve("a", "b", "c"), (100, 100, 50), strict=True):
        queue.release(job, delay_ms)
        heard.append(listener.heard())
    assert heard == [due(100), [], due(50)]


def test_a_job_that_is_to_run_now_and_must_wait_wakes_it(queue: QueueOnServer, listener: Listener) -> None:
    queue.schedule_all(new_job("a", "+100"), new_job("b", "+200"))
    listener.heard()
    queue.run_now("b")
    assert listener.heard() == []
    queue.pause()
    queue.run_now("a")
    queue.run_now("a")
    assert listener.heard() == due(0)


def test_a_retried_job_wakes_it(queue: QueueOnServer, listener: Listener) -> None:
    for id in ("a", "b"):
        queue.put(id, "failed")
    queue.retry("a")
    queue.retry("b")
    assert listener.heard() == due(0)


def test_a_resumed_queue_lets_the_mover_look_again(queue: QueueOnServer, listener: Listener) -> None:
    queue.pause()
    assert listener.heard() == []
    queue.resume()
    assert listener.heard() == due(0)


def test_a_new_end_of_a_pause_lets_the_mover_look_again(queue: QueueOnServer, listener: Listener) -> None:
    """It slept until the old end, which may be later."""
    queue.pause(HOUR)
    assert listener.heard() == due(HOUR)
    queue.pause(100)
    assert listener.heard() == due(100)


def test_what_brings_no_head_earlier_is_silent(queue: QueueOnServer, listener: Listener) -> None:
    one, two, three, four = queue.reserve("one", "two", "three", "four")
    queue.schedule("waiting", "+100")
    listener.heard()
    queue.promote()
    queue.ack(one)
    queue.fail(two)
    queue.hand_back(three)
    queue.recover(four)
    queue.tidy()
    queue.cancel("waiting")
    queue.forget("two")
    queue.clear()
    assert listener.heard() == []


@pytest.mark.parametrize("way", ["ack", "fail", "recover", "reclaim", "cancel", "archive", "replace", "clear"])
def test_the_end_of_a_job_that_something_follows_wakes_the_mover_which_calls_a_relay(
    queue: QueueOnServer, listener: Listener, way: str
) -> None:
    queue.schedule("head", "+100")
    if way in ("cancel", "archive", "replace", "clear"):
        queue.schedule("job", "+200", envelope=CHAINED)
    else:
        queue.reserve("job", envelope=CHAINED)
        job = queue.held("job")
    listener.heard()
    if way == "ack":
        queue.ack(job)
    elif way == "fail":
        queue.fail(job)
    elif way == "recover":
        queue.recover(job, max_recoveries=0)
    elif way == "reclaim":
        queue.trust_leases()
        queue.rest("job")
        queue.reclaim(max_recoveries=0)
    elif way == "cancel":
        queue.cancel("job")
    elif way == "archive":
        queue.archive("job")
    elif way == "replace":
        queue.replace("job", "+200")
    else:
        queue.clear()
    (heard,) = listener.heard()
    assert heard.startswith("orders ")


@pytest.mark.parametrize("name", ["mail:eu", "a b", "x{y}"])
def test_each_queue_is_called_by_its_name(queue: QueueOnServer, listener: Listener, name: str) -> None:
    job = NewJob("job", "name", name, CHAINED, "+100", True)
    queue.run(producer.schedule(queue.keys, name, [job], taken="kept", high_water=9, lease_ms=LEASE, now_ms=str(NOW)))
    assert listener.heard() == [f"{name} {NOW + 100}"]
    queue.run(delivery.promote(queue.keys, name, high_water=9, now_ms=str(NOW + 100)))
    (held,) = queue.run(delivery.read_new(queue.keys, name, OURS, 1))
    queue.run(delivery.ack(queue.keys, name, [Acked(name, held.id, held.entry, is_followed=True)]))
    assert listener.heard() == [f"{name} 0"]


def test_a_user_that_may_not_publish_gets_the_same_answers(queue: QueueOnServer, server: redis.Redis, url: str) -> None:
    rights = ["~test:*", "+@all", "resetchannels"]
    server.execute_command("ACL", "SETUSER", "silent", "on", ">word", *rights)
    try:
        silent = QueueOnServer(url.replace("unix://", "unix://silent:word@"), server, queue.keys)
        assert silent.schedule("later", f"+{2 * HOUR}").answer == "created"
        assert silent.schedule("sooner", f"+{HOUR}").answer == "created"
        assert [placed.answer for placed in silent.schedule_all(*(new_job(id, "+5") for id in "ab"))] == ["created"] * 2
        assert silent.reschedule("later", "+3").answer == "rescheduled"
        assert silent.replace("sooner", "+2").answer == "replaced"
        assert silent.run_now("sooner").answer == "ready"
        assert silent.cancel("a") == "cancelled"
        assert silent.pause() == 0
    finally:
        server.execute_command("ACL", "DELUSER", "silent")
