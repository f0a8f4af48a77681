"""Chains and batches before they are sent: what is refused, and what reaches Redis."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
import redis

from delayq import (
    BatchInfo,
    BatchNotFound,
    Conflict,
    DelayQ,
    InvalidInput,
    Job,
    JobRef,
    Manager,
    PendingChain,
    Unique,
    afind_batch,
    batch,
    chain,
    dispatch,
    find_batch,
)
from delayq.core.chain import BatchPlan, Chain, Link, link_of
from delayq.core.envelope import decode
from delayq.core.exit_codes import ExitCode
from delayq.core.follow_up import member_jobs
from delayq.core.job_spec import JobSpec
from delayq.core.options import Options
from delayq.jobs.batch import RunningBatch
from delayq.jobs.chain import RunningChain
from delayq.jobs.dispatch import Sendable, _by_name
from delayq.jobs.worker_context import WorkerContext
from delayq.redis.connection.leaf import drive
from delayq.redis.operations.batches import BatchOperations
from delayq.redis.relay import OutboxRelay
from tests.support.queue import QueueOnServer

LATER = "1h"


class Step(Job, name="chains.step", queue="steps", delay=LATER):
    text: str = ""

    def handle(self) -> None: ...


class Shy(Job, name="chains.shy", delay=LATER):
    def handle(self) -> None: ...

    def prepare_for_dispatch(self) -> bool:
        return False


def step(**said: object) -> Sendable:
    return Step()._with(**said)


@pytest.mark.parametrize(
    ("make", "field", "words"),
    [
        (chain, "chain", "has no jobs"),
        (lambda: chain([Step()]), "chain", "A link of a chain must be a job or a batch, not "),  # type: ignore[arg-type]
        (lambda: chain(Step()).on_queue("bad queue"), "queue", "'bad queue'"),
        (lambda: chain("step"), "jobs", "The job in link 1 is 'step', which is not a job"),  # type: ignore[arg-type]
        (lambda: chain(chain(Step())), "chain", "A link of a chain must be a job or a batch, not "),  # type: ignore[arg-type]
        (lambda: chain(step(id="mine")), "id", "has the id 'mine'"),
        (lambda: chain(step(delay=None, at="2030-01-01T00:00:00Z")), "at", "has the due time"),
        (lambda: chain(step(on_conflict="replace")), "on_conflict", "on_conflict='replace'"),
        (
            lambda: chain(Step(), step(connection="other")),
            "connection",
            r"\(in link 2\) belongs to the connection 'other', but the chain .* belongs to the default connection",
        ),
        (lambda: chain(Step(), Step(text="x" * 250_000), *[Step(text="x" * 250_000)] * 4), "chain", "1,000,000"),
        (lambda: chain(Step(), batch([])), "members", "has 0 members"),
        (lambda: chain(batch([Step()]), Step()).delay("1h"), "delay", "begins with a batch"),
        (lambda: chain(Step(), batch([Step()], id="b")), "id", "is a link of a chain"),
        (lambda: chain(Step(), batch([Step()] * 1001)), "members", "1,001 members"),
        (lambda: chain(Step(), step(unique=Unique(key=["absent"]))), "unique", "names the member 'absent'"),
        (lambda: batch([]), "members", "has 0 members"),
        (lambda: batch([step(id="mine")]), "id", "has the id 'mine'"),
        (lambda: batch([step(delay=None, at="2030-01-01T00:00:00Z")]), "at", "has the due time"),
        (lambda: batch([Step(), step(connection="other")]), "connection", "belongs to the connection 'other'"),
        (lambda: batch([step(unique="key")]), "unique", "has a unique key"),
        (lambda: batch([batch([Step()])]), "members", "A member of the batch is a batch"),  # type: ignore[list-item]
        (
            lambda: batch([chain(Step(), batch([Step()]))]),
            "members",
            "A chain that is a member of a batch cannot contain",
        ),
        (lambda: batch([Step()], id="x" * 201), "id", "not valid"),
        (lambda: batch(Step()), "members", "members is"),  # type: ignore[arg-type]
        (lambda: batch(None), "members", "members is None"),  # type: ignore[arg-type]
        (lambda: batch([Step()], allow_failures=1), "allow_failures", "allow_failures is 1"),  # type: ignore[arg-type]
        (lambda: batch([Step()], then=lambda: None), "jobs", "The job in then is"),  # type: ignore[arg-type]
        (lambda: batch([Step()], catch=chain(Step())), "jobs", "The job in catch is"),  # type: ignore[arg-type]
        (lambda: batch([Shy()]), "members", "returned False"),
        (lambda: batch([Step()], id="a b"), "id", "not valid"),
        (lambda: batch([Step()], name="x" * 256), "name", "name is"),
        (lambda: batch([Step()], then=[Step(text="x" * 250_000)] * 5), "then", "callbacks of the batch have"),
        (lambda: batch([Step()], then="step"), "jobs", "which is not a job"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_refused_and_nothing_is_sent(
    manager: Manager, sent: DelayQ, make: Callable[[], PendingChain], field: str, words: str
) -> None:
    manager.define("other", url="redis://127.0.0.1:1")
    with pytest.raises(InvalidInput, match=words) as refused:
        make().dispatch()
    assert (refused.value.field, refused.value.exit_code) == (field, ExitCode.WRONG_USE)
    assert refused.value.hint
    assert sent.queues() == []


def test_a_member_of_a_batch_adds_no_batch_to_its_chain(manager: Manager) -> None:
    (job,) = member_jobs(BatchPlan("b", members=[Chain([link_of(JobSpec("n"), Options(), 0)])]), now_ms=0)
    context = WorkerContext(decode(job.envelope), job.envelope, tries=1, due_ms=0)
    for add in (context.chain.prepend, context.chain.append):
        with pytest.raises(InvalidInput, match="member of a batch") as refused:
            add(batch([Step()]))
        assert (refused.value.field, bool(refused.value.hint)) == ("chain", True)
    context.chain.append(Step())
    assert context.chain.remaining == ["chains.step"]


def test_a_batch_without_a_name_has_a_name_in_the_rest_of_a_chain() -> None:
    plan = BatchPlan("b1", members=[Chain(), Chain()])
    links = Chain([Link(batch=plan), Link(batch=msgspec.structs.replace(plan, name="import"))])
    assert RunningChain("j", links).remaining == ["batch of 2", "import"]


def test_a_window_without_length_is_refused() -> None:
    with pytest.raises(InvalidInput, match="window is None"):
        Unique(until="window")


def test_a_chain_is_stored_with_its_first_job(sent: DelayQ) -> None:
    made = chain(Step(text="1"), Step(text="2")).append(Step(text="4")).prepend(Step(text="0")).catch(Step(text="c"))
    ref = made.on_queue("unused").dispatch()
    assert isinstance(ref, JobRef)
    assert (ref.queue, ref.outcome, ref.state) == ("steps", "created", "scheduled")
    info = sent.get(ref.id, queue="steps")
    assert info is not None
    links = msgspec.json.decode(info.raw)["chain"]
    assert [one["job"]["data"]["text"] for one in links["links"]] == ["1", "2", "4"]
    assert [one["job"]["data"]["text"] for one in links["catch"]] == ["c"]


def test_the_queue_and_the_delay_of_a_chain_apply_where_a_job_has_none(sent: DelayQ) -> None:
    plain = _by_name("plain", None)
    ref = chain(plain, Step(), _by_name("plain", None)).on_queue("vip").delay("2h").dispatch()
    assert isinstance(ref, JobRef)
    assert ref.queue == "vip"
    info = sent.get(ref.id, queue="vip")
    assert info is not None
    links = msgspec.json.decode(info.raw)["chain"]["links"]
    assert [one["job"]["queue"] for one in links] == ["steps", "vip"]
    assert [one.get("delay_ms", 0) for one in links] == [3_600_000, 0]


def test_chains_and_batches_are_sent_in_an_event_loop(manager: Manager, sent: DelayQ) -> None:
    async def send() -> BatchInfo:
        await chain(Step(), Step()).adispatch()
        info = await batch([Step(), Step()], id="b1").adispatch()
        assert info.outcome == "created"
        assert await afind_batch("b1") == msgspec.structs.replace(info, outcome=None)
        await manager.connection().aclient.close()
        return info

    info = asyncio.run(send())
    assert (info.id, info.total) == ("b1", 2)
    assert sent.stats("steps")[0].scheduled == 3


def test_a_job_that_refuses_the_dispatch_stops_its_chain_and_leaves_the_batch(sent: DelayQ) -> None:
    assert chain(Step(), Shy()).dispatch().outcome == "vetoed"
    assert sent.queues() == []
    assert chain(Step(), batch([Shy()]), Step()).dispatch().outcome == "vetoed"
    info = batch([Step(), Shy(), chain(Step(), Shy())]).dispatch()
    assert info.total == 1


def test_a_chain_whose_first_key_is_taken_is_not_sent(sent: DelayQ) -> None:
    owner = dispatch("chains.step", {"text": ""}, unique="key")
    ref = chain(step(unique="key"), Step()).dispatch()
    assert isinstance(ref, JobRef)
    assert (ref.outcome, ref.id) == ("kept", owner.id)
    assert sent.stats("steps")[0].scheduled == 1


def test_the_outcome_says_whether_members_were_added(sent: DelayQ) -> None:
    assert batch([Step()], id="b1").dispatch().outcome == "created"
    running = RunningBatch("b1", "b1.0")
    assert running.add([Step()]).outcome == "created"
    assert running.add([]).outcome == "kept"
    running.cancel()
    assert running.add([Step()]).outcome == "kept"


def test_a_chain_begins_with_a_batch(sent: DelayQ) -> None:
    info = chain(batch([Step(), Step()], name="first"), Step()).dispatch()
    assert isinstance(info, BatchInfo)
    assert (info.total, info.name, sent.stats("steps")[0].scheduled) == (2, "first", 2)


def test_a_second_dispatch_sends_the_members_that_are_missing(manager: Manager, sent: DelayQ) -> None:
    members = [Step(text=str(n)) for n in range(600)]
    batch(members, id="b1").dispatch()
    for n in (0, 300, 599):
        assert sent.cancel(f"b1.{n}", queue="steps") == "cancelled"
    batch(members, id="b1").dispatch()
    assert sent.stats("steps")[0].scheduled == 597
    # Without the tokens of the first dispatch, as after seven days, the members that have not ended are still known.
    info = find_batch("b1")
    assert info is not None
    assert (info.total, info.state) == (600, "running")


def unsend(server: redis.Redis) -> None:
    """Bring back the state of a program that has opened the batch `b1`, and died before it sent the members."""
    for member, text in server.hgetall("test:{batch:b1}:pending").items():
        server.hset("test:{batch:b1}:pending", member, str(text).rpartition(" ")[0])
    server.delete(*server.keys("test:{steps}:*"))


class Now(Job, name="chains.now", queue="orders"):
    text: str = ""

    def handle(self) -> None: ...


def end_job(queue: QueueOnServer, job_id: str) -> None:
    assert queue.ack(next(job for job in queue.read() if job.id == job_id))


def relay(queue: QueueOnServer, sent: DelayQ) -> None:
    session = sent._operations._session
    drive(OutboxRelay(session.executor, session.keys, session.options, session.shards, name="r").relay("orders"))


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("change", ["fewer", "more", "add"])
def test_members_that_ran_are_not_sent_again_by_a_dispatch_with_other_members(
    queue: QueueOnServer, sent: DelayQ, change: str, is_recorded: bool
) -> None:
    def members() -> list[Sendable | PendingChain]:
        return [chain(Now(text="one"), Step(text="two")), Now(text="single")]

    def later() -> Sendable:
        return Now().delay(LATER)

    batch([*members(), later()], id="b1").dispatch()
    if change == "add":
        RunningBatch("b1", "loader").add(members())
    running = queue.read()
    assert len(running) == (4 if change == "add" else 2)
    for job in running:
        assert queue.ack(job)
    if is_recorded:
        relay(queue, sent)
    if change == "add":
        RunningBatch("b1", "loader").add([*members(), later()])
    else:
        batch(members() if change == "fewer" else [*members(), later(), later()], id="b1").dispatch()
    assert queue.read() == []


def test_a_dispatch_that_dies_before_it_records_what_it_sent_is_repeated_without_a_second_run(
    queue: QueueOnServer, server: redis.Redis, sent: DelayQ
) -> None:
    batch([Now()], id="b1").dispatch()
    end_job(queue, "b1.0")
    server.hset("test:{batch:b1}:pending", "b1.0", "orders 1")
    batch([Now()], id="b1").dispatch()
    assert queue.read() == []


def test_a_batch_that_is_cancelled_between_two_round_trips_keeps_no_job(sent: DelayQ) -> None:
    batch([Step()], id="b1").dispatch()
    operations = BatchOperations(sent._operations._session, sent._operations)
    plan = BatchPlan("b1", members=[Chain([link_of(JobSpec("n", queue="late"), Options(), 0, job_id="b1.0")])])
    sent.batches.cancel("b1")
    operations._has_stopped = no_stop  # type: ignore[method-assign]
    drive(operations._send_members(plan, {"b1.0": False}, "token"))
    assert sent.stats("late")[0].ready == 0


async def no_stop(batch_id: str) -> bool:
    return False


def test_a_second_dispatch_may_leave_members_out(manager: Manager, sent: DelayQ, server: redis.Redis) -> None:
    """A `prepare_for_dispatch` that leaves out the members that are done moves the others to other round trips."""
    batch([Step(text=str(n)) for n in range(300)], id="b1").dispatch()
    unsend(server)
    again = [Shy() if n % 2 else Step(text=str(n)) for n in range(300)]
    batch(again, id="b1").dispatch()
    assert sent.stats("steps")[0].scheduled == 150


def test_members_that_a_second_dispatch_adds_are_sent(manager: Manager, sent: DelayQ) -> None:
    members = [Step(text=str(n)) for n in range(5)]
    batch(members[:3], id="b1").dispatch()
    info = batch(members, id="b1").dispatch()
    assert (info.total, info.outcome, sent.stats("steps")[0].scheduled) == (5, "created", 5)


def test_a_cancelled_batch_without_any_job_sends_its_callbacks(
    manager: Manager, sent: DelayQ, server: redis.Redis
) -> None:
    """As after the death of a producer, the members were never sent, so that the cancel ends the batch."""
    batch([Step(), chain(Step(), Step())], id="b1", finally_=Step(text="finally")).dispatch()
    unsend(server)
    sent.batches.cancel("b1")
    (job,) = sent.iter_jobs("scheduled", queue="steps")
    assert job.data == {"text": "finally"}


def test_a_cancel_waits_for_the_record_of_a_member_that_has_ended(queue: QueueOnServer, sent: DelayQ) -> None:
    batch([Now(), chain(Now(), Now()), Step()], id="b1", finally_=Step(text="finally")).dispatch()
    for job in queue.read():
        assert queue.ack(job)
    info = sent.batches.cancel("b1")
    assert (info.state, info.skipped) == ("cancelling", 0)
    relay(queue, sent)
    session = sent._operations._session
    drive(OutboxRelay(session.executor, session.keys, session.options, session.shards, name="r").relay("steps"))
    info = sent.batches.require("b1")
    assert (info.state, info.succeeded, info.skipped) == ("cancelled", 1, 2)


def test_a_cancel_skips_a_member_that_another_program_has_deleted(sent: DelayQ, server: redis.Redis) -> None:
    batch([Step(), chain(Step(), Step())], id="b1").dispatch()
    server.delete(*server.keys("test:{steps}:*"))
    assert sent.batches.cancel("b1").skipped == 2


def test_a_batch_is_found_listed_and_cancelled(sent: DelayQ) -> None:
    assert find_batch("b1") is None
    for n in range(3):
        batch([Step()] * (n + 1), id=f"b{n}", name=f"name {n}").dispatch()
    found = sent.batches.list()
    assert sorted(info.id for info in found) == ["b0", "b1", "b2"]
    assert len(sent.batches.list(2)) == 2
    info = sent.batches.cancel("b2")
    assert (info.state, info.name, info.is_cancelled) == ("cancelling", "name 2", True)
    assert sent.stats("steps")[0].scheduled == 3
    with pytest.raises(BatchNotFound):
        sent.batches.cancel("unknown")
    with pytest.raises(BatchNotFound):
        sent.batches.retry("unknown")
    for read in (
        lambda: sent.batches.list(0),
        lambda: sent.batches.failed("b2", 0),
        lambda: sent.batches.without_job("b2", 0),
    ):
        with pytest.raises(InvalidInput, match="limit"):
            read()


def test_a_batch_that_is_known_and_whose_members_are_now_left_out_is_kept(sent: DelayQ) -> None:
    batch([Step()], id="b1").dispatch()
    info = batch([Shy()], id="b1").dispatch()
    assert (info.outcome, info.total, sent.stats("steps")[0].scheduled) == ("kept", 1, 1)
    assert asyncio.run(batch([Shy()], id="b1").adispatch()).outcome == "kept"
    for id in ("unknown", None):
        with pytest.raises(InvalidInput, match="no members"):
            batch([Shy()], id=id).dispatch()


def test_add_takes_at_most_100000_members(sent: DelayQ) -> None:
    batch([Step()], id="b1").dispatch()
    with pytest.raises(InvalidInput, match="100,001 members are to be added"):
        RunningBatch("b1", "b1.0").add([Step()] * 100_001)


def test_a_cancelled_batch_gets_no_more_members(sent: DelayQ) -> None:
    batch([Step()], id="b1").dispatch()
    sent.batches.cancel("b1")
    info = batch([Step(), Step()], id="b1").dispatch()
    assert (info.total, info.outcome, sent.stats("steps")[0].scheduled) == (1, "kept", 0)


def test_a_finished_batch_is_not_cancelled(sent: DelayQ) -> None:
    batch([Step()], id="b1").dispatch()
    sent.cancel("b1.0", queue="steps")
    session = sent._operations._session
    relay = OutboxRelay(session.executor, session.keys, session.options, session.shards, name="r")
    drive(relay.relay("steps"))
    info = find_batch("b1")
    assert info is not None
    assert (info.state, info.outcome) == ("incomplete", None)
    assert batch([Step()], id="b1").dispatch().outcome == "kept"
    with pytest.raises(Conflict, match="has finished"):
        sent.batches.cancel("b1")


def test_a_chain_or_batch_that_is_not_sent_causes_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match="A chain was never sent"):
        chain(Step()).catch(Step())
    with pytest.warns(RuntimeWarning, match="A batch was never sent"):
        batch([Step()])
