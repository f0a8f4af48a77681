"""What workers get and how they get rid of it: order, attempts, leases, and the death of whoever held it."""

from __future__ import annotations

import time

import msgspec
import pytest

from delayq.core import envelope as envelopes
from delayq.core import follow
from delayq.core.followups import Chain, Link
from delayq.core.names import new_id
from delayq.core.outcome import DONE, Ack, Outcome
from delayq.core.spec import prepare
from delayq.core.views import JobRef
from delayq.drivers.base import Claim, Settlement
from delayq.jobs.chain import chain
from delayq.jobs.current import using_manager
from delayq.jobs.dispatch import named
from tests.contract.backend import IT
from tests.contract.rig import Rig, again, claim_of, data_of, envelope_of, give_up
from tests.support.waiting import wait_until

pytestmark = pytest.mark.needs("serves")


# -- order and count ---------------------------------------------------------------------------------------------------


def test_the_first_queue_goes_first(rig: Rig) -> None:
    high, low = rig.new_queue(), rig.queue
    rig.schedule(data="low")
    rig.schedule(data="high", queue=high)
    consumer = rig.consumer(high, low)
    order = []
    for _ in range(2):
        delivery = rig.one(consumer)
        order.append(data_of(delivery))
        rig.settle(consumer, delivery)
    assert order == ["high", "low"]


def test_no_more_is_read_than_was_asked_for(rig: Rig) -> None:
    for n in range(3):
        rig.schedule(data=n)
    assert len(rig.take(rig.consumer(), 1)) == 1
    assert len(rig.take(rig.consumer(), 2)) == 2


def test_what_one_holds_no_other_gets(rig: Rig) -> None:
    rig.schedule()
    first, second = rig.consumer(), rig.consumer()
    delivery = rig.one(first)
    assert rig.nothing(second)
    assert rig.settle(first, delivery)


def test_a_wait_ends_with_a_job_or_with_the_time(rig: Rig) -> None:
    consumer = rig.consumer()
    assert not consumer.wait(0.05).deliveries
    ref = rig.schedule()
    rig.move()
    found = wait_until(lambda: consumer.wait(1.0).deliveries, what="the wait brings the job")
    assert [delivery.id for delivery in found] == [ref.id]


def test_an_entry_fits_into_shared_memory(rig: Rig) -> None:
    rig.schedule()
    consumer = rig.consumer()
    first = rig.one(consumer)
    consumer.hand_back([first])
    second = rig.one(consumer)
    assert first.entry != second.entry
    assert all(0 < len(entry) <= 42 and entry.isascii() for entry in (first.entry, second.entry))


# -- settling ----------------------------------------------------------------------------------------------------------


def test_done_is_gone(rig: Rig) -> None:
    rig.schedule()
    consumer = rig.consumer()
    assert rig.settle(consumer, rig.one(consumer)) is True
    assert rig.nothing(consumer)
    assert rig.nothing(rig.consumer())


def test_settling_and_reading_in_one_go(rig: Rig) -> None:
    for n in range(3):
        rig.schedule(data=n)
    consumer = rig.consumer()
    delivery, seen = rig.one(consumer), []
    for _ in range(3):
        seen.append(data_of(delivery))
        fetched = consumer.fetch([Settlement(delivery, DONE)], 1)
        assert fetched.settled == [True]
        if fetched.deliveries:
            (delivery,) = fetched.deliveries
    assert seen == [0, 1, 2]


def test_what_is_settled_twice_is_fenced(rig: Rig) -> None:
    rig.schedule()
    consumer = rig.consumer()
    delivery = rig.one(consumer)
    assert rig.settle(consumer, delivery) is True
    assert rig.settle(consumer, delivery) is False


def test_a_failed_attempt_is_counted_and_comes_again(rig: Rig) -> None:
    ref = rig.connection.push_raw(_with_unknown(rig))
    consumer = rig.consumer()
    first = rig.one(consumer)
    assert rig.settle(consumer, first, again(first, error=ValueError("once")))
    second = rig.one(consumer)
    envelope = envelope_of(second)
    assert (second.id, envelope.attempts, envelope.exceptions, second.recoveries) == (ref.id, 1, 1, 0)
    assert msgspec.json.decode(second.raw)["from_the_future"] is True
    assert rig.settle(consumer, second, again(second, error=ValueError("twice")))
    third = rig.one(consumer)
    assert (envelope_of(third).attempts, envelope_of(third).exceptions) == (2, 2)
    assert rig.settle(consumer, third)
    assert rig.nothing(consumer)


def test_a_snooze_costs_nothing(rig: Rig) -> None:
    rig.schedule()
    consumer = rig.consumer()
    first = rig.one(consumer)
    assert rig.settle(consumer, first, again(first))
    second = rig.one(consumer)
    assert (envelope_of(second).attempts, second.recoveries) == (0, 0)


@pytest.mark.needs("delay")
def test_a_backoff_is_waited_out(rig: Rig) -> None:
    rig.schedule()
    consumer = rig.consumer()
    delivery = rig.one(consumer)
    delay_ms = max(300, 2 * rig.can.resolution_ms)
    began = time.monotonic()
    assert rig.settle(consumer, delivery, again(delivery, delay_ms, ValueError("later")))
    rig.one(consumer)
    assert (time.monotonic() - began) * 1000 >= delay_ms


def test_a_job_that_fails_for_good_is_kept_among_the_failed(rig: Rig) -> None:
    ref = rig.schedule()
    consumer = rig.consumer()
    delivery = rig.one(consumer)
    assert rig.failure_of(ref.id) is None
    assert rig.settle(consumer, delivery, give_up(delivery, ValueError("no such order")))
    assert rig.failure_of(ref.id) == "no such order"
    assert rig.nothing(consumer)


def test_a_failure_that_comes_too_late_is_none(rig: Rig) -> None:
    ref = rig.schedule()
    consumer = rig.consumer()
    delivery = rig.one(consumer)
    assert rig.settle(consumer, delivery)
    assert rig.settle(consumer, delivery, give_up(delivery, ValueError("late"))) is False
    assert rig.failure_of(ref.id) is None


def test_what_was_not_started_is_handed_back_uncounted(rig: Rig) -> None:
    ref = rig.schedule()
    first, second = rig.consumer(), rig.consumer()
    first.hand_back([rig.one(first)])
    delivery = rig.one(second)
    assert (delivery.id, envelope_of(delivery).attempts, delivery.recoveries) == (ref.id, 0, 0)


@pytest.mark.needs("chains")
def test_the_next_link_of_a_chain_follows(rig: Rig) -> None:
    other = rig.new_queue()
    last = _link(rig, "contract.last", queue=other)
    middle = _link(rig, "contract.middle")
    rig.schedule("contract.first", chain=Chain(id=new_id(), next=[middle, last]))
    consumer = rig.consumer()
    for name in ("contract.first", "contract.middle"):
        delivery = rig.one(consumer)
        assert envelope_of(delivery).name == name
        assert rig.settle(consumer, delivery, Ack())
    rig.driver.relay(rig.queue)
    rig.queue = other
    delivery = rig.one(rig.consumer(other))
    assert (envelope_of(delivery).name, delivery.id) == ("contract.last", last.id)


@pytest.mark.needs("chains")
def test_a_chain_of_named_jobs_is_dispatched(rig: Rig) -> None:
    """Through `chain(...).dispatch()`, which gives the first link an id of its own."""
    with using_manager(rig.manager):
        sent = (
            chain(named("contract.one", {}), named("contract.two", {})).on_connection(IT).on_queue(rig.queue).dispatch()
        )
    assert isinstance(sent, JobRef)
    consumer = rig.consumer()
    first = rig.one(consumer)
    assert (first.id, envelope_of(first).name) == (sent.id, "contract.one")
    assert rig.settle(consumer, first, Ack())
    assert envelope_of(rig.one(consumer)).name == "contract.two"


@pytest.mark.needs("chains")
def test_a_chain_that_breaks_tells_who_catches(rig: Rig) -> None:
    caught, never = _link(rig, "contract.caught"), _link(rig, "contract.never")
    rig.schedule("contract.first", chain=Chain(id=new_id(), next=[never], catch=[caught]))
    consumer = rig.consumer()
    first = rig.one(consumer)
    assert rig.settle(consumer, first, give_up(first, ValueError("broken")))
    second = rig.one(consumer)
    headers = envelope_of(second).headers or {}
    assert (second.id, headers[f"{follow.FAILED_HEADER}message"]) == (caught.id, "broken")
    assert rig.settle(consumer, second)
    assert rig.nothing(consumer)


# -- leases and death --------------------------------------------------------------------------------------------------


@pytest.mark.lease("1s")
def test_what_a_dead_worker_held_goes_to_another(rig: Rig) -> None:
    ref = rig.schedule()
    dead, alive = rig.consumer(), rig.consumer()
    held = rig.one(dead)
    rig.vanish(dead)
    delivery = rig.one(alive)
    assert (delivery.id, envelope_of(delivery).attempts) == (ref.id, int(rig.can.reads_count))
    assert rig.steward().settle([(claim_of(held), DONE)]) == [False]
    assert rig.settle(alive, delivery) is True
    assert rig.nothing(alive)


@pytest.mark.needs("recoveries")
@pytest.mark.lease("1s")
def test_a_vanished_worker_is_counted_apart_from_attempts(rig: Rig) -> None:
    rig.schedule()
    consumer = rig.consumer()
    first = rig.one(consumer)
    rig.vanish(consumer)
    rig.steward().recover([claim_of(first)])
    second = rig.one(rig.consumer())
    assert (second.recoveries, envelope_of(second).attempts) == (1, 0)


@pytest.mark.needs("recoveries")
@pytest.mark.lease("1s")
def test_a_job_that_kills_every_worker_fails(rig: Rig) -> None:
    ref = rig.schedule()
    for _ in range(rig.settings.max_recoveries + 1):
        consumer = rig.consumer()
        held = rig.one(consumer)
        rig.vanish(consumer)
        rig.steward().recover([claim_of(held)])
    consumer = rig.consumer()
    message = wait_until(
        lambda: rig.nothing(consumer) and rig.failure_of(ref.id), what="the job fails after its fourth worker"
    )
    assert message
    assert "vanished" in message


@pytest.mark.timed
@pytest.mark.needs("steward")
@pytest.mark.lease("1s")
def test_a_supervisor_keeps_the_lease(rig: Rig) -> None:
    rig.schedule()
    holder, other = rig.consumer(), rig.consumer()
    delivery, steward = rig.one(holder), rig.steward()
    until = time.monotonic() + 2.2
    while time.monotonic() < until:
        assert not steward.renew(holder.name, [claim_of(delivery)]).lost
        assert rig.nothing(other)
        time.sleep(0.1)
    assert rig.settle(holder, delivery) is True
    gone = steward.renew(holder.name, [claim_of(delivery)])
    assert gone.lost == {(rig.queue, delivery.id)}


@pytest.mark.timed
@pytest.mark.needs("holder")
@pytest.mark.lease("1s")
def test_a_holder_keeps_the_lease_itself(rig: Rig) -> None:
    rig.schedule()
    holder, other = rig.consumer(), rig.consumer()
    delivery = rig.one(holder)
    until = time.monotonic() + 2.2
    while time.monotonic() < until:
        assert rig.nothing(other)
        time.sleep(0.1)
    assert rig.settle(holder, delivery) is True


@pytest.mark.needs("steward")
def test_a_supervisor_clears_up_after_a_dead_child(rig: Rig) -> None:
    done, waiting, running = (rig.schedule(data=n) for n in range(3))
    dead = rig.consumer()
    held = {delivery.id: delivery for delivery in (rig.one(dead) for _ in range(3))}
    steward = rig.steward()
    assert steward.envelope(claim_of(held[running.id])) == held[running.id].raw
    assert steward.settle([(claim_of(held[done.id]), DONE)]) == [True]
    steward.hand_back([claim_of(held[waiting.id])])
    steward.recover([claim_of(held[running.id])])
    consumer = rig.consumer()
    back = {delivery.id: delivery.recoveries for delivery in rig.take(consumer, 2)}
    assert back == {waiting.id: 0, running.id: 1 if rig.can.recoveries else 0}
    steward.hand_back([claim_of(held[waiting.id])])  # again: it is somebody else's by now
    assert rig.nothing(rig.consumer())


@pytest.mark.needs("steward")
def test_a_supervisor_settles_what_a_dead_child_gave_up(rig: Rig) -> None:
    fails, retries = rig.schedule(data="fails"), rig.schedule(data="retries")
    dead = rig.consumer()
    held = {delivery.id: delivery for delivery in (rig.one(dead), rig.one(dead))}
    first, second = held[fails.id], held[retries.id]
    outcomes: list[tuple[Claim, Outcome]] = [
        (claim_of(first), give_up(first, ValueError("dead"))),
        (claim_of(second), again(second, error=ValueError("once more"))),
    ]
    assert rig.steward().settle(outcomes) == [True, True]
    assert rig.failure_of(fails.id) == "dead"
    delivery = rig.one(rig.consumer())
    assert (delivery.id, envelope_of(delivery).attempts) == (retries.id, 1)


def test_leases_and_clocks_can_be_asked_for(rig: Rig) -> None:
    consumer, steward = rig.consumer(), rig.steward()
    assert consumer.lease_s() == pytest.approx(steward.lease_s())
    assert abs(consumer.now_ms() - time.time() * 1000) < 60_000


def _link(rig: Rig, name: str, queue: str | None = None) -> Link:
    options = rig.manager.options_of("it")
    made = prepare(rig.spec(name, queue=queue or rig.queue, id=new_id()), options, 0)
    return Link(job=msgspec.Raw(made.envelope))


def _with_unknown(rig: Rig) -> bytes:
    options = rig.manager.options_of("it")
    return envelopes.rewrite(prepare(rig.spec(data={"a": 1}), options, 0).envelope, from_the_future=True)
