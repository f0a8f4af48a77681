"""How the backend of a worker carries out settlements."""

from typing import Any

import pytest
import redis

from delayq.backends.values import Acked, Delivery, Failed, Released, SettleAnswer, Settlement, Stopped
from delayq.core.errors import CallRefused, OutcomeUnknown
from delayq.core.options import Options
from delayq.redis.calls import delivery
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.url import Address
from delayq.redis.worker.consumer import RedisConsumer
from delayq.redis.worker.hints import Hints
from delayq.redis.worker.lease_keeper import RedisLeaseKeeper
from delayq.redis.worker.settle import settling_calls
from tests.support.queue import FAILURE, OURS, QueueOnServer, envelope_of


def released(job: Delivery) -> Released:
    return Released("orders", job.id, job.entry, 0, b"again", FAILURE)


def failed(job: Delivery) -> Failed:
    return Failed("orders", job.id, job.entry, b"", FAILURE)


def test_jobs_with_and_without_a_follow_up_go_into_calls_of_their_own(queue: QueueOnServer) -> None:
    settled: list[Settlement] = [
        Acked("orders", "1", "1-0"),
        Acked("orders", "2", "2-0", is_followed=True),
        Stopped("orders", "3", "3-0"),
        Acked("orders", "4", "4-0"),
    ]
    calls = settling_calls(queue.keys, settled)
    alone = 3 + len(calls[0].call.script.keys if calls[0].call.script else ()) + 1
    assert [(list(one.positions), one.call.words[alone]) for one in calls] == [([0, 3], 1), ([1], 0), ([2], 2)]


def test_a_consumer_names_the_jobs_that_were_asked_to_stop(queue: QueueOnServer, url: str) -> None:
    one, two = queue.reserve("one", "two")
    queue.cancel("two", running=True)
    executor = ServerExecutor(BlockingLeaf(Address(url)))
    consumer = RedisConsumer(executor, queue.keys, ["orders"], Options(), name=OURS)
    answers, _ = consumer.complete(consumer.begin([released(one), failed(two), released(two)], 0))
    assert answers == [SettleAnswer.SETTLED, SettleAnswer.STOP_ASKED, SettleAnswer.STOP_ASKED]
    answers, _ = consumer.complete(consumer.begin([Stopped("orders", "two", two.entry)], 0))
    assert (answers, queue.state_of("two")) == ([SettleAnswer.SETTLED], "absent")


@pytest.mark.parametrize("settle", [released, failed])
def test_a_supervisor_stops_a_killed_job_that_was_asked_to_stop(queue: QueueOnServer, url: str, settle: object) -> None:
    assert callable(settle)
    chained = envelope_of("one", extra=',"chain":[1]')
    (job,) = queue.reserve("one", envelope=chained)
    queue.cancel("one", running=True)
    address = Address(url)
    keeper = RedisLeaseKeeper(
        ServerExecutor(BlockingLeaf(address)), queue.keys, ["orders"], Options(), Hints(address, queue.keys.cancel)
    )
    assert keeper.settle_after_death([], [], [], [settle(job)]) == []
    assert queue.state_of("one") == "absent"
    assert [row.ended for row in queue.read_outbox().rows] == ["cancelled"]


def test_a_lost_read_of_a_lower_queue_loses_no_answer_and_no_job(
    queue: QueueOnServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = queue.reserve("one")
    executor = ServerExecutor(BlockingLeaf(Address(url)))
    queue.put("two", "ready")
    consumer = RedisConsumer(executor, queue.keys, ["first", "orders", "lowest"], Options(), name=OURS)
    consumer.open()
    assert consumer.complete(consumer.begin([], 1))[1]  # a trip ends with a queue that had jobs before
    queue.put("three", "ready")
    trip = consumer.begin([Acked("orders", job.id, job.entry)], 10)
    run_all = executor.run_all

    async def lose(calls: Any, **options: Any) -> Any:
        if any("lowest" in str(word) for call in calls for word in call.words):
            raise OutcomeUnknown("the reply was lost")
        return await run_all(calls, **options)

    monkeypatch.setattr(executor, "run_all", lose)
    answers, taken = consumer.complete(trip)
    assert (answers, [one.id for one in taken]) == ([SettleAnswer.SETTLED], ["three"])


def test_a_failed_hand_back_of_a_paused_job_loses_no_answer(
    queue: QueueOnServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = queue.reserve("one")
    consumer = RedisConsumer(ServerExecutor(BlockingLeaf(Address(url))), queue.keys, ["orders"], Options(), name=OURS)
    consumer.open()
    queue.put("two", "ready")
    queue.pause(0, now="")
    trip = consumer.begin([Acked("orders", job.id, job.entry)], 10)

    def lose(held: object) -> None:
        raise OutcomeUnknown("the reply was lost")

    monkeypatch.setattr(consumer, "hand_back", lose)
    assert consumer.complete(trip) == ([SettleAnswer.SETTLED], [])


def test_a_job_whose_changed_chain_cannot_be_stored_is_not_acknowledged(
    queue: QueueOnServer, server: redis.Redis, url: str
) -> None:
    before, after = (envelope_of("one", extra=f',"chain":{{"links":[{n}]}}') for n in (1, 2))
    (job,) = queue.reserve("one", envelope=before)
    (other,) = queue.reserve("other", envelope=before)
    changed = Acked("orders", "one", job.entry, is_followed=True, envelope=after)
    plain = Acked("orders", "other", "0-0", is_followed=True)
    address = Address(url.replace("unix://", "unix://narrow:word@"))
    server.script_flush()
    queue.run(delivery.ack(queue.keys, "orders", [plain]))  # loads the script
    server.execute_command("ACL", "SETUSER", "narrow", "on", ">word", "~*", "&*", "+@all", "-eval")
    try:
        consumer = RedisConsumer(ServerExecutor(BlockingLeaf(address)), queue.keys, ["orders"], Options(), name=OURS)
        (answer,), _ = consumer.complete(consumer.begin([changed], 0))
        assert (type(answer), queue.state_of("one")) == (CallRefused, "reserved")
    finally:
        server.execute_command("ACL", "DELUSER", "narrow")
    assert queue.state_of("one") == "reserved"
    consumer = RedisConsumer(ServerExecutor(BlockingLeaf(Address(url))), queue.keys, ["orders"], Options(), name=OURS)
    settled = [changed, Acked("orders", "other", other.entry, is_followed=True)]
    answers, _ = consumer.complete(consumer.begin(settled, 0))
    assert answers == [SettleAnswer.SETTLED] * 2
    assert [row.envelope for row in queue.read_outbox().rows] == [after, before]
