"""A forwarded queue: a job that was scheduled before the forward is the same job after it, for each verb."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from delayq.core.errors import Conflict, JobFinished, JobHasFailed, JobNotFailed, JobNotFound, JobRunning
from delayq.core.names import new_id
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict, State
from delayq.redis.aio import AsyncClient
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.idempotent import Repeatable, schedule_once
from tests.support.servers import connect
from tests.support.station import Station

FORWARDS = {"old": "new"}


@pytest.fixture
def q(station: Station) -> Iterator[Client]:
    """A client that knows the forward; `station.client` does not, like a process that was not yet restarted."""
    with Client(Connector(station.url), replace(station.options, forwards=FORWARDS)) as client:
        yield client


@pytest.fixture
def both(station: Station) -> str:
    """The id of a job that waits in both queues, as two processes with different settings may leave it."""
    station.client.schedule("x", id="twice", queue="old", delay="1h")
    station.client.schedule("x", id="twice", queue="new", delay="1h")
    return "twice"


def put(station: Station, state: State, job_id: str, queue: str = "old") -> None:
    """A job in that state, in a queue that is served by nobody."""
    if state is State.SCHEDULED:
        station.client.schedule("x", id=job_id, queue=queue, delay="1h")
        return
    if state is State.READY:
        station.client.schedule("x", id=job_id, queue=queue)
        return
    if state is State.RESERVED:
        station.client.schedule("x", id=job_id, queue=queue)
        redis = station.connector.commands()
        redis.xreadgroup("delayq", "foreign", {station.keys(queue).of("stream"): ">"}, count=100)
        return

    def fails() -> None:
        raise ValueError("no")

    station.handles("fails", fails, tries=1)
    station.handles("ends", lambda: None)
    name = "fails" if state is State.FAILED else "ends"
    station.client.schedule(name, id=job_id, queue=queue, retention="1h")
    station.drain(queues=(queue,))


def where(station: Station, job_id: str) -> dict[str, State]:
    """The queues that hold a job, each with its state."""
    found = {queue: station.state(job_id, queue) for queue in ("old", "new")}
    return {queue: state for queue, state in found.items() if state is not State.ABSENT}


# -- schedule --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [state for state in State if state is not State.ABSENT])
def test_the_same_id_again_is_the_same_job(station: Station, q: Client, state: State) -> None:
    put(station, state, "order-1")
    ref = q.schedule("x", id="order-1", queue="old", delay="8s")
    assert (ref.outcome, ref.queue, ref.state) == ("kept", "old", state)
    assert where(station, "order-1") == {"old": state}


def test_each_rule_for_a_taken_id_counts_in_the_old_queue_too(station: Station, q: Client) -> None:
    put(station, State.SCHEDULED, "order-3")
    before = station.job("order-3", "old").due_ms
    ref = q.schedule("y", {"n": 2}, id="order-3", queue="old", delay="2h", on_conflict="postpone")
    assert (ref.outcome, ref.queue) == ("postponed", "old")
    postponed = station.job("order-3", "old")
    assert postponed.name == "x"
    assert before is not None
    assert postponed.due_ms is not None
    assert postponed.due_ms > before
    ref = q.schedule("y", {"n": 2}, id="order-3", queue="old", delay="3h", on_conflict="replace")
    assert (ref.outcome, ref.queue) == ("replaced", "old")
    replaced = station.job("order-3", "old")
    assert (replaced.name, replaced.data) == ("y", {"n": 2})
    assert replaced.envelope is not None
    assert replaced.envelope.queue == "old"
    with pytest.raises(Conflict, match="'order-3' in queue 'old'"):
        q.schedule("y", id="order-3", queue="old", on_conflict="error")
    assert where(station, "order-3") == {"old": State.SCHEDULED}


@pytest.mark.parametrize("rule", ["replace", "postpone"])
def test_what_runs_in_the_old_queue_is_neither_replaced_nor_postponed(station: Station, q: Client, rule: str) -> None:
    put(station, State.RESERVED, "order-4")
    with pytest.raises(JobRunning):
        q.schedule("x", id="order-4", queue="old", delay="1h", on_conflict=rule)
    assert where(station, "order-4") == {"old": State.RESERVED}


def test_a_unique_key_counts_in_both_queues(station: Station, q: Client) -> None:
    first = station.client.schedule("x", queue="old", delay="1h", unique="customer-7")
    ref = q.schedule("x", queue="old", delay="1h", unique="customer-7")
    assert (ref.outcome, ref.queue, ref.id) == ("kept", "old", first.id)


def test_a_job_that_ended_in_the_old_queue_is_made_in_the_new_one(station: Station, q: Client) -> None:
    put(station, State.SCHEDULED, "order-5")
    assert station.client.cancel("order-5", queue="old") == "cancelled"
    ref = q.schedule("x", id="order-5", queue="old", delay="1h", on_conflict="replace")
    assert (ref.outcome, ref.queue) == ("created", "new")
    assert where(station, "order-5") == {"new": State.SCHEDULED}


def test_asking_an_old_queue_that_never_was_does_not_make_it(station: Station, q: Client) -> None:
    q.schedule("x", id="order-6", queue="old", delay="1h")
    q.schedule("x", queue="old", delay="1h", unique="customer-8")
    assert q.cancel("order-6", queue="old") == "cancelled"
    assert q.queues() == ["new"]
    assert station.connector.commands().keys("delayq:{old}:*") == []


def test_many_at_once_each_where_it_was(station: Station, q: Client) -> None:
    for n in (0, 2):
        put(station, State.SCHEDULED, f"order-{n}")
    station.client.queue_set("old", shards=4)
    for n in range(10, 20):
        put(station, State.SCHEDULED, f"order-{n}")
    items = [JobSpec(name="x", id=f"order-{n}", queue="old", delay="1h") for n in (0, 1, 2, *range(10, 22))]
    refs = q.schedule_many([*items, JobSpec(name="x", queue="old", delay="1h"), JobSpec(name="x", queue="other")])
    found = [(ref.id, ref.queue, ref.outcome) for ref in refs[:-2]]
    old = [("order-0", "old", "kept"), ("order-1", "new", "created"), ("order-2", "old", "kept")]
    old += [(f"order-{n}", "old", "kept") for n in range(10, 20)]
    assert found == [*old, ("order-20", "new", "created"), ("order-21", "new", "created")]
    assert [(ref.queue, ref.outcome) for ref in refs[-2:]] == [("new", "created"), ("other", "created")]


def test_an_envelope_that_is_made_already(station: Station, q: Client) -> None:
    put(station, State.SCHEDULED, "order-7")
    ref = q.push_raw(station.job("order-7", "old").raw, delay="1h")
    assert (ref.outcome, ref.queue) == ("kept", "old")
    assert where(station, "order-7") == {"old": State.SCHEDULED}


def test_under_an_idempotency_key(station: Station, q: Client) -> None:
    put(station, State.SCHEDULED, "order-8")
    spec = JobSpec(name="x", id="order-8", queue="old", delay="1h")
    key = Repeatable(new_id(), "fingerprint")
    for again in (False, True):
        once = q.run(schedule_once(q.verbs, [spec], OnConflict.KEEP, None, key))
        assert (once.again, once.refs[0].outcome, once.refs[0].queue) == (again, "kept", "old")
    assert where(station, "order-8") == {"old": State.SCHEDULED}


def test_a_lone_schedule_without_an_id_asks_only_the_new_queue(station: Station, q: Client) -> None:
    q.schedule("x", queue="old", delay="1h")
    said = []
    with connect(station.url) as redis, redis.monitor() as monitor:
        q.schedule("x", queue="old", delay="1h")
        redis.echo("over")
        for command in monitor.listen():
            if "ECHO" in command["command"]:
                break
            said.append(command["command"])
    assert sum(line.startswith("EVALSHA") for line in said) == 1
    assert not [line for line in said if "{old}" in line]


# -- verbs on one job ------------------------------------------------------------------------------------------------


def test_cancelled_means_that_no_worker_runs_it(station: Station, q: Client, both: str) -> None:
    ran = station.tape()
    station.handles("x", lambda: ran.append("ran"))
    assert q.cancel(both, queue="old") == "cancelled"
    assert where(station, both) == {}
    station.drain(queues=("old", "new"))
    assert list(ran) == []


@pytest.mark.parametrize("first", ["old", "new"])
@pytest.mark.parametrize(
    ("state", "answer", "error"),
    [
        (State.RESERVED, "running", JobRunning),
        (State.COMPLETED, "finished", JobFinished),
        (State.FAILED, "failed", JobHasFailed),
    ],
)
def test_the_answer_is_the_worst(
    station: Station, q: Client, first: str, state: State, answer: str, error: type[Exception]
) -> None:
    put(station, state, "order-1", first)
    put(station, State.SCHEDULED, "order-1", "new" if first == "old" else "old")
    with pytest.raises(error, match=f"queue '{first}'"):
        q.reschedule("order-1", queue="old", delay="2h")
    with pytest.raises(error, match=f"queue '{first}'"):
        q.run_now("order-1", queue="old")
    assert q.cancel("order-1", queue="old") == answer
    assert where(station, "order-1") == {first: state}


def test_both_get_the_new_due_time(station: Station, q: Client, both: str) -> None:
    q.reschedule(both, queue="old", delay="5h")
    dues = [station.job(both, queue).due_ms or 0 for queue in ("old", "new")]
    assert min(dues) > q.run(q.verbs.server_ms()) + 4 * 3_600_000


@pytest.mark.parametrize("first", ["old", "new"])
def test_get_shows_what_may_still_run(station: Station, q: Client, first: str) -> None:
    other = "new" if first == "old" else "old"
    put(station, State.FAILED, "order-1", other)
    put(station, State.RESERVED, "order-1", first)
    info = q.get("order-1", queue="old")
    assert info is not None
    assert (info.queue, info.state) == (first, State.RESERVED)
    with pytest.raises(JobNotFailed):
        q.retry("order-1", queue="old")


def test_a_failed_job_of_the_old_queue_is_retried_there_or_forgotten(station: Station, q: Client) -> None:
    put(station, State.FAILED, "order-1")
    put(station, State.FAILED, "order-2")
    put(station, State.SCHEDULED, "order-3")
    put(station, State.FAILED, "order-3", "new")
    assert q.retry("order-1", queue="old").queue == "old"
    asked = ["order-1", "order-2", "order-3", "order-4"]
    assert q.forget(asked, queue="old") == ["refused", "forgotten", "refused", "unknown"]
    with pytest.raises(JobNotFound):
        q.retry("order-4", queue="old")


def test_a_queue_with_shards_before_and_after(station: Station, q: Client) -> None:
    put(station, State.SCHEDULED, "order-1")
    station.client.queue_set("old", shards=4)
    station.client.queue_set("new", shards=3)
    for n in range(2, 12):
        put(station, State.SCHEDULED, f"order-{n}")
    ids = [f"order-{n}" for n in range(1, 12)]
    assert {q.schedule("x", id=job_id, queue="old", delay="1h").queue for job_id in ids} == {"old"}
    assert {q.reschedule(job_id, queue="old", delay="2h").queue for job_id in ids} == {"old"}
    assert {q.cancel(job_id, queue="old") for job_id in ids} == {"cancelled"}
    assert {q.schedule("x", id=job_id, queue="old", delay="1h").queue for job_id in ids} == {"new"}
    assert {q.cancel(job_id, queue="old") for job_id in ids} == {"cancelled"}


async def test_the_same_awaited(station: Station, both: str) -> None:
    q = AsyncClient(Connector(station.url), replace(station.options, forwards=FORWARDS))
    try:
        assert await q.cancel(both, queue="old") == "cancelled"
        assert where(station, both) == {}
        put(station, State.SCHEDULED, "order-1")
        ref = await q.schedule("x", id="order-1", queue="old", delay="1h")
        assert (ref.outcome, ref.queue) == ("kept", "old")
        [ref] = await q.schedule_many([JobSpec(name="x", id="order-1", queue="old", delay="1h")])
        assert (ref.outcome, ref.queue) == ("kept", "old")
        ref = await q.reschedule("order-1", queue="old", delay="2h")
        assert ref.queue == "old"
        put(station, State.FAILED, "order-2")
        assert await q.forget(["order-2", "order-1"], queue="old") == ["forgotten", "refused"]
    finally:
        await q.close()


def test_another_queue_is_another_identity(station: Station) -> None:
    put(station, State.SCHEDULED, "order-1")
    assert station.client.schedule("x", id="order-1", queue="new", delay="1h").queue == "new"
    assert station.client.cancel("order-1", queue="new") == "cancelled"
    assert where(station, "order-1") == {"old": State.SCHEDULED}
