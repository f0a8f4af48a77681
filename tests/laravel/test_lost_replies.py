"""Replies that get lost between Redis and a Python worker: nothing is run twice for it, nothing is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from delayq.core.errors import OutcomeUnknown
from delayq.drivers.base import Claim
from delayq.drivers.broker import Again, Broker, Forget
from tests.laravel.side import PythonSide, envelope_of, give_up
from tests.support.laravel import Laravel
from tests.support.proxy import Proxy
from tests.support.servers import LocalServer


@pytest.fixture
def proxy(shared_redis: LocalServer) -> Iterator[Proxy]:
    with Proxy(shared_redis.socket) as proxy:
        yield proxy


@pytest.fixture
def python(make_side: Callable[..., PythonSide], proxy: Proxy) -> PythonSide:
    """Behind the proxy, and connected: the next reply is that of the next call."""
    side = make_side(url=proxy.url)
    side.push("Mailer@send", {"n": 1})
    return side


@pytest.fixture
def broker(python: PythonSide) -> Broker:
    return python.connection.broker


def counts(client: redis.Redis, app: Laravel) -> tuple[int, int, int, int]:
    """In the list, delayed, reserved, held."""
    queue = f"{app.prefix}queues:orders"
    return (
        int(client.llen(queue)),
        int(client.zcard(f"{queue}:delayed")),
        int(client.zcard(f"{queue}:reserved")),
        int(client.hlen(f"{queue}:delayq:held")),
    )


def test_a_reservation_whose_reply_was_lost_is_told_again(
    app: Laravel, broker: Broker, proxy: Proxy, client: redis.Redis
) -> None:
    proxy.cut()
    (delivery,) = broker.reserve("orders", 5)
    assert envelope_of(delivery).attempts == 0
    assert (proxy.lost, counts(client, app)) == (1, (0, 0, 1, 1))


def test_a_push_whose_reply_was_lost_is_not_sent_again(
    app: Laravel, python: PythonSide, proxy: Proxy, client: redis.Redis
) -> None:
    proxy.cut()
    with pytest.raises(OutcomeUnknown, match="its outcome is unknown"):
        python.push("Mailer@send", {"n": 2})
    assert counts(client, app) == (2, 0, 0, 0)


def test_what_was_settled_unseen_is_settled(app: Laravel, broker: Broker, proxy: Proxy, client: redis.Redis) -> None:
    (delivery,) = broker.reserve("orders", 1)
    done = [Forget(Claim("orders", delivery.id, delivery.entry), delivery.raw)]
    proxy.cut()
    with pytest.raises(OutcomeUnknown):
        broker.settle(done)
    assert broker.settle(done) == [True]
    assert broker.settle(done) == [False]
    assert counts(client, app) == (0, 0, 0, 0)


def test_what_was_released_unseen_is_there_once(
    app: Laravel, broker: Broker, proxy: Proxy, client: redis.Redis
) -> None:
    (delivery,) = broker.reserve("orders", 1)
    later = [Again(Claim("orders", delivery.id, delivery.entry), delivery.raw, b"", 60_000, 1)]
    proxy.cut()
    with pytest.raises(OutcomeUnknown):
        broker.settle(later)
    assert broker.settle(later) == [True]
    assert counts(client, app) == (0, 1, 0, 0)


def test_a_failure_that_was_settled_unseen_stays_among_the_failed(
    app: Laravel, python: PythonSide, proxy: Proxy, client: redis.Redis
) -> None:
    python.push("Mailer@send", {"n": 2})
    consumer = python.consumer()
    first, second = python.take(consumer, 2)
    assert python.end(consumer, first, give_up(first, ValueError("no")))  # the store is connected now
    proxy.cut(after=2)  # the row and its time are kept; then the job leaves its queue
    with pytest.raises(OutcomeUnknown):
        python.end(consumer, second, give_up(second, ValueError("no")))
    assert python.end(consumer, second, give_up(second, ValueError("no"))) is True
    assert python.failed(second.id) is not None
    assert counts(client, app) == (0, 0, 0, 0)


def test_leases_and_hand_backs_are_said_again(app: Laravel, broker: Broker, proxy: Proxy, client: redis.Redis) -> None:
    (delivery,) = broker.reserve("orders", 1)
    claim = Claim("orders", delivery.id, delivery.entry)
    proxy.cut()
    assert broker.renew([claim]) == [True]
    proxy.cut()
    broker.give_back([claim], vanished=False)
    assert (proxy.lost, counts(client, app)) == (2, (1, 0, 0, 0))
