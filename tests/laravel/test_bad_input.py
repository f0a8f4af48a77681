"""What somebody else put into Laravel's keys: refused in one sentence, kept, and in nobody else's way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from delayq.core.errors import BackendDamaged, ConfigError, InvalidInput, InvalidPayload
from tests.laravel.side import PythonSide, envelope_of
from tests.laravel.test_objects import refused
from tests.support.laravel import Laravel

GOOD = b'{"uuid":"u1","job":"Mailer@send","data":{"n":1},"id":"i1","attempts":0}'


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\x00\x01igbinary\xff", "no payload of Laravel's"),
        (b"", "no payload of Laravel's"),
        (b'{"job":"Mailer@send"}', "does not count its attempts"),
        (b'{"job":"Mailer@send","data":{"attempts":3}}', "does not count its attempts"),
        (b'{"attempts":"many","job":"Mailer@send"}', "no payload of Laravel's"),
        (b'{"job":"x","data":' + b"[" * 50_000 + b"]" * 50_000 + b',"attempts":0}', "nested too deeply"),
    ],
)
def test_garbage_goes_to_the_failed_and_the_next_job_is_run(
    app: Laravel, python: PythonSide, client: redis.Redis, raw: bytes, why: str
) -> None:
    client.rpush(f"{app.prefix}queues:orders", raw, GOOD)
    consumer = python.consumer()
    bad, good = python.take(consumer, 2)
    assert why in bad.unreadable
    assert "\n" not in bad.unreadable
    assert python.end(consumer, bad, refused(bad))
    kept = python.failed(bad.id)
    assert kept is not None
    assert kept.payload == raw.replace(b'"attempts":0', b'"attempts":1')
    assert envelope_of(good).name == "Mailer@send"
    assert python.end(consumer, good)


def test_what_is_too_large_is_refused_and_kept(
    app: Laravel, python: PythonSide, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.drivers.laravel.payload.MAX_BYTES", 1_000_000)
    raw = b'{"uuid":"u1","job":"Mailer@send","data":"' + b"x" * 1_500_000 + b'","attempts":0}'
    client.rpush(f"{app.prefix}queues:orders", raw)
    client.rpush(f"{app.prefix}queues:orders", GOOD)
    consumer = python.consumer()
    large = python.one(consumer)
    assert f"has {len(raw):,} bytes; at most 1,000,000 are read" in large.unreadable
    assert python.end(consumer, large, refused(large))
    kept = python.failed(large.id)
    assert kept is not None
    assert len(kept.payload) == len(raw)
    assert envelope_of(python.one(consumer)).name == "Mailer@send"


@pytest.mark.parametrize("ending", ["", ":delayed", ":reserved", ":notify", ":delayq:held"])
def test_a_key_of_another_type_is_said_and_the_other_queues_go_on(
    app: Laravel, python: PythonSide, client: redis.Redis, ending: str
) -> None:
    client.set(f"{app.prefix}queues:odd{ending}", "a string")
    client.rpush(f"{app.prefix}queues:orders", GOOD)
    fetched = python.consumer("odd", "orders").fetch((), 5)
    (error,) = fetched.errors
    assert isinstance(error, BackendDamaged)
    assert "A key of the queue odd (asked by laravel/reserve.lua)" in str(error)
    assert [delivery.id for delivery in fetched.deliveries] == ["u1"]
    assert client.get(f"{app.prefix}queues:odd{ending}") == b"a string"


def test_nothing_of_a_push_is_left_where_a_key_is_of_another_type(
    app: Laravel, python: PythonSide, client: redis.Redis
) -> None:
    client.set(f"{app.prefix}queues:orders:delayed", "a string")
    with pytest.raises(BackendDamaged):
        python.push("Mailer@send", {"n": 1})
    assert client.exists(f"{app.prefix}queues:orders", f"{app.prefix}queues:orders:notify") == 0


def test_what_laravel_cannot_hold_is_refused_before_it_is_sent(python: PythonSide, client: redis.Redis) -> None:
    deep: object = 1
    for _ in range(490):
        deep = [deep]
    before = client.dbsize()
    for options, error, why in (
        ({"data": deep}, InvalidPayload, "nested 490 deep, and Laravel reads 480"),
        ({"unique": "k"}, InvalidInput, "keeps no unique keys"),
        ({"id": "order-42"}, InvalidInput, "cannot tell whether the id 'order-42' is taken"),
        ({"retention": "1h"}, InvalidInput, "forgets a job when it is done"),
    ):
        with pytest.raises(error, match=why):
            python.push("Mailer@send", **options)
    assert client.dbsize() == before


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": None}, "does not say where Laravel's Redis is"),
        ({"url": "redis+cluster://localhost:7000"}, "is a Redis Cluster"),
        ({"retry_after": "500ms"}, "retry_after of the connection 'laravel' is"),
        ({"retry_after": 90}, "retry_after of the connection 'laravel' is 90"),
        ({"failed": "failed"}, "failed of the connection 'laravel' is 'failed'"),
        ({"prefetch": 0}, "prefetch of the connection 'laravel' is 0"),
        ({"block_for": "5s"}, "has an option 'block_for' that its driver laravel_redis does not know"),
    ],
)
def test_settings_that_no_laravel_has(
    make_side: Callable[..., PythonSide], options: dict[str, object], why: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        make_side(**options)
    assert why in str(refused.value)
    assert refused.value.hint


def test_payloads_are_counted_byte_by_byte(app: Laravel, python: PythonSide, client: redis.Redis) -> None:
    """The count is found where it stands, and nothing else is touched, whatever the payload looks like."""
    payloads = [
        b'{"attempts": 9 ,"uuid":"a","job":"J","data":{"attempts":5,"x":"\\"attempts\\":7"}}',
        b'{"uuid":"b","job":"J","data":{"big":130775545883395173,"empty":[],"attempts":1},"attempts":99 } ',
        b'{"uuid":"c","job":"J","attempts":0,"data":"}{][\\\\","tags":[]}',
        b'{"uuid":"d","job":"J","data":["attempts",{"attempts":[]}],"attempts":1,"z":{}}',
    ]
    client.rpush(f"{app.prefix}queues:orders", *payloads)
    consumer = python.consumer()
    found = python.take(consumer, 4)
    assert [envelope_of(delivery).attempts for delivery in found] == [9, 99, 0, 1]
    reserved = set(client.zrange(f"{app.prefix}queues:orders:reserved", 0, -1))
    assert reserved == {
        payloads[0].replace(b'"attempts": 9 ', b'"attempts": 10 '),
        payloads[1].replace(b'"attempts":99', b'"attempts":100'),
        payloads[2].replace(b'"attempts":0', b'"attempts":1'),
        payloads[3].replace(b'"attempts":1', b'"attempts":2'),
    }
    consumer.hand_back(found)
    assert client.lrange(f"{app.prefix}queues:orders", 0, -1) == payloads


def test_rows_of_reservations_that_phps_workers_ended_are_swept(
    app: Laravel, python: PythonSide, client: redis.Redis
) -> None:
    rows = f"{app.prefix}queues:orders:delayq:held"
    client.hset(rows, mapping={f"old.{n}": b"0 0 gone" for n in range(20)})
    broker = python.connection.broker
    for _ in range(200):
        if not client.exists(rows):
            break
        assert broker.reserve("orders", 1) == []
    assert client.exists(rows) == 0
