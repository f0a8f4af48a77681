"""What is particular about beanstalkd: reservations that die with their connection, and a protocol that loses step."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from delayq.core import envelope as envelopes
from delayq.core.errors import BackendError, BackendUnavailable, InvalidInput, InvalidPayload, OutcomeUnknown
from delayq.core.names import new_id
from delayq.core.options import Options
from delayq.core.spec import JobSpec, prepare
from delayq.core.states import OnConflict, State
from delayq.drivers.base import Claim, Delivery
from delayq.drivers.beanstalkd.broker import BeanstalkdBroker
from delayq.drivers.broker import Act, Again, Forget, Item
from delayq.drivers.serving.connection import item_of
from tests.support.beanstalkd import Beanstalkd
from tests.support.cutting import Cutter
from tests.support.waiting import wait_until

Tubes = Callable[..., BeanstalkdBroker]
EACH_BODY = pytest.mark.parametrize("laravel", ["", "beanstalkd"], ids=["envelopes", "payloads"])


def job(queue: str = "q", *, name: str = "n", data: object = None, delay: str | None = None) -> Item:
    now_ms = time.time_ns() // 1_000_000
    return item_of(prepare(JobSpec(name=name, data=data, queue=queue, delay=delay), Options(), now_ms), now_ms)


def push(broker: BeanstalkdBroker, *items: Item) -> None:
    broker.push(items, OnConflict.KEEP)


def one(broker: BeanstalkdBroker, queue: str = "q") -> Delivery:
    return wait_until(lambda: broker.reserve(queue, 1), what="a job can be reserved")[0]


def claim(delivery: Delivery) -> Claim:
    return Claim(delivery.queue, delivery.id, delivery.entry)


# -- tubes ------------------------------------------------------------------------------------------------------------


def test_a_queue_is_a_tube_of_its_name(beanstalkd: Beanstalkd, tubes: Tubes) -> None:
    item = job("mail:high")
    push(tubes(beanstalkd.port), item)
    push(tubes(beanstalkd.port, "shop:"), job("mail:high"))
    with beanstalkd.client("mail/high") as client:
        assert client.peek_ready().body == item.envelope
    with beanstalkd.client("shop/mail/high") as client:
        assert client.stats_tube("shop/mail/high")["current-jobs-ready"] == 1
    assert tubes(beanstalkd.port, "shop:").queues() == ["mail:high"]


def test_urgent_jobs_go_first(beanstalkd: Beanstalkd, tubes: Tubes) -> None:
    broker = tubes(beanstalkd.port, priorities={"pay.*": 1}, priority=9)
    push(broker, job(name="mail"), job(name="pay.order"))
    assert envelopes.decode(one(broker).raw).name == "pay.order"
    second = one(broker)
    again = envelopes.rewrite(second.raw, attempts=1)
    assert broker.settle([Again(claim(second), second.raw, again, 0, 1)]) == [True]
    with beanstalkd.client("q") as client:
        stats = client.stats_job(client.peek_ready().id)
    assert (stats["pri"], stats["ttr"]) == (9, 90)  # tried again, it is as urgent as before


def test_delays_are_rounded_up_to_seconds(beanstalkd: Beanstalkd, tubes: Tubes) -> None:
    broker, item = tubes(beanstalkd.port), job(delay="1500ms")
    [ref] = broker.push([item], OnConflict.KEEP)
    with beanstalkd.client("q") as client:
        assert client.stats_job(client.peek_delayed().id)["delay"] == 2
    assert ref.due_ms == item.due_ms + 500
    assert ref.state is State.SCHEDULED


def test_what_waits_can_be_counted_and_cleared(beanstalkd: Beanstalkd, tubes: Tubes) -> None:
    broker = tubes(beanstalkd.port)
    push(broker, job(), job(), job(delay="1h"), job("other"))
    held = one(broker)
    assert broker.depth("q")[:3] == (1, 1, 1)
    assert broker.clear("q") == 2
    assert broker.depth("q")[:3] == (0, 0, 1)
    assert broker.depth("other").ready == 1
    assert broker.depth("never")[:3] == (0, 0, 0)
    assert broker.settle([Forget(claim(held), held.raw)]) == [True]


def test_what_is_no_job_is_buried_and_can_be_kicked(
    beanstalkd: Beanstalkd, tubes: Tubes, caplog: pytest.LogCaptureFixture
) -> None:
    broker = tubes(beanstalkd.port)
    with beanstalkd.client("q") as client:
        client.put(b"no envelope")
        client.put(b'{"v":1,"id":"with blanks","name":"n","queue":"q","data":1,"attempts":0,"created_ms":0}')
        assert broker.reserve("q", 5) == []
        assert client.stats_tube("q")["current-jobs-buried"] == 2
        assert "is buried, because it is no job of delayq" in caplog.text
        push(broker, job(delay="1h"))
        assert broker.all_buried() == {"q": 2}
        assert (broker.buried("q"), broker.kick("q", 1), broker.buried("q")) == (2, 1, 1)
        assert (broker.kick("q", 10), broker.kick("q", 10), broker.kick("never", 1)) == (1, 0, 0)
        stats = client.stats_tube("q")
        assert (stats["current-jobs-ready"], stats["current-jobs-delayed"]) == (2, 1), "one that waits is not kicked"


# -- refused before anything is sent ----------------------------------------------------------------------------------


def test_a_job_that_is_too_large_is_refused_and_the_connection_goes_on(
    own_beanstalkd: Callable[..., Beanstalkd], tubes: Tubes
) -> None:
    broker = tubes(own_beanstalkd("-z", "1024").port)
    with pytest.raises(InvalidPayload, match=r"this beanstalkd takes 960"):
        push(broker, job(), job(data="x" * 900))
    assert broker.depth("q").ready == 0
    push(broker, job(data="x" * 700))
    assert broker.depth("q").ready == 1


def test_a_delay_that_no_number_holds_is_refused(beanstalkd: Beanstalkd, tubes: Tubes) -> None:
    broker = tubes(beanstalkd.port)
    with pytest.raises(InvalidInput, match="at most, and this one is due in"):
        push(broker, job(), job()._replace(delay_ms=2**32 * 1000))
    push(broker, job()._replace(delay_ms=(2**32 - 1) * 1000))
    assert broker.depth("q")[:2] == (0, 1)


def test_a_retry_that_has_grown_too_large_is_buried(
    own_beanstalkd: Callable[..., Beanstalkd], tubes: Tubes, caplog: pytest.LogCaptureFixture
) -> None:
    server = own_beanstalkd("-z", "1024")
    broker, item = tubes(server.port), job()
    raw = envelopes.rewrite(item.envelope, data="x" * (1024 - len(item.envelope) + 2))
    with server.client("q") as client:
        client.put(raw)
        held = one(broker)
        grown = envelopes.rewrite(raw, attempts=1, exceptions=1)
        assert broker.settle([Again(claim(held), raw, grown, 0, 1)]) == [True]
        assert client.peek_buried().body == raw
    assert "is buried" in caplog.text


def test_after_an_answer_that_means_nothing_the_connection_is_new(beanstalkd: Beanstalkd, tubes: Tubes) -> None:
    broker = tubes(beanstalkd.port)
    push(broker, job())
    with broker._pool.line() as line:
        serial = line.session.serial
        with pytest.raises(BackendError, match="BadFormatError"):  # as if nothing had been checked
            line.session.ask(lambda client: client.put(b"delete 1", delay=2**32))
        assert line.session.ask(lambda client: client.stats_tube("q"))["current-jobs-ready"] == 1
        assert line.session.serial == serial + 1


# -- whose is it ------------------------------------------------------------------------------------------------------


@EACH_BODY
def test_what_a_broken_connection_held_may_still_be_settled(beanstalkd: Beanstalkd, tubes: Tubes, laravel: str) -> None:
    holder, supervisor = tubes(beanstalkd.port, laravel=laravel), tubes(beanstalkd.port, laravel=laravel)
    push(holder, job(), job())
    done, again = one(holder), one(holder)
    assert supervisor.renew([claim(done)]) == [True]
    assert supervisor.settle([Forget(claim(done), b"")]) == [False]  # its holder lives
    holder.close()
    wait_until(lambda: beanstalkd_ready(supervisor) == 2, what="both are ready again")
    assert supervisor.renew([claim(done)]) == [False]
    changed = envelopes.rewrite(again.raw, attempts=1)
    acts: list[Act] = [Forget(claim(done), b""), Again(claim(again), again.raw, changed, 0, 1)]
    assert supervisor.settle(acts) == [True, True]
    assert supervisor.settle(acts) == [False, False]
    delivery = one(holder)
    assert (delivery.id, envelopes.decode(delivery.raw).attempts, delivery.recoveries) == (again.id, 1, 0)
    assert beanstalkd_ready(supervisor) == 0


def beanstalkd_ready(broker: BeanstalkdBroker) -> int:
    return broker.depth("q").ready


def test_what_somebody_else_has_reserved_since_is_not_settled(beanstalkd: Beanstalkd, tubes: Tubes) -> None:
    first, second, supervisor = tubes(beanstalkd.port), tubes(beanstalkd.port), tubes(beanstalkd.port)
    push(first, job())
    old = one(first)
    first.close()
    new = one(second)
    assert (new.id, new.recoveries) == (old.id, 1)
    assert supervisor.settle([Forget(claim(old), b"")]) == [False]
    second.give_back([claim(new)], vanished=False)
    assert supervisor.settle([Forget(claim(old), b"")]) == [False]  # it was another's, even if that did nothing
    assert one(second).recoveries == 1


@EACH_BODY
def test_a_server_that_lost_its_memory_numbers_jobs_anew(
    own_beanstalkd: Callable[..., Beanstalkd], tubes: Tubes, laravel: str
) -> None:
    server = own_beanstalkd()
    broker = tubes(server.port, laravel=laravel)
    push(broker, job())
    old = one(broker)
    server.kill()
    for log in server.folder.glob("binlog*"):
        log.unlink()
    server.start()
    push(broker, job())
    newer = one(broker)
    broker.close()
    assert newer.entry == old.entry
    other = tubes(server.port, laravel=laravel)
    wait_until(lambda: beanstalkd_ready(other) == 1, what="it is ready again")
    assert other.settle([Forget(claim(old), b"")]) == [False]
    assert beanstalkd_ready(other) == 1


def test_a_lost_answer_to_the_last_word_is_no_fence(beanstalkd: Beanstalkd, tubes: Tubes) -> None:
    with Cutter(beanstalkd.port) as cutter:
        broker = tubes(cutter.port)
        push(broker, job(), job())
        first, second = one(broker), one(broker)
        cutter.after(b"delete")
        acts = [Forget(claim(first), first.raw), Forget(claim(second), second.raw)]
        with pytest.raises(BackendUnavailable):
            broker.settle(acts)
        assert wait_until(lambda: broker.settle(acts), what="they are settled") == [True, True]
        broker.close()
    assert tubes(beanstalkd.port).depth("q")[:3] == (0, 0, 0)


def test_a_lost_answer_to_a_put_is_told_as_unknown(beanstalkd: Beanstalkd, tubes: Tubes) -> None:
    with Cutter(beanstalkd.port) as cutter:
        broker = tubes(cutter.port)
        cutter.after(b"put")
        with pytest.raises(OutcomeUnknown):
            push(broker, job())
        push(broker, job())
        assert broker.depth("q").ready == 2
        broker.close()


# -- signals, threads, forks, servers that go -------------------------------------------------------------------------


class Torn(BaseException):
    """As a worker's watchdog tears its main thread out of a wait."""


def test_a_wait_that_is_torn_costs_nothing(beanstalkd: Beanstalkd, tubes: Tubes) -> None:
    broker, producer = tubes(beanstalkd.port), tubes(beanstalkd.port)
    push(producer, job())
    held = one(broker)

    def tear(number: int, frame: object) -> None:
        raise Torn

    before = signal.signal(signal.SIGUSR1, tear)
    try:
        for _ in range(20):
            _torn_wait(broker)
    finally:
        signal.signal(signal.SIGUSR1, before)
    push(producer, job())
    assert broker.renew([claim(held)]) == [True]  # what it held it holds
    assert one(broker).recoveries == 0
    assert broker.settle([Forget(claim(held), held.raw)]) == [True]


def _torn_wait(broker: BeanstalkdBroker) -> None:
    """Wait, and be told to leave in the middle of it."""
    timer = threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGUSR1))
    with pytest.raises(Torn):
        _wait_for_ever(broker, timer)
    timer.join()


def _wait_for_ever(broker: BeanstalkdBroker, timer: threading.Timer) -> None:
    timer.start()  # a slow start is torn too
    while True:
        broker.wait(["q"], 1.0)


def test_what_came_for_one_who_has_left_goes_back_uncounted(beanstalkd: Beanstalkd, tubes: Tubes) -> None:
    broker, producer = tubes(beanstalkd.port), tubes(beanstalkd.port)

    def tear(number: int, frame: object) -> None:
        raise Torn

    before = signal.signal(signal.SIGUSR1, tear)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        with pytest.raises(Torn):
            _wait_for_ever(broker, timer)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    push(producer, job())  # the server still has a wait to answer, for nobody
    other = tubes(beanstalkd.port)
    delivery = one(other)
    assert delivery.recoveries == 0


def test_what_a_fork_has_copied_is_not_spoken_on(beanstalkd: Beanstalkd, tubes: Tubes) -> None:
    broker = tubes(beanstalkd.port)
    push(broker, job())
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            push(broker, job())
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    push(broker, job())
    assert broker.depth("q").ready == 3


def test_a_server_that_went_and_came_back_is_found_again(
    own_beanstalkd: Callable[..., Beanstalkd], tubes: Tubes
) -> None:
    server = own_beanstalkd()
    broker = tubes(server.port)
    push(broker, job())
    held = one(broker)
    server.kill()
    for act in (lambda: push(broker, job()), lambda: broker.wait(["q"], 1.0), lambda: broker.depth("q")):
        with pytest.raises(BackendUnavailable, match=r"No beanstalkd answers|broke before"):
            act()
    server.start()
    push(broker, job())  # over a connection that the server has forgotten: nothing was sent, so it is made anew
    assert broker.renew([claim(held)]) == [False]
    assert {one(broker).id, one(broker).id} >= {held.id}


def test_an_envelope_can_be_read_while_another_holds_it(beanstalkd: Beanstalkd, tubes: Tubes) -> None:
    broker, supervisor = tubes(beanstalkd.port), tubes(beanstalkd.port)
    push(broker, job())
    held = one(broker)
    assert supervisor.envelope(claim(held)) == held.raw
    assert supervisor.envelope(Claim("q", new_id(), "999.1")) == b""
    assert supervisor.settle([Forget(Claim("q", new_id(), "x"), b"")]) == [False]
    assert supervisor.renew([Claim("q", new_id(), "999.1")]) == [False]
