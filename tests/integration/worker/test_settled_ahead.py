"""While jobs flow, what has ended is settled by Redis while the next ones run; its answers are read later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from delayq.core.errors import OutcomeUnknown
from delayq.core.outcome import DONE
from delayq.drivers.base import Consumer, Delivery, Fetched, Settlement
from delayq.drivers.redis_reader import MANY
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis.connect import Connector
from tests.support.proxy import Proxy
from tests.support.station import QUEUE, Station

NAME = "dq:host:1:a1"


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    with Proxy(Path(urlsplit(redis_url).path)) as made:
        yield made


def done(deliveries: Sequence[Delivery]) -> list[Settlement]:
    return [Settlement(one, DONE) for one in deliveries]


def ids(station: Station, batches: int) -> list[str]:
    refs = station.client.schedule_many([{"name": "note"} for _ in range(1 + batches * MANY)])
    return [ref.id for ref in refs]


def answers(fetched: Fetched) -> Fetched:
    assert fetched.later is not None, "settled ahead"
    return fetched.later()


def flowing(consumer: Consumer) -> tuple[Sequence[Delivery], Fetched]:
    """What was read first, and the read that settles it. The server knows the script by then."""
    consumer.settle(done(consumer.fetch([], 1).deliveries))
    first = consumer.fetch([], MANY).deliveries
    return first, consumer.fetch(done(first), MANY)


def test_what_has_ended_is_settled_before_anybody_reads_the_answer(station: Station) -> None:
    jobs = ids(station, 3)
    with closing(station.driver.consumer(NAME, [QUEUE])) as consumer:
        first, second = flowing(consumer)
        station.until_gone([one.id for one in first])
        assert len(second.deliveries) == MANY
        assert list(answers(second).settled) == [True] * MANY
        third = consumer.fetch(done(second.deliveries), MANY)
        assert list(answers(third).settled) == [True] * MANY
        assert list(consumer.settle(done(third.deliveries)).settled) == [True] * MANY
    station.until_gone(jobs)


def test_answers_nobody_asked_for_are_in_nobodys_way(station: Station) -> None:
    jobs = ids(station, 3)
    with closing(station.driver.consumer(NAME, [QUEUE])) as consumer:
        _, second = flowing(consumer)
        third = consumer.fetch(done(second.deliveries), MANY)
        assert {one.id for one in consumer.replay().deliveries} == {one.id for one in third.deliveries}
        last = consumer.fetch(done(third.deliveries), MANY)
        assert not last.deliveries
        consumer.wait(0.001)
        assert [list(answers(each).settled) for each in (second, third, last)] == [[True] * MANY] * 3
    station.until_gone(jobs)


def test_a_lost_answer_leaves_them_to_be_settled_again(station: Station, proxy: Proxy) -> None:
    ids(station, 2)
    with closing(Connector(proxy.url)) as connector:
        consumer = RedisStreams(connector, station.options).consumer(NAME, [QUEUE])
        consumer.settle(done(consumer.fetch([], 1).deliveries))
        first = consumer.fetch([], MANY).deliveries
        proxy.cut(after=1)  # the answer with the next jobs comes, the one to what is settled does not
        second = consumer.fetch(done(first), MANY)
        lost = answers(second)
        assert list(lost.settled) == [None] * MANY
        assert [type(error) for error in lost.errors] == [OutcomeUnknown]
        assert list(consumer.settle(done(first)).settled) == [False] * MANY, "they were settled, unheard"
        assert list(consumer.settle(done(second.deliveries)).settled) == [True] * MANY
        consumer.close()


def test_few_at_a_time_are_settled_with_the_read(station: Station) -> None:
    ids(station, 2)
    with closing(station.driver.consumer(NAME, [QUEUE])) as consumer:
        first = consumer.fetch([], MANY - 1)
        second = consumer.fetch(done(first.deliveries), MANY - 1)
        assert second.later is None
        assert list(second.settled) == [True] * (MANY - 1)
        consumer.settle(done(second.deliveries))
