"""Notifications: a job for each recipient and channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from delayq import (
    Channel,
    Fail,
    Letter,
    Middleware,
    Notification,
    NotificationFailed,
    NotificationSending,
    NotificationSent,
    NotificationSkipped,
    Recipient,
    Release,
    anotify,
    listener,
    notify,
    use_channel,
)
from delayq.core.errors import ConfigError, InvalidInput, InvalidPayload
from delayq.core.states import State
from delayq.jobs.options import Dispatched
from delayq.manager import Manager
from tests.support.station import Station
from tests.support.tape import Tape

pytestmark = pytest.mark.usefixtures("manager")

ANN = Recipient({"sms": "+4912", "chat": "@ann"}, name="Ann")


class Carrying:
    """A channel that writes down what it carries, and raises what it is told to."""

    def __init__(self, tape: Tape[Any], error: Exception | None = None) -> None:
        self._tape = tape
        self._error = error

    def deliver(self, letter: Letter) -> None:
        self._tape.append(letter)
        if self._error is not None:
            raise self._error


def carry(station: Station, *, chat: Exception | None = None) -> Tape[Any]:
    tape = station.tape()
    channels: dict[str, Channel] = {"sms": Carrying(tape), "chat": Carrying(tape, chat)}
    for name, channel in channels.items():
        use_channel(name, channel)
    return tape


def paid(**options: Any) -> type[Any]:
    class Paid(Notification, **{"name": "invoice.paid", **options}):
        invoice: int

        def via(self, to: Recipient) -> Sequence[str]:
            return [name for name in ("sms", "chat") if name in to.addresses]

        def to_sms(self, to: Recipient) -> str:
            return f"{to.name}: {self.invoice} is paid"

        def to_chat(self, to: Recipient) -> dict[str, int]:
            return {"invoice": self.invoice}

    return Paid


def test_one_job_for_each_recipient_and_channel(station: Station) -> None:
    carried = carry(station)
    bob = Recipient({"sms": "+4913"}, name="Bob")
    refs = notify([ANN, bob], paid()(invoice=42))
    station.drain()
    ids = [ref.id.rpartition(".")[0] for ref in refs]
    assert [ref.id.rpartition(".")[2] for ref in refs] == ["sms", "chat", "sms"]
    assert ids[0] == ids[1] != ids[2]
    assert sorted(carried, key=lambda letter: (letter.recipient, letter.channel)) == [
        Letter(ids[0], "invoice.paid", "chat", "@ann", "Ann", {"invoice": 42}),
        Letter(ids[0], "invoice.paid", "sms", "+4912", "Ann", "Ann: 42 is paid"),
        Letter(ids[2], "invoice.paid", "sms", "+4913", "Bob", "Bob: 42 is paid"),
    ]


async def test_from_a_loop(station: Station, manager: Manager) -> None:
    carry(station)
    refs = await anotify(ANN, paid()(invoice=42), id="paid-42")
    await manager.aclose()
    assert [ref.id for ref in refs] == ["paid-42.sms", "paid-42.chat"]


def test_each_channel_has_its_own_queue_and_delay(station: Station) -> None:
    carry(station)

    class Split(paid(queue="notices", delay="1h")):  # type: ignore[misc]  # made by a function
        def per_channel(self, to: Recipient, channel: str) -> Dispatched:
            return {"queue": "texts", "delay": "0s"} if channel == "sms" else {}

    sms, chat = notify(ANN, Split(invoice=1))
    assert (sms.queue, sms.state) == ("texts", State.READY)
    assert (chat.queue, chat.state) == ("notices", State.SCHEDULED)


def test_only_the_channel_that_fails_is_tried_again(station: Station) -> None:
    carried = carry(station, chat=ConnectionError("the chat is away"))
    sms, chat = notify(ANN, paid(tries=2, backoff="1h")(invoice=1))
    station.drain()
    assert (station.state(sms.id), station.state(chat.id)) == (State.ABSENT, State.SCHEDULED)
    station.client.run_now(chat.id)
    station.drain()
    assert sorted(letter.channel for letter in carried) == ["chat", "chat", "sms"]
    assert len({letter.id for letter in carried}) == 1
    assert station.state(chat.id) is State.FAILED


def test_sent_again_with_the_same_id_it_changes_nothing(station: Station) -> None:
    carry(station)
    kind = paid()
    outcomes = [ref.outcome for _ in range(2) for ref in notify(ANN, kind(invoice=1), id="paid-1")]
    assert outcomes == ["created", "created", "kept", "kept"]
    with pytest.raises(InvalidInput, match="for 2 recipients"):
        notify([ANN, ANN], kind(invoice=1), id="paid-1")


def test_whoever_knows_how_to_be_reached_can_be_notified(station: Station) -> None:
    @dataclass
    class User:
        phone: str

        def recipient(self) -> Recipient:
            return Recipient({"sms": self.phone})

    carried = carry(station)
    notify(User("+4914"), paid()(invoice=1))
    station.drain()
    assert [letter.address for letter in carried] == ["+4914"]


def test_it_is_asked_again_before_it_goes_out(station: Station) -> None:
    carried, heard = carry(station), station.tape()
    listener(NotificationSkipped)(lambda event: heard.append(event.channel))

    class Late(paid()):  # type: ignore[misc]
        def should_send(self, to: Recipient, channel: str) -> bool:
            return channel == "sms"

    refs = notify(ANN, Late(invoice=1))
    station.drain()
    assert [letter.channel for letter in carried] == ["sms"]
    assert list(heard) == ["chat"]
    assert [station.ends(ref.id) for ref in refs] == [["done"], ["done"]]


@pytest.mark.parametrize("error", [ConnectionError("away"), Fail(ConnectionError("away"))])
def test_what_happens_to_it_is_heard(station: Station, error: Exception) -> None:
    carry(station, chat=error)
    heard = station.tape()
    for kind in (NotificationSent, NotificationFailed):
        listener(kind)(
            lambda event: heard.append((type(event).__name__, event.address, str(getattr(event, "error", ""))))
        )
    notify(ANN, paid(backoff="1h")(invoice=1))
    station.drain()
    assert sorted(heard) == [("NotificationFailed", "@ann", "away"), ("NotificationSent", "+4912", "")]


def test_sending_is_heard_before_it_is_carried(station: Station) -> None:
    carried = carry(station)
    before = station.tape()
    listener(NotificationSending)(lambda event: before.append((event.job_id, len(carried))))
    notify(Recipient({"sms": "+4912"}), paid()(invoice=1), id="one")
    station.drain()
    assert list(before) == [("one.sms", 0)]


def test_middleware_and_the_hook_of_a_failure(station: Station) -> None:
    heard = station.tape()
    carried = carry(station, chat=Fail("blocked"))

    class Hooked(paid()):  # type: ignore[misc]
        def middleware(self, to: Recipient, channel: str) -> Sequence[Middleware]:
            return [Release.when(channel == "sms", "1h")]

        def failed(self, error: BaseException) -> None:
            heard.append((self.invoice, str(error)))

    sms, chat = notify(ANN, Hooked(invoice=7))
    station.drain()
    assert (station.state(sms.id), station.state(chat.id)) == (State.SCHEDULED, State.FAILED)
    assert [letter.channel for letter in carried] == ["chat"]
    assert list(heard) == [(7, "blocked")]


def test_options_are_inherited_but_for_the_name(station: Station) -> None:
    carry(station)

    class Reminder(paid(queue="notices", tries=2)):  # type: ignore[misc]
        again: int = 1

    [ref, _] = notify(ANN, Reminder(invoice=1))
    assert (ref.queue, ref.name) == ("notices", "Reminder")


def test_what_cannot_be_sent_is_refused_before_anything_is(station: Station) -> None:
    class Empty(Notification):
        pass

    class Mute(Notification):
        def via(self, to: Recipient) -> Sequence[str]:
            return ["sms"]

    kind = paid()
    with pytest.raises(ConfigError, match="does not say over which channels"):
        notify(ANN, Empty())
    with pytest.raises(ConfigError, match="has no to_sms"):
        notify(ANN, Mute())
    with pytest.raises(InvalidPayload, match="'notification'"):
        notify(ANN, kind(invoice="many"))

    class Everywhere(kind):  # type: ignore[misc, valid-type]
        def via(self, to: Recipient) -> Sequence[str]:
            return ["sms", "chat"]

    with pytest.raises(InvalidInput, match="'chat', on which a recipient has no address"):
        notify(Recipient({"sms": "+4912"}), Everywhere(invoice=1))
    assert station.client.stats() == []


def test_a_channel_nobody_registered_fails_its_job(station: Station) -> None:
    use_channel("chat", Carrying(station.tape()))
    sms, _ = notify(ANN, paid(tries=1)(invoice=1))
    station.drain()
    failure = station.job(sms.id).failure
    assert failure is not None
    assert "There is no channel 'sms'; known here: chat." in failure.message
    with pytest.raises(ConfigError, match="cannot name a channel"):
        use_channel("s m s", Carrying(station.tape()))
