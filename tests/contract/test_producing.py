"""What a producer hands in, a worker gets: every byte of it, once, in order, and never too early."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from delayq.core import envelope as envelopes
from delayq.core.errors import BackendError, InvalidInput, InvalidPayload
from delayq.core.names import new_id
from delayq.core.spec import JobSpec
from delayq.core.states import Answer, OnConflict, State
from delayq.settings import Settings
from tests.contract.rig import Rig, data_of, envelope_of, make_manager

EXACT = {"text": "käse \U0001f9c0", "big": 130775545883395173, "time": 1755768000.123456, "empty": [], "none": {}}


def test_the_answer_names_the_job(rig: Rig) -> None:
    ref = rig.schedule("contract.named")
    assert (ref.queue, ref.name) == (rig.queue, "contract.named")
    assert ref.id


@pytest.mark.needs("serves")
def test_a_job_arrives_as_it_was_sent(rig: Rig) -> None:
    ref = rig.schedule("contract.job", EXACT, headers={"trace": "1"}, tags=["a", "b"], tries=7)
    assert (ref.outcome, ref.state) == (Answer.CREATED, State.READY)
    delivery = rig.one(rig.consumer())
    envelope = envelope_of(delivery)
    assert (delivery.id, delivery.queue, delivery.recoveries) == (ref.id, rig.queue, 0)
    assert data_of(delivery) == EXACT
    assert (envelope.id, envelope.name, envelope.queue) == (ref.id, "contract.job", rig.queue)
    assert (envelope.headers, envelope.tags, envelope.tries, envelope.attempts) == ({"trace": "1"}, ["a", "b"], 7, 0)


@pytest.mark.needs("serves")
def test_payload_bytes_are_not_touched(rig: Rig) -> None:
    raw = b'{"b":1.0, "a" : [ ],"n":1e3}'
    rig.schedule(data=raw)
    assert bytes(envelope_of(rig.one(rig.consumer())).data) == raw


@pytest.mark.needs("serves")
def test_many_are_taken_in_order(rig: Rig) -> None:
    refs = rig.connection.schedule_many([rig.spec(data=n) for n in range(25)], OnConflict.KEEP)
    assert len({ref.id for ref in refs}) == 25
    consumer, found = rig.consumer(), list[Any]()
    while len(found) < 25:
        delivery = rig.one(consumer)
        found.append((delivery.id, data_of(delivery)))
        assert rig.settle(consumer, delivery)
    assert found == [(ref.id, n) for n, ref in enumerate(refs)]
    assert rig.nothing(consumer)


@pytest.mark.needs("serves")
def test_nothing_is_sent_when_one_of_many_is_wrong(rig: Rig) -> None:
    specs = [rig.spec(), rig.spec(tries=-1), rig.spec()]
    with pytest.raises(InvalidInput):
        rig.connection.schedule_many(specs, OnConflict.KEEP)
    assert rig.connection.schedule_many([], OnConflict.KEEP) == []
    assert rig.nothing(rig.consumer())


@pytest.mark.needs("serves")
async def test_awaited_verbs_are_the_same_verbs(rig: Rig) -> None:
    one = await rig.connection.aschedule(rig.spec(data=1), OnConflict.KEEP)
    two, three = await rig.connection.aschedule_many([rig.spec(data=2), rig.spec(data=3)], OnConflict.KEEP)
    raw = envelopes.rewrite(_raw(rig), id=new_id())
    four = await rig.connection.apush_raw(raw)
    await rig.connection.aclose()
    consumer, found = rig.consumer(), list[Any]()
    while len(found) < 4:
        delivery = rig.one(consumer)
        found.append(delivery.id)
        rig.settle(consumer, delivery)
    assert found == [one.id, two.id, three.id, four.id]


@pytest.mark.needs("serves")
def test_an_envelope_keeps_what_nobody_knows(rig: Rig) -> None:
    raw = envelopes.rewrite(_raw(rig), from_the_future={"a": 1})
    ref = rig.connection.push_raw(raw)
    delivery = rig.one(rig.consumer())
    assert delivery.id == ref.id
    members: dict[str, Any] = msgspec.json.decode(delivery.raw)
    assert members["from_the_future"] == {"a": 1}


@pytest.mark.needs("serves")
def test_queues_do_not_mix(rig: Rig) -> None:
    other = rig.new_queue()
    mine, theirs = rig.schedule(), rig.schedule(queue=other)
    assert rig.one(rig.consumer()).id == mine.id
    rig.queue = other
    assert rig.one(rig.consumer(other)).id == theirs.id


# -- time --------------------------------------------------------------------------------------------------------------


@pytest.mark.needs("serves", "delay")
def test_a_delayed_job_is_never_early(rig: Rig) -> None:
    delay_ms = max(300, 2 * rig.can.resolution_ms)
    consumer = rig.consumer()
    began = time.monotonic()
    ref = rig.schedule(delay=f"{delay_ms}ms")
    assert (ref.outcome, ref.state) == (Answer.CREATED, State.SCHEDULED)
    assert ref.due_ms is not None
    assert rig.nothing(consumer) or (time.monotonic() - began) * 1000 >= delay_ms
    delivery = rig.one(consumer)
    assert (time.monotonic() - began) * 1000 >= delay_ms
    assert delivery.id == ref.id


@pytest.mark.needs("serves", "delay")
def test_what_is_due_goes_before_what_is_not(rig: Rig) -> None:
    rig.schedule(delay="15m")
    now = rig.schedule()
    consumer = rig.consumer()
    assert rig.one(consumer).id == now.id
    assert rig.nothing(consumer)


@pytest.mark.needs("serves")
def test_a_time_that_has_passed_is_now(rig: Rig) -> None:
    ref = rig.schedule(at="2020-01-01T00:00:00Z")
    assert rig.one(rig.consumer()).id == ref.id


@pytest.mark.needs("serves")
@pytest.mark.lacks("delay")
def test_a_delay_that_cannot_be_held_is_refused(rig: Rig) -> None:
    with pytest.raises(InvalidInput, match="cannot hold a job until its time comes"):
        rig.schedule(delay="5s")
    assert rig.nothing(rig.consumer())


@pytest.mark.needs("serves", "max_delay_ms")
def test_a_delay_beyond_its_reach_is_refused(rig: Rig) -> None:
    assert rig.can.max_delay_ms is not None
    with pytest.raises(InvalidInput, match="at most, and this one is due in"):
        rig.schedule(delay=f"{rig.can.max_delay_ms + 1000}ms")
    assert rig.nothing(rig.consumer())


# -- refused before anything is sent -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a b"},
        {"queue": "no queue"},
        {"delay": "15 minuets"},
        {"delay": "5s", "at": "2026-11-21T15:00:00Z"},
        {"tries": -1},
        {"headers": {"a": 1}},
        {"data": object()},
        {"data": float("nan")},
    ],
    ids=["no name", "a blank", "queue", "duration", "two times", "tries", "headers", "no JSON", "NaN"],
)
def test_bad_input_is_refused(rig: Rig, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        rig.connection.schedule(JobSpec(**{"name": "contract.job", "queue": rig.queue, **wrong}), OnConflict.KEEP)


def test_a_payload_over_the_limit_is_refused(rig: Rig) -> None:
    with pytest.raises(InvalidPayload, match="the limit is"):
        rig.schedule(data="x" * (rig.settings.max_payload + 1))


@pytest.mark.needs("serves", "max_bytes")
def test_a_job_larger_than_the_backend_takes_is_refused(rig: Rig) -> None:
    assert rig.can.max_bytes is not None
    with pytest.raises(InvalidPayload):
        rig.schedule(data="x" * rig.can.max_bytes)
    assert rig.nothing(rig.consumer())


@pytest.mark.needs("serves")
def test_the_largest_payload_arrives(rig: Rig) -> None:
    size = min(rig.settings.max_payload, rig.can.max_bytes or rig.settings.max_payload) - 1024
    rig.schedule(data="x" * size)
    assert len(data_of(rig.one(rig.consumer()))) == size


@pytest.mark.needs("serves", "ids")
def test_an_id_that_is_taken_is_kept(rig: Rig) -> None:
    first = rig.schedule(data=1, id="order-42")
    second = rig.schedule(data=2, id="order-42")
    assert (first.outcome, second.outcome, second.id) == (Answer.CREATED, Answer.KEPT, "order-42")
    consumer = rig.consumer()
    assert data_of(rig.one(consumer)) == 1
    assert rig.nothing(consumer)


@pytest.mark.needs("serves")
@pytest.mark.lacks("ids")
def test_an_own_id_that_nobody_can_look_up_is_refused(rig: Rig) -> None:
    with pytest.raises(InvalidInput, match="cannot tell whether the id 'order-42' is taken"):
        rig.schedule(id="order-42")
    assert rig.schedule(id=new_id()).outcome is Answer.CREATED
    with pytest.raises(InvalidInput, match="on_conflict=error"):
        rig.connection.schedule(rig.spec(), OnConflict.ERROR)


@pytest.mark.needs("serves")
@pytest.mark.lacks("replace")
def test_replacing_is_refused(rig: Rig) -> None:
    for word in (OnConflict.REPLACE, OnConflict.POSTPONE):
        with pytest.raises(InvalidInput, match=f"on_conflict={word}"):
            rig.connection.schedule(rig.spec(), word)
    assert rig.nothing(rig.consumer())


@pytest.mark.needs("serves", "unique")
def test_a_unique_key_is_owned_once(rig: Rig) -> None:
    first = rig.schedule(unique="k")
    second = rig.schedule(unique="k")
    assert (second.outcome, second.id) == (Answer.KEPT, first.id)


@pytest.mark.needs("serves")
@pytest.mark.lacks("unique")
def test_a_unique_key_that_nobody_keeps_is_refused(rig: Rig) -> None:
    with pytest.raises(InvalidInput, match="keeps no unique keys"):
        rig.schedule(unique="k")
    with pytest.raises(InvalidInput, match="keeps no unique keys"):
        rig.connection.push_raw(envelopes.rewrite(_raw(rig), unique="0" * 40))
    assert rig.nothing(rig.consumer())


@pytest.mark.needs("serves")
@pytest.mark.lacks("retention")
def test_a_retention_that_nobody_keeps_is_refused(rig: Rig) -> None:
    with pytest.raises(InvalidInput, match="forgets a job when it is done"):
        rig.schedule(retention="1h")


@pytest.mark.needs("serves")
@pytest.mark.lacks("batches")
def test_a_member_of_a_batch_that_nobody_keeps_is_refused(rig: Rig) -> None:
    with pytest.raises(InvalidInput, match="keeps no batches"):
        rig.schedule(batch=new_id())


@pytest.mark.needs("serves")
def test_a_server_that_is_away_is_said_so(rig: Rig) -> None:
    manager = make_manager(Settings(**rig.server.away()))
    with pytest.raises(BackendError) as raised:
        manager.connection("it").schedule(rig.spec(), OnConflict.KEEP)
    assert raised.value.exit_code in (5, 7)
    manager.close()


def _raw(rig: Rig) -> bytes:
    """An envelope as another program would make it."""
    envelope = {"v": 1, "id": new_id(), "name": "contract.raw", "queue": rig.queue, "data": [1, 2], "attempts": 0}
    return msgspec.json.encode({**envelope, "created_ms": 0})
