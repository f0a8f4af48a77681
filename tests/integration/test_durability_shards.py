"""A queue of three shards keeps its durability too: each shard is confirmed where it lies, and who is not is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from delayq.core.durability import Durability
from delayq.core.errors import NotConfirmed
from delayq.core.options import Options
from delayq.core.shards import number_for, shard_of
from delayq.core.states import Answer, State
from delayq.core.views import JobRef
from delayq.redis.calls.call import Call, Scope
from delayq.redis.calls.produce import Scheduled
from delayq.redis.client import Client
from delayq.redis.confirm import Confirm, Confirmed
from delayq.redis.durable import Durable
from delayq.redis.keys import Keys
from delayq.redis.placing import Batch, Way
from tests.support.durable import SHORT, Open, fail_in, ids_of, opened
from tests.support.flavours import Flavour
from tests.support.replicas import Replicated, replicated
from tests.support.servers import LocalServer, OwnServer, connect

__all__ = ["opened"]

QUEUE = "default"
SHARDS = [shard_of(QUEUE, number) for number in range(3)]
IDS = [f"j{n}" for n in range(24)]
JOBS: list[dict[str, Any]] = [{"name": "close", "id": job_id, "delay": "1h"} for job_id in IDS]


@pytest.fixture(scope="module")
def group() -> Iterator[Replicated]:
    with replicated(1) as made:
        yield made


@pytest.fixture
def pair(group: Replicated) -> Iterator[Replicated]:
    """A primary and its replica, empty and in step."""
    group.anew()
    yield group
    group.anew()


def stored(server: LocalServer) -> set[str]:
    """The ids a server holds, in all shards."""
    with connect(server.url) as client:
        return {key.decode() for shard in SHARDS for key in client.hkeys(Keys("delayq", shard).of("jobs"))}


def shard_with(job_id: str) -> str:
    return shard_of(QUEUE, number_for(job_id, 3))


def everything(q: Client, durability: str) -> None:
    """All that is confirmed, on a queue that asks for it itself as well."""
    q.queue_set(QUEUE, durability=durability)
    assert [ref.id for ref in q.schedule_many(JOBS)] == IDS
    assert {shard_with(job_id) for job_id in IDS} == set(SHARDS)
    assert q.schedule("close", id="one", delay="1h").outcome is Answer.CREATED
    assert q.reschedule("j0", delay="2h", durability=durability).outcome is Answer.RESCHEDULED
    assert q.cancel("j1", durability=durability) is Answer.CANCELLED
    fail_in(q, shard_with("j2"), "j2")
    assert q.retry("j2").state is State.SCHEDULED


def test_with_the_answer_the_replica_has_every_shard(pair: Replicated, opened: Open) -> None:
    """Looked at once, without waiting."""
    q = opened(pair.url)
    q.queue_set(QUEUE, shards=3)
    q.schedule_many(JOBS, durability="replicas:1")
    assert stored(pair.replicas[0]) == set(IDS)
    assert q.cancel("j3", durability="replicas:1") is Answer.CANCELLED
    assert stored(pair.replicas[0]) == set(IDS) - {"j3"}
    everything(q, "replicas:1")
    with connect(pair.replicas[0].url) as replica:
        assert replica.zscore(Keys("delayq", shard_with("j2")).of("scheduled"), "j2") is not None


def test_a_short_answer_names_the_jobs_concerned(pair: Replicated, opened: Open) -> None:
    q, hasty = opened(pair.url), opened(pair.url, SHORT)
    q.queue_set(QUEUE, shards=3)
    q.schedule_many(JOBS[:4], durability="replicas:1")
    fail_in(q, shard_with("j2"), "j2")
    q.queue_set(QUEUE, durability="replicas:1")
    pair.replicas[0].stop()
    with pytest.raises(NotConfirmed, match=r"The 20 jobs are stored, .* was not confirmed: 0 of 1") as many:
        hasty.schedule_many(JOBS[4:])
    assert ids_of(many.value.done) == IDS[4:]
    assert sorted(ids_of(many.value.unconfirmed)) == sorted(IDS[4:])
    assert stored(pair.primary) == set(IDS), "it is stored all the same"
    with pytest.raises(NotConfirmed, match="'one' in queue 'default' is stored"):
        hasty.schedule("close", id="one", delay="1h")
    with pytest.raises(NotConfirmed, match="'j0' in queue 'default' is stored") as moved:
        hasty.reschedule("j0", delay="2h")
    assert ids_of(moved.value.unconfirmed) == ["j0"]
    with pytest.raises(NotConfirmed, match="'j1' in queue 'default' is cancelled"):
        hasty.cancel("j1")
    with pytest.raises(NotConfirmed, match="'j2' in queue 'default' is stored") as again:
        hasty.retry("j2")
    assert ids_of(again.value.done) == ["j2"]
    info = hasty.get("j2")
    assert info is not None
    assert info.state is State.SCHEDULED, "and it is tried again"
    q.queue_set(QUEUE, durability="memory")  # the other client still knows what it asked for
    fail_in(q, shard_with("j2"), "j2")
    [retried] = hasty.retry_failed(QUEUE)
    assert isinstance(retried.error, NotConfirmed)
    assert retried.ref is not None


def test_on_the_disk(own_server: OwnServer, opened: Open) -> None:
    server = own_server(flavour=Flavour.VALKEY, persistent=True, options={"appendfsync": "always"})
    q = opened(server.url)
    q.queue_set(QUEUE, shards=3)
    everything(q, "fsync")
    server.restart()
    assert stored(server) == {*IDS, "one"} - {"j1"}


def test_one_shard_that_falls_short_leaves_the_others_confirmed() -> None:
    """The flow by itself: nodes that are lost, and how long is waited for which, are told by the test."""
    scopes = [Scope(Options(), shard) for shard in SHARDS]
    way = Way(Durable(Options()), Durability(replicas=1))
    batches = [(scope, Batch(cast("Call[Scheduled]", object()), [])) for scope in (*scopes, scopes[0])]
    refs = [JobRef(f"j{n}", QUEUE, State.SCHEDULED, 0, Answer.CREATED) for n in range(4)]
    said = iter(("0 of 1", "", ""))
    steps: list[Any] = []

    def answer(step: Any, ref: JobRef) -> Any:
        steps.append(step)
        scheduled = Scheduled([ref], new_queue=False)
        return Confirmed([scheduled], next(said)) if isinstance(step, Confirm) else scheduled

    flow = way.send(batches)
    step = next(flow)
    for ref in refs[:-1]:
        step = flow.send(answer(step, ref))
    last = answer(step, refs[-1])
    with pytest.raises(StopIteration):
        flow.send(last)
    waited = [step for step in steps if isinstance(step, Confirm)]
    assert [step.brief for step in waited] == [False, True, True]
    assert not isinstance(steps[-1], Confirm), "a shard that fell short is not waited for again"
    with pytest.raises(NotConfirmed, match=r"The 4 jobs are .* for 2 of them: 0 of 1") as caught:
        way.check(refs)
    assert ids_of(caught.value.unconfirmed) == ["j0", "j3"]
    assert ids_of(caught.value.done) == ["j0", "j1", "j2", "j3"]
