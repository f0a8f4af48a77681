"""What is particular about SQS: hops of fifteen minutes, batches of ten, receipts, FIFO queues, and AWS's refusals."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq.core import envelope as envelopes
from delayq.core.errors import BackendUnavailable, ConfigError, InvalidName, InvalidPayload, OutcomeUnknown
from delayq.core.options import Options
from delayq.core.spec import JobSpec, prepare
from delayq.core.states import OnConflict
from delayq.drivers.base import Claim, Delivery
from delayq.drivers.broker import Again, Forget, Item
from delayq.drivers.serving.backend import Backend
from delayq.drivers.serving.connection import item_of
from delayq.drivers.sqs import backend as sqs_backend
from delayq.drivers.sqs.broker import SqsBroker
from delayq.drivers.sqs.message import DUE
from delayq.settings.tables import ConnectionSettings
from tests.support.sqs import KEYS, REGION, Sqs
from tests.support.waiting import wait_until

Brokers = Callable[..., SqsBroker]


@pytest.fixture
def queue(sqs_server: Sqs) -> str:
    """A queue of its own."""
    name = f"q-{uuid.uuid4().hex[:12]}"
    sqs_server.make(name)
    return name


@pytest.fixture
def fifo(sqs_server: Sqs) -> str:
    """A FIFO queue of its own."""
    name = f"q-{uuid.uuid4().hex[:12]}.fifo"
    sqs_server.make(name)
    return name


def backend_of(server: Sqs, prefix: str | None = None, **options: Any) -> Backend:
    given = {name: value for name, value in server.options.items() if name != "driver"}
    settings = ConnectionSettings(driver="sqs", prefix=prefix, options={**given, **options})
    return sqs_backend("aws", settings, Options())


@pytest.fixture
def brokers(sqs_server: Sqs) -> Iterator[Brokers]:
    """Makes brokers of connections of their own."""
    made: list[SqsBroker] = []

    def make(**options: Any) -> SqsBroker:
        broker = backend_of(sqs_server, **options).make()
        assert isinstance(broker, SqsBroker)
        made.append(broker)
        return broker

    yield make
    for broker in made:
        broker.close()


def job(queue: str, *, data: object = None, delay: str | None = None, **options: Any) -> Item:
    now_ms = time.time_ns() // 1_000_000
    spec = JobSpec(name="n", data=data, queue=queue, delay=delay, **options)
    return item_of(prepare(spec, Options(forwards={}), now_ms), now_ms)


def push(broker: SqsBroker, *items: Item) -> None:
    broker.push(items, OnConflict.KEEP)


def one(broker: SqsBroker, queue: str, timeout: float = 20.0) -> Delivery:
    return wait_until(lambda: broker.reserve(queue, 1), timeout=timeout, what="a job can be reserved")[0]


def claim(delivery: Delivery) -> Claim:
    return Claim(delivery.queue, delivery.id, delivery.entry)


def total(broker: SqsBroker, queue: str) -> int:
    return sum(number or 0 for number in broker.depth(queue)[:3])


# -- time -------------------------------------------------------------------------------------------------------------


def test_a_delay_beyond_fifteen_minutes_says_when_it_is_due(sqs_server: Sqs, brokers: Brokers, queue: str) -> None:
    broker, item = brokers(), job(queue, delay="2d")
    [ref] = broker.push([item], OnConflict.KEEP)
    assert ref.due_ms == item.due_ms
    assert broker.depth(queue)[:2] == (0, 1)


def test_what_comes_early_is_sent_on_and_neither_early_nor_lost(
    monkeypatch: pytest.MonkeyPatch, sqs_server: Sqs, brokers: Brokers, queue: str
) -> None:
    """As over fifteen minutes, with hops of a second."""
    monkeypatch.setattr("delayq.drivers.sqs.message.HOP_S", 1)
    broker, item = brokers(), job(queue, delay="3500ms")
    push(broker, item)
    delivery = one(broker, queue)
    assert time.time() * 1000 >= item.due_ms
    assert (delivery.id, delivery.recoveries, envelopes.decode(delivery.raw).attempts) == (item.id, 0, 0)
    assert total(broker, queue) == 1  # nothing of the hops is left
    assert broker.settle([Forget(claim(delivery), delivery.raw)]) == [True]
    assert total(broker, queue) == 0


def test_a_message_that_is_sent_on_is_new_to_the_server(
    monkeypatch: pytest.MonkeyPatch, sqs_server: Sqs, brokers: Brokers, queue: str
) -> None:
    """So that a redrive policy counts none of the hops."""
    monkeypatch.setattr("delayq.drivers.sqs.message.HOP_S", 1)
    broker, item = brokers(), job(queue, delay="1h")
    push(broker, item)
    for _ in range(2):
        wait_until(lambda: broker.depth(queue).ready == 1, what="a hop is over")
        assert broker.reserve(queue, 10) == []
    wait_until(lambda: broker.depth(queue).ready == 1, what="a hop is over")
    with sqs_server.client() as client:
        answer = client.receive_message(
            QueueUrl=sqs_server.make(queue), MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"]
        )
    [row] = answer["Messages"]
    assert row["Attributes"]["ApproximateReceiveCount"] == "1"
    assert row["MessageAttributes"][DUE]["StringValue"] == str(item.due_ms)


# -- batches and receipts ---------------------------------------------------------------------------------------------


def test_many_are_sent_in_batches_and_settled_in_batches(brokers: Brokers, queue: str) -> None:
    broker = brokers()
    push(broker, *[job(queue, data=n) for n in range(23)])
    found: list[Delivery] = []
    while some := broker.reserve(queue, 100):
        assert len(some) <= 10
        found += some
    assert len(found) == 23
    assert broker.renew([claim(item) for item in found]) == [True] * 23
    assert broker.settle([Forget(claim(item), item.raw) for item in found]) == [True] * 23
    assert total(broker, queue) == 0


def test_large_jobs_are_sent_in_batches_that_fit(brokers: Brokers, queue: str) -> None:
    broker = brokers()
    push(broker, *[job(queue, data="x" * 260_000) for _ in range(6)])
    assert broker.depth(queue).ready == 6


def test_what_is_not_there_any_more_is_not_held(sqs_server: Sqs, brokers: Brokers, queue: str) -> None:
    broker = brokers()
    push(broker, job(queue), job(queue))
    first, second = broker.reserve(queue, 10)
    with sqs_server.client() as client:
        client.purge_queue(QueueUrl=sqs_server.make(queue))
    assert broker.renew([claim(first), claim(second)]) == [False, False]


class Refusing:
    """Has the server refuse the last entry of each send, so often; with `sender` it says that this was our fault."""

    def __init__(self, broker: SqsBroker, times: int, *, sender: bool) -> None:
        self.times = times
        self._sender = sender
        self._left: list[dict[str, Any]] = []
        events = broker._service._client(once=True).meta.events
        events.register("provide-client-params.sqs.SendMessageBatch", self._take)
        events.register("after-call.sqs.SendMessageBatch", self._answer)

    def _take(self, params: dict[str, Any], **_: Any) -> dict[str, Any]:
        self._left = params["Entries"][-1:] if self.times else []
        self.times -= bool(self.times)
        return {**params, "Entries": params["Entries"][:-1] or params["Entries"]} if self._left else params

    def _answer(self, parsed: dict[str, Any], **_: Any) -> None:
        for row in self._left:
            parsed["Successful"] = [done for done in parsed.get("Successful", []) if done["Id"] != row["Id"]]
            parsed["Failed"] = [{"Id": row["Id"], "Code": "InternalError", "SenderFault": self._sender}]


def test_an_entry_that_the_server_could_not_take_is_sent_again(brokers: Brokers, queue: str) -> None:
    broker = brokers()
    refusing = Refusing(broker, 1, sender=False)
    push(broker, *[job(queue) for _ in range(3)])
    assert refusing.times == 0
    assert broker.depth(queue).ready == 3


def test_how_many_were_sent_is_said_when_one_is_refused(brokers: Brokers, queue: str) -> None:
    broker = brokers()
    Refusing(broker, 1, sender=True)
    with pytest.raises(OutcomeUnknown, match="2 of 3 jobs were sent"):
        push(broker, *[job(queue) for _ in range(3)])
    assert broker.depth(queue).ready == 2


def test_a_receipt_is_found_by_another_process_of_the_worker_and_by_no_other(
    sqs_server: Sqs, brokers: Brokers, queue: str
) -> None:
    shared = backend_of(sqs_server)
    child, supervisor, stranger = shared.make(), shared.make(answer_ms=500), brokers()
    try:
        push(stranger, job(queue), job(queue))
        first, second = child.reserve(queue, 2)
        assert len(first.entry) <= 42
        assert stranger.settle([Forget(claim(first), b"")]) == [False]
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if supervisor.settle([Forget(claim(first), b"")]) == [True] else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert child.renew([claim(first), claim(second)]) == [False, True]
        assert total(stranger, queue) == 1
        assert child.settle([Forget(claim(second), b"")]) == [True]
    finally:
        child.close()
        supervisor.close()


def test_what_has_run_out_is_not_settled_by_its_old_receipt(brokers: Brokers, queue: str) -> None:
    slow, quick = brokers(lease="1s"), brokers()
    push(slow, job(queue))
    old = one(slow, queue)
    new = one(quick, queue)
    assert new.id == old.id
    changed = envelopes.rewrite(old.raw, attempts=1)
    assert slow.settle([Again(claim(old), old.raw, changed, 0, 1)]) == [False]
    assert slow.renew([claim(old)]) == [False]
    assert total(quick, queue) == 1
    assert quick.settle([Forget(claim(new), new.raw)]) == [True]


# -- names and FIFO queues --------------------------------------------------------------------------------------------


def test_prefix_and_suffix_stand_around_the_name_and_before_fifo(sqs_server: Sqs, brokers: Brokers) -> None:
    mark = uuid.uuid4().hex[:8]
    for name in (f"{mark}-orders-live", f"{mark}-mail-live.fifo", f"{mark}-orders-test", "orders-live"):
        sqs_server.make(name)
    broker = brokers(prefix=f"{mark}-", suffix="-live")
    assert broker.queues() == ["mail.fifo", "orders"]
    push(broker, job("orders"), job("mail.fifo"))
    assert (broker.depth("orders").ready, broker.depth("mail.fifo").ready) == (1, 1)
    with pytest.raises(InvalidName, match="which cannot be"):
        push(broker, job("orders:high"))


def test_a_group_keeps_its_order_and_a_delay_keeps_its_group(brokers: Brokers, fifo: str) -> None:
    broker = brokers(group="all")
    waits, behind = job(fifo, delay="2s"), job(fifo)
    other = job(fifo, headers={"group": "other"})
    push(broker, waits, behind, other)
    assert one(broker, fifo).id == other.id
    first = one(broker, fifo)
    assert first.id == waits.id
    assert time.time() * 1000 >= waits.due_ms
    assert broker.settle([Forget(claim(first), first.raw)]) == [True]
    assert one(broker, fifo).id == behind.id


def test_on_fifo_queues_a_retry_goes_to_the_end_and_a_snooze_keeps_its_place(brokers: Brokers, fifo: str) -> None:
    broker = brokers()
    first, second = job(fifo), job(fifo)
    push(broker, first, second)
    held = broker.reserve(fifo, 1)[0]
    assert broker.settle([Again(claim(held), held.raw, b"", 0, 0)]) == [True]
    held = one(broker, fifo)
    assert held.id == first.id
    changed = envelopes.rewrite(held.raw, attempts=1)
    assert broker.settle([Again(claim(held), held.raw, changed, 0, 1)]) == [True]
    held = one(broker, fifo)
    assert held.id == second.id
    assert broker.settle([Forget(claim(held), held.raw)]) == [True]
    held = one(broker, fifo)
    assert (held.id, envelopes.decode(held.raw).attempts) == (first.id, 1)


def test_the_same_job_may_be_sent_to_a_fifo_queue_twice(brokers: Brokers, fifo: str) -> None:
    """By `failed retry`, within the five minutes in which SQS would take it for the same."""
    broker, item = brokers(), job(fifo)
    push(broker, item)
    held = one(broker, fifo)
    assert broker.settle([Forget(claim(held), held.raw)]) == [True]
    push(broker, item)
    assert one(broker, fifo).id == item.id


# -- refused, and told ------------------------------------------------------------------------------------------------


def test_a_job_that_is_too_large_for_its_queue_is_refused(sqs_server: Sqs, brokers: Brokers) -> None:
    name = f"q-{uuid.uuid4().hex[:12]}"
    sqs_server.make(name, MaximumMessageSize="2048")
    broker = brokers()
    with pytest.raises(InvalidPayload, match="takes 1,792"):
        push(broker, job(name), job(name, data="x" * 2000))
    assert broker.depth(name).ready == 0
    push(broker, job(name, data="x" * 1500))


def test_a_queue_that_is_not_there_is_said_so_with_the_next_step(sqs_server: Sqs, brokers: Brokers) -> None:
    broker, name = brokers(), f"q-{uuid.uuid4().hex[:12]}"
    for act in (lambda: push(broker, job(name)), lambda: broker.ready([name]), lambda: broker.reserve(name, 1)):
        with pytest.raises(ConfigError, match=f"no queue '{name}'. aws sqs create-queue --queue-name {name}"):
            act()
    push(brokers(create=True), job(name), job(f"{name}.fifo"))
    assert broker.depth(name).ready == 1


def test_missing_keys_are_said_so(monkeypatch: pytest.MonkeyPatch, brokers: Brokers, queue: str) -> None:
    for key in KEYS:
        monkeypatch.delenv(key)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(ConfigError, match="No AWS credentials were found") as raised:
        push(brokers(), job(queue))
    assert "Set AWS_ACCESS_KEY_ID" in raised.value.hint
    with pytest.raises(ConfigError, match="no profile 'shop'"):
        push(brokers(profile="shop"), job(queue))


def test_keys_are_neither_taken_from_settings_nor_shown(
    sqs_server: Sqs, brokers: Brokers, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match="are not kept in settings") as raised:
        backend_of(sqs_server, secret="hush-hush")
    assert "hush-hush" not in str(raised.value)
    with caplog.at_level(logging.DEBUG, logger="delayq"):
        broker = brokers()
        push(broker, job(queue))
        one(broker, queue)
    shown = f"{caplog.text} {broker!r} {broker._service!r} {backend_of(sqs_server)!r}"
    assert not any(value in shown for value in KEYS.values())


def test_a_place_where_nobody_answers_is_away(brokers: Brokers) -> None:
    broker = brokers(endpoint_url="http://127.0.0.1:9", region=REGION)
    with pytest.raises(BackendUnavailable, match=r"SQS at http://127\.0\.0\.1:9 does not answer"):
        push(broker, job("q"))


def test_what_is_no_job_is_set_aside(
    sqs_server: Sqs, brokers: Brokers, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    with sqs_server.client() as client:
        client.send_message(QueueUrl=sqs_server.make(queue), MessageBody="no envelope")
    broker = brokers()
    assert broker.reserve(queue, 1) == []
    assert "is no job of delayq" in caplog.text
    assert broker.depth(queue)[:3] == (0, 0, 1)
