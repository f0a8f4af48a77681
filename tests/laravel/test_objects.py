"""Objects that a real PHP serialised: shown and run by name with their plain fields, or refused; never lost."""

from __future__ import annotations

import json

import redis

from delayq.core import envelope as envelopes
from delayq.core.errors import BadEnvelope
from delayq.core.outcome import GiveUp
from delayq.drivers.base import Delivery
from delayq.drivers.laravel.php import PhpObject, unserialize
from tests.laravel.side import PythonSide, again, data_of, envelope_of
from tests.support.laravel import Laravel

CLOSE = "App\\CloseOrder"


def test_an_object_is_run_by_its_name_with_its_plain_fields(app: Laravel, python: PythonSide) -> None:
    app.push({"object": 42, "lines": [{"sku": "x", "many": 2}], "queue": "orders"})
    consumer = python.consumer()
    delivery = python.one(consumer)
    envelope = envelope_of(delivery)
    assert (envelope.name, envelope.tries, envelope.backoff) == (CLOSE, 4, [1000, 5000])
    assert data_of(delivery) == {"order_id": 42, "note": 'ü "quoted"', "lines": [{"sku": "x", "many": 2}]}
    assert python.end(consumer, delivery)
    assert app.size("orders") == 0


def test_an_object_that_python_releases_is_the_same_object(
    app: Laravel, python: PythonSide, client: redis.Redis
) -> None:
    app.push({"object": 42, "lines": [{"sku": "x"}], "queue": "orders"})
    (before,) = client.lrange(f"{app.prefix}queues:orders", 0, -1)
    consumer = python.consumer()
    delivery = python.one(consumer)
    assert python.end(consumer, delivery, again(delivery, 600_000))
    after: list[bytes] = client.zrange(f"{app.prefix}queues:orders:delayed", 0, -1)  # type: ignore[assignment]
    assert json.loads(after[0]) == json.loads(before) | {"attempts": 1}


def test_an_object_is_shown_where_it_waits(app: Laravel, python: PythonSide) -> None:
    app.push({"object": 42, "queue": "orders", "delay": 600}, {"object": 7, "queue": "orders"})
    page = python.connection.broker.page("orders", cursor="", count=10)
    assert [json.loads(job.envelope)["name"] for job in page.jobs] == [CLOSE, CLOSE]
    assert [json.loads(job.envelope)["data"]["order_id"] for job in page.jobs] == [7, 42]


def test_the_head_of_a_chain_goes_to_the_failed_whole(app: Laravel, python: PythonSide, client: redis.Redis) -> None:
    app.push({"object": 42, "chained": True, "queue": "orders"})
    (before,) = client.lrange(f"{app.prefix}queues:orders", 0, -1)
    consumer = python.consumer()
    delivery = python.one(consumer)
    assert f"The PHP job {CLOSE} goes before a chain of 2" in delivery.unreadable
    assert python.end(consumer, delivery, refused(delivery))
    kept = python.failed(delivery.id)
    assert kept is not None
    assert "goes before a chain of 2" in kept.failure.message
    assert json.loads(kept.payload) == json.loads(before) | {"attempts": 1}
    assert app.size("orders") == 0
    again = envelopes.rewrite(python.connection.broker.load(kept.payload), attempts=0)
    assert python.connection.push_raw(again, queue="orders").id == delivery.id
    (put_back,) = client.lrange(f"{app.prefix}queues:orders", 0, -1)
    assert json.loads(put_back) == json.loads(before)


def test_every_field_php_wrote_is_read(app: Laravel, client: redis.Redis) -> None:
    app.push({"object": 42, "chained": True, "lines": [{"sku": "x", "price": 1.5}], "queue": "orders"})
    (raw,) = client.lrange(f"{app.prefix}queues:orders", 0, -1)
    command = unserialize(json.loads(raw)["data"]["command"].encode())
    assert isinstance(command, PhpObject)
    assert command.name == CLOSE
    assert command.fields["lines"] == [{"sku": "x", "price": 1.5}]
    when = command.fields["when"]
    assert isinstance(when, PhpObject)
    assert (when.name, when.fields["date"]) == ("DateTime", "2026-11-21 15:00:00.000000")
    chained = command.fields["chained"]
    assert isinstance(chained, list)
    assert [unserialize(str(link).encode()).name for link in chained] == [CLOSE, CLOSE]  # type: ignore[union-attr]


def refused(delivery: Delivery) -> GiveUp:
    """What a worker makes of a delivery that cannot be read."""
    return GiveUp(0, 0, BadEnvelope(delivery.unreadable))
