"""The channels `database` and `broadcast`: rows in a database, messages on Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
import sqlalchemy as sa

from delayq import BroadcastChannel, Letter, Notification, Recipient, notify, use_channel
from delayq.contrib.database_channel import DatabaseChannel
from delayq.core.errors import BackendUnavailable, ConfigError, InvalidInput, NotDelivered
from delayq.core.signals import Fail
from tests.support.servers import connect
from tests.support.station import Station

ANN = Recipient({"database": "user-1", "broadcast": "news:user-1"}, "Ann")


def paid_over(*channels: str) -> type[Any]:
    class Paid(Notification):
        invoice: int

        def via(self, to: Recipient) -> Sequence[str]:
            return channels

        def to_database(self, to: Recipient) -> Any:
            return {"invoice": self.invoice, "at": datetime(2026, 11, 21, tzinfo=UTC)}

        def to_broadcast(self, to: Recipient) -> Any:
            return {"invoice": self.invoice}

    return Paid


def letter(message: Any, *, id: str = "one", address: str = "user-1") -> Letter:
    return Letter(id, "paid", "database", address, "Ann", message)


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[DatabaseChannel]:
    channel = DatabaseChannel(f"sqlite:///{tmp_path / 'shop.db'}")
    channel.create_table()
    yield channel
    channel.engine.dispose()


@pytest.mark.usefixtures("manager")
def test_a_notification_becomes_a_row(station: Station, channel: DatabaseChannel) -> None:
    use_channel("database", channel)
    refs = [*notify(ANN, paid_over("database")(invoice=7), id="p7"), *notify(ANN, paid_over("database")(invoice=8))]
    station.drain()
    assert [station.ends(ref.id) for ref in refs] == [["done"]] * 2
    rows = {row["data"]["invoice"]: row for row in channel.unread("user-1")}
    assert set(rows) == {7, 8}
    assert (rows[7]["id"], rows[7]["name"], rows[7]["data"]["at"]) == ("p7", "Paid", "2026-11-21T00:00:00Z")
    assert channel.mark_read("user-1", "p7") == 1
    assert [row["data"]["invoice"] for row in channel.unread("user-1")] == [8]
    assert (channel.mark_read("user-1"), channel.unread("user-1")) == (1, [])


def test_delivered_again_it_is_the_same_row(channel: DatabaseChannel) -> None:
    for _ in range(2):
        channel.deliver(letter({"n": 1}))
    channel.deliver(letter({"n": 2}, id="two"))
    channel.deliver(letter({"n": 3}, address="user-2"))
    assert sorted(row["data"]["n"] for row in channel.unread("user-1")) == [1, 2]
    assert [row["data"]["n"] for row in channel.unread("user-2", limit=1)] == [3]


def test_what_is_no_json_fails_for_good_and_a_database_that_is_away_does_not(
    channel: DatabaseChannel, tmp_path: Path
) -> None:
    with pytest.raises(Fail):
        channel.deliver(letter(object()))
    with pytest.raises(NotDelivered, match="did not take"):
        DatabaseChannel(f"sqlite:///{tmp_path / 'empty.db'}").deliver(letter({}))


def test_a_row_that_is_refused_for_another_reason_is_not_taken_as_delivered(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'strict.db'}")
    with engine.begin() as connection:
        columns = "id, address, name, data, created_at, read_at, tenant TEXT NOT NULL"
        connection.execute(sa.text(f"CREATE TABLE notifications ({columns})"))
    with pytest.raises(NotDelivered, match="refused the row"):
        DatabaseChannel(engine).deliver(letter({}))
    engine.dispose()


@pytest.mark.usefixtures("manager")
def test_whoever_listens_hears_it(station: Station, redis_url: str) -> None:
    with connect(redis_url) as client, client.pubsub(ignore_subscribe_messages=True) as ear:
        ear.subscribe("news:user-1")
        assert ear.get_message(timeout=5) is None  # the confirmation: it hears from now on
        use_channel("broadcast", BroadcastChannel(redis_url))
        notify(ANN, paid_over("broadcast")(invoice=7), id="p7")
        station.drain()
        message = ear.get_message(timeout=10)
    assert message is not None
    assert json.loads(message["data"]) == {"id": "p7", "name": "Paid", "data": {"invoice": 7}}


@pytest.mark.foreign_keys("news:*")
def test_a_stream_keeps_what_nobody_has_read_yet(redis_url: str, redis_client: redis.Redis) -> None:
    with closing(BroadcastChannel(redis_url, stream=True, keep=1)) as channel:
        for number in range(300):  # Redis cuts a stream in pieces of a hundred entries
            channel.deliver(letter(number, id=str(number), address="news:all"))
    entries: Any = redis_client.xrange("news:all")
    assert len(entries) < 300
    assert json.loads(entries[-1][1][b"message"]) == {"id": "299", "name": "paid", "data": 299}


def test_what_cannot_be_broadcast(redis_url: str, tmp_path: Path) -> None:
    with closing(BroadcastChannel(redis_url)) as channel, pytest.raises(Fail):
        channel.deliver(letter(object()))
    with pytest.raises(BackendUnavailable):
        BroadcastChannel(f"unix://{tmp_path}/nobody.sock").deliver(letter(1))
    with pytest.raises(InvalidInput, match="keep is 0"):
        BroadcastChannel(redis_url, keep=0)
    with pytest.raises(ConfigError):
        BroadcastChannel("ftp://example.org")
