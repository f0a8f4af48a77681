"""The relay on a real server: what follows each kind of end, exactly once through every crash."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import pytest
import redis

from delayq.backends.values import Acked, Delivery, Relayed, SettleAnswer
from delayq.core.chain import BatchPlan, Chain, Link, Membership, encode, places_of_members, without_members
from delayq.core.errors import BackendError, CallRefused
from delayq.core.follow_up import member_jobs
from delayq.core.job_spec import NewJob
from delayq.core.options import Options
from delayq.redis import repair
from delayq.redis.batch_cancel import BatchCancel, note_members
from delayq.redis.calls import batches, delivery
from delayq.redis.calls.call import Call
from delayq.redis.calls.upkeep import PAGE
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive
from delayq.redis.relay import HELD_WAIT, OutboxRelay
from delayq.redis.shard_counts import ShardCounts
from tests.support.queue import HOUR, PLAIN, QueueOnServer, envelope_of

T = TypeVar("T")
OPTIONS = Options()


def link(job_id: str, *, queue: str = "orders", extra: str = "", **more: Any) -> Link:
    envelope = envelope_of(job_id, name=f"name-{job_id}", extra=extra).replace(b'"orders"', f'"{queue}"'.encode())
    return Link(job=msgspec.Raw(envelope), **more)


def chained(job_id: str, *links: Link, catch: Sequence[Link] = (), batch: Membership | None = None) -> bytes:
    chain = encode(Chain(links, catch)).decode()
    member = "" if batch is None else f',"batch":{msgspec.json.encode(batch).decode()}'
    return envelope_of(job_id, extra=f',"chain":{chain}{member}')


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Died(Exception):
    """The process of the relay has died."""


class Mortal(Executor):
    """Sends calls until a number of round trips is used up. If `reads_reply` is False, the last one is carried out."""

    def __init__(self, over: Executor, trips: int, *, loses_reply: bool) -> None:
        self._over = over
        self._left = trips
        self._loses_reply = loses_reply

    @property
    def where(self) -> str:
        return self._over.where

    async def run_all(self, calls: Sequence[Call[T]], *, block: float = 0.0) -> list[T | BackendError]:
        self._left -= 1
        if self._left < 0 and not self._loses_reply:
            raise Died
        outcomes = await self._over.run_all(calls, block=block)
        if self._left < 0:
            raise Died
        return outcomes

    async def start(self, calls: Sequence[Call[T]]) -> Any:
        raise NotImplementedError

    async def finish(self, started: Any, *, block: float = 0.0) -> Any:
        raise NotImplementedError

    async def servers(self) -> Sequence[Executor]:
        return [self]

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


def make_relay(
    queue: QueueOnServer,
    *,
    name: str = "relay-1",
    executor: Executor | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> OutboxRelay:
    sender = executor or queue.executor
    return OutboxRelay(sender, queue.keys, OPTIONS, ShardCounts(sender, queue.keys), name=name, clock=clock)


def relay(queue: QueueOnServer, of: str = "orders") -> Relayed:
    return drive(make_relay(queue).relay(of))


def ids_of(queue: QueueOnServer) -> set[str]:
    return set(queue.rows("jobs"))


def envelope_at(queue: QueueOnServer, job_id: str, of: str = "orders") -> dict[str, Any]:
    raw = queue.server.hget(queue.keys.of_queue(of, "jobs"), job_id)
    assert raw is not None, f"{job_id} was not sent"
    return dict(msgspec.json.decode(raw))


def start(queue: QueueOnServer, envelope: bytes, job_id: str = "first") -> Delivery:
    """Schedule a job and take it, at the time of the server, as the relay does."""
    queue.schedule(job_id, envelope=envelope, now="")
    return next(job for job in queue.read() if job.id == job_id)


# --- chains


def test_a_done_link_sends_the_next_one_with_the_rest(queue: QueueOnServer, server: redis.Redis) -> None:
    rest = [link("second", queue="mail", delay_ms=HOUR, deadline_ms=2 * HOUR, retry_until_ms=HOUR), link("third")]
    job = start(queue, chained("first", *rest, catch=[link("catch")]))
    assert queue.ack(job)
    (row,) = queue.read_outbox("relay-1").rows
    ended_ms = int(row.entry.split("-")[0])
    assert relay(queue) == Relayed(1)
    sent = envelope_at(queue, "second", "mail")
    assert server.zscore(queue.keys.of_queue("mail", "scheduled"), "second") == ended_ms + HOUR
    assert (sent["created_ms"], sent["deadline_ms"], sent["retry_until_ms"]) == (
        ended_ms,
        ended_ms + 3 * HOUR,
        ended_ms + 2 * HOUR,
    )
    assert [one["job"]["id"] for one in sent["chain"]["links"]] == ["third"]
    assert [one["job"]["id"] for one in sent["chain"]["catch"]] == ["catch"]
    assert server.sismember(queue.keys.queues, "mail")
    assert relay(queue) == Relayed(0)


def test_the_last_link_and_a_plain_job_send_nothing(queue: QueueOnServer, server: redis.Redis) -> None:
    plain = envelope_of("plain").replace(b"{}", b'{"chain":1,"batch":2}', 1)
    for job_id, envelope in (("last", chained("last")), ("plain", plain)):
        assert queue.ack(start(queue, envelope, job_id))
    assert server.xlen(queue.key("outbox")) == 2
    assert relay(queue) == Relayed(2)
    assert ids_of(queue) == set()


def vanish(queue: QueueOnServer, job: Delivery) -> None:
    queue.recover(job, max_recoveries=0)


def cancel_ready(queue: QueueOnServer, job: Delivery) -> None:
    queue.hand_back(job)
    queue.cancel(job.id)


def clear(queue: QueueOnServer, job: Delivery) -> None:
    queue.hand_back(job)
    queue.clear()


def archive(queue: QueueOnServer, job: Delivery) -> None:
    queue.hand_back(job)
    queue.archive(job.id)


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda queue, job: queue.fail(job), "E m"),
        (archive, "Archived by hand"),
        (vanish, "WorkerVanished The worker vanished 1 times while it had this job."),
    ],
    ids=["fail", "archive", "vanish"],
)
def test_a_failed_link_sends_the_catch_jobs(queue: QueueOnServer, end: Callable[..., object], error: str) -> None:
    end(queue, start(queue, chained("first", link("second"), catch=[link("one", extra=',"headers":{"own":"1"}')])))
    assert relay(queue) == Relayed(1)
    headers = envelope_at(queue, "one")["headers"]
    assert headers.pop("own") == "1"
    assert (headers["delayq-failed-id"], headers["delayq-failed-queue"]) == ("first", "orders")
    assert f"{headers['delayq-failed-error']} {headers['delayq-failed-message']}" == error
    assert ids_of(queue) == {"first", "one"}


def test_an_envelope_that_a_worker_cannot_read_still_sends_the_catch_jobs(queue: QueueOnServer) -> None:
    job = start(queue, chained("first", link("second"), catch=[link("one")]).replace(b'"v":1', b'"v":7', 1))
    assert queue.fail(job)
    assert relay(queue) == Relayed(1)
    assert ids_of(queue) == {"first", "one"}


def return_after_stop_request(queue: QueueOnServer, job: Delivery) -> None:
    queue.cancel(job.id, running=True)
    queue.ack(job)


@pytest.mark.parametrize(
    "end",
    [cancel_ready, clear, lambda queue, job: queue.ack_stopped(job), return_after_stop_request],
    ids=["cancel", "clear", "stop", "return"],
)
def test_a_cancelled_link_ends_the_chain_without_catch(queue: QueueOnServer, end: Callable[..., object]) -> None:
    end(queue, start(queue, chained("first", link("second"), catch=[link("one")])))
    assert relay(queue) == Relayed(1)
    assert ids_of(queue) == set()


def test_a_link_that_a_plain_consumer_acknowledges_sends_the_next_one(
    queue: QueueOnServer, server: redis.Redis
) -> None:
    queue.schedule("first", envelope=chained("first", link("second")), now="")
    (job,) = queue.read(PLAIN)
    server.xack(queue.key("stream"), "delayq", job.entry)
    drive(repair.repair_queue(queue.executor, queue.keys, "orders", OPTIONS))
    assert relay(queue) == Relayed(1)
    assert ids_of(queue) == {"second"}


def test_a_link_whose_key_is_taken_waits_and_delays_no_other(queue: QueueOnServer) -> None:
    clock = Clock()
    one = make_relay(queue, clock=clock)
    digest = "0" * 32
    queue.schedule("owner", f"+{HOUR}", lock=digest, now="")
    for n, key in enumerate([f',"unique":"{digest}"', "", f',"unique":"{digest}"', ""]):
        assert queue.ack(start(queue, chained("first", link(f"next-{n}", extra=key, delay_ms=HOUR))))
    assert drive(one.relay("orders")) == Relayed(2, 1.0)
    assert ids_of(queue) == {"owner", "next-1", "next-3"}
    clock.now += 0.25
    assert drive(one.relay("orders")) == Relayed(0, 0.75)
    assert queue.ack(start(queue, chained("first", link("next-4", delay_ms=HOUR))))
    assert drive(one.relay("orders")) == Relayed(1, 0.75)
    queue.cancel("owner")
    clock.now += 0.75
    assert drive(one.relay("orders")) == Relayed(1, 1.0)
    assert ids_of(queue) == {"next-0", "next-1", "next-3", "next-4"}


def test_an_unreadable_record_is_logged_and_deleted(
    queue: QueueOnServer, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    server.xadd(queue.key("outbox"), {"ended": "done", "job": '{"chain":[1]}'})
    server.xadd(queue.key("outbox"), {"ended": "done", "job": "rubbish"})
    assert queue.ack(start(queue, chained("first", link("second"))))
    with caplog.at_level(logging.ERROR):
        assert relay(queue) == Relayed(3)
    assert len([record for record in caplog.records if "cannot be read" in record.message]) == 2
    assert ids_of(queue) == {"second"}


def test_two_relays_do_not_relay_the_same_records(queue: QueueOnServer) -> None:
    assert queue.ack(start(queue, chained("first", link("second"))))
    one, two = make_relay(queue, name="relay-1"), make_relay(queue, name="relay-2")
    assert len(queue.read_outbox("relay-1", hold_ms=1_000, now="").rows) == 1
    assert drive(two.relay("orders")) == Relayed(0, HELD_WAIT)
    assert drive(one.relay("orders")) == Relayed(1)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("has_waiting", [False, True])
def test_a_relay_that_has_ended_does_not_keep_the_outbox_from_the_next_relay(
    queue: QueueOnServer, passes: int, has_waiting: bool
) -> None:
    digest = "0" * 32
    extra = f',"unique":"{digest}"' if has_waiting else ""
    queue.schedule("owner", f"+{HOUR}", lock=digest, now="")
    assert queue.ack(start(queue, chained("first", link("second", extra=extra, delay_ms=HOUR))))
    one, two = make_relay(queue), make_relay(queue, name="relay-2")
    for _ in range(passes):
        drive(one.relay("orders"))
    assert queue.ack(start(queue, chained("third", link("fourth", delay_ms=HOUR)), "third"))
    assert drive(two.relay("orders")).relayed == 1


def test_a_relay_that_ends_between_two_pages_does_not_keep_the_outbox(
    queue: QueueOnServer, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(PAGE + 1):
        server.xadd(queue.key("outbox"), {"ended": "done", "job": "{}"})
    assert drive(make_relay(queue, name="relay-1").relay("orders")) == Relayed(PAGE, 0.0)
    assert drive(make_relay(queue, name="relay-2").relay("orders")) == Relayed(1)


def test_waiting_records_do_not_delay_the_later_pages(queue: QueueOnServer, server: redis.Redis) -> None:
    """Their next try comes after the last page, even if its time has come before."""
    clock = Clock()
    digest = "0" * 32
    queue.schedule("owner", f"+{HOUR}", lock=digest, now="")
    waiting = chained("first", link("next", extra=f',"unique":"{digest}"', delay_ms=HOUR))
    for _ in range(PAGE + 1):
        server.xadd(queue.key("outbox"), {"ended": "done", "job": waiting})
    assert queue.ack(start(queue, chained("last", link("behind", delay_ms=HOUR)), "last"))
    relay = make_relay(queue, clock=clock)
    for _ in range(3):
        drive(relay.relay("orders"))
        clock.now += 10
    assert "behind" in ids_of(queue)


def test_waiting_records_are_tried_again_though_another_relay_took_the_later_ones(
    queue: QueueOnServer, server: redis.Redis
) -> None:
    clock = Clock()
    digest = "0" * 32
    queue.schedule("owner", f"+{HOUR}", lock=digest, now="")
    waiting = chained("first", link("next", extra=f',"unique":"{digest}"', delay_ms=HOUR))
    for _ in range(PAGE):
        server.xadd(queue.key("outbox"), {"ended": "done", "job": waiting})
    later = server.xadd(queue.key("outbox"), {"ended": "done", "job": "{}"})
    relay = make_relay(queue, clock=clock)
    assert drive(relay.relay("orders")) == Relayed(0, 0.0)
    server.xdel(queue.key("outbox"), later)
    queue.cancel("owner")
    for _ in range(3):
        clock.now += 10
        drive(relay.relay("orders"))
    assert "next" in ids_of(queue)


def test_records_with_errors_do_not_delay_the_later_pages(queue: QueueOnServer, server: redis.Redis) -> None:
    """Each page returns its error. After the last page, the records with errors are tried again."""
    clock = Clock()
    server.set(queue.keys.of_queue("broken", "jobs"), "another type")
    for n in range(PAGE + 1):
        record = chained(f"first-{n}", link(f"next-{n}", queue="broken", delay_ms=HOUR))
        server.xadd(queue.key("outbox"), {"ended": "done", "job": record})
    assert queue.ack(start(queue, chained("last", link("behind", delay_ms=HOUR)), "last"))
    relay = make_relay(queue, clock=clock)
    for _ in range(2):
        assert "behind" not in ids_of(queue)
        error = drive(relay.relay("orders")).error
        assert isinstance(error, CallRefused) and "WRONGTYPE" in error.message
        clock.now += 10
    assert "behind" in ids_of(queue)
    server.delete(queue.keys.of_queue("broken", "jobs"))
    assert [drive(relay.relay("orders")) for _ in range(2)] == [Relayed(PAGE, 0.0), Relayed(1)]
    assert server.hlen(queue.keys.of_queue("broken", "jobs")) == PAGE + 1


def test_waiting_records_whose_time_has_come_at_the_end_of_a_pass_do_not_begin_another_at_once(
    queue: QueueOnServer, server: redis.Redis
) -> None:
    clock = Clock()
    server.set(queue.keys.of_queue("broken", "jobs"), "another type")
    for n in range(PAGE + 1):
        record = chained(f"first-{n}", link(f"next-{n}", queue="broken"))
        server.xadd(queue.key("outbox"), {"ended": "done", "job": record})
    relay = make_relay(queue, clock=clock)
    assert drive(relay.relay("orders")).again_in == 0.0
    clock.now += 10
    again_in = drive(relay.relay("orders")).again_in
    assert again_in is not None and again_in > 0.0


def test_a_relay_keeps_its_place_while_another_relay_holds_the_outbox(
    queue: QueueOnServer, server: redis.Redis
) -> None:
    server.set(queue.keys.of_queue("broken", "jobs"), "another type")
    for n in range(PAGE):
        record = chained(f"first-{n}", link(f"next-{n}", queue="broken"))
        server.xadd(queue.key("outbox"), {"ended": "done", "job": record})
    assert queue.ack(start(queue, chained("last", link("behind", delay_ms=HOUR)), "last"))
    relay = make_relay(queue)
    drive(relay.relay("orders"))
    queue.read_outbox("relay-2", hold_ms=1_000, now="")
    assert drive(relay.relay("orders")) == Relayed(0, HELD_WAIT)
    server.hdel(queue.key("meta"), "relay_until")
    drive(relay.relay("orders"))
    assert "behind" in ids_of(queue)


# --- batches


def open_batch(queue: QueueOnServer, plan: BatchPlan) -> list[NewJob]:
    """Store a batch and its members, as a client does."""
    call = batches.open_batch(
        queue.keys,
        plan.id,
        plan=encode(without_members(plan)),
        allow_failures=plan.allow_failures,
        seal=True,
        members=places_of_members(plan),
    )
    queue.run(call)
    queue.run(note_members(queue.keys, OPTIONS, plan.id, [("before", "told", "")]))
    jobs = member_jobs(plan, now_ms=0, when_now=True)
    queue.schedule_all(*jobs, now="")
    return jobs


def plan_of(*members: Chain, **more: Any) -> BatchPlan:
    callbacks = {word: [link(word.rstrip("_"))] for word in ("then", "catch", "finally_")}
    return BatchPlan("b1", "all", members=members, **{**callbacks, **more})


def counts(queue: QueueOnServer) -> tuple[int, int, int, int]:
    values = [queue.run(call) for call in batches.read_batch(queue.keys, "b1")]
    row = batches.batch_row("b1", values)
    assert row is not None
    return row.pending, row.succeeded, row.broken, row.skipped


def single(job_id: str, **more: Any) -> Chain:
    return Chain([link(job_id, **more)])


def test_a_chain_in_a_batch_is_one_member(queue: QueueOnServer) -> None:
    open_batch(queue, plan_of(Chain([link("one"), link("two")])))
    (job,) = queue.read()
    assert queue.ack(job)
    assert relay(queue) == Relayed(1)
    assert counts(queue) == (1, 0, 0, 0)
    (job,) = queue.read()
    assert queue.ack(job)
    assert relay(queue) == Relayed(1)
    assert (counts(queue), ids_of(queue)) == ((0, 1, 0, 0), {"then", "finally"})


def test_the_first_failure_cancels_the_batch_and_stops_chains_before_their_next_link(queue: QueueOnServer) -> None:
    chain = Chain([link("one"), link("two")], [link("of-chain")])
    open_batch(queue, plan_of(single("bad"), chain, single("waits", delay_ms=HOUR), single("runs")))
    running = {job.id: job for job in queue.read()}
    assert queue.fail(running["bad"])
    relay(queue)
    relay(queue)  # the end of the member that was cancelled
    assert counts(queue) == (2, 0, 1, 1)
    assert queue.ack_all(*[Acked("orders", one, running[one].entry) for one in ("one", "runs")]) == [1, 1]
    relay(queue)
    assert counts(queue) == (0, 1, 1, 2)
    assert ids_of(queue) == {"bad", "catch", "finally"}
    assert envelope_at(queue, "catch")["headers"]["delayq-failed-id"] == "bad"


def cancel_batch(queue: QueueOnServer) -> None:
    queue.run(note_members(queue.keys, OPTIONS, "b1", (), cancel=True))


def walk(queue: QueueOnServer) -> None:
    """Cancel the waiting members of the batch, as the duty `cancel` does."""
    drive(BatchCancel(queue.executor, queue.keys, OPTIONS, ShardCounts(queue.executor, queue.keys)).some("b1"))


def test_a_cancel_finds_the_link_of_a_chain_that_waits_in_its_queue(queue: QueueOnServer) -> None:
    open_batch(queue, plan_of(Chain([link("one"), link("two", queue="mail", delay_ms=HOUR), link("three")])))
    (job,) = queue.read()
    assert queue.ack(job)
    relay(queue)
    assert "two" in queue.server.hgetall(queue.keys.of_queue("mail", "jobs"))
    cancel_batch(queue)
    walk(queue)
    assert queue.server.hgetall(queue.keys.of_queue("mail", "jobs")) == {}
    relay(queue, "mail")
    assert (counts(queue), ids_of(queue)) == ((0, 0, 0, 1), {"finally"})


def test_a_running_member_of_a_cancelled_batch_does_not_run_again(queue: QueueOnServer) -> None:
    open_batch(queue, plan_of(single("retried"), single("fails"), single("done"), single("asked"), allow_failures=True))
    running = {job.id: job for job in queue.read()}
    assert queue.cancel("asked", running=True) == "running"
    cancel_batch(queue)
    walk(queue)
    assert queue.renew(*running.values()).cancelled == [("orders", "asked")]  # the others may finish
    info = queue.get("retried")
    assert info is not None and info.cancel_asked_ms is None
    assert queue.release(running["retried"], 0) == SettleAnswer.STOP_ASKED
    assert queue.ack_stopped(running["retried"])
    assert queue.fail(running["fails"]) == SettleAnswer.SETTLED
    assert queue.ack(running["done"])
    assert queue.ack(running["asked"])
    relay(queue)
    assert counts(queue) == (0, 1, 1, 2)
    assert queue.server.hgetall(queue.key("cancel")) == {}


def test_a_member_whose_worker_dies_after_the_cancel_does_not_run_again(queue: QueueOnServer) -> None:
    open_batch(queue, plan_of(single("one")))
    (job,) = queue.read()
    cancel_batch(queue)
    walk(queue)
    queue.recover(job)
    (again,) = queue.read()
    assert (again.id, again.is_stopping) == ("one", True)


def test_a_batch_with_many_members_is_cancelled_without_a_pause(queue: QueueOnServer) -> None:
    waiting = [single(f"waits-{n}", delay_ms=HOUR) for n in range(3_000)]
    open_batch(queue, plan_of(single("bad"), *waiting))
    (running,) = queue.read()
    assert queue.fail(running)
    one = make_relay(queue)
    while drive(one.relay("orders")).again_in == 0.0:
        pass
    assert counts(queue) == (0, 0, 1, 3_000)


class CancelsBatch(Mortal):
    """Cancels the batch before a round trip, as another program can, and may then die as a Mortal."""

    def __init__(self, queue: QueueOnServer, before: int, trips: int = 1_000) -> None:
        super().__init__(queue.executor, trips, loses_reply=False)
        self._queue = queue
        self._before = before

    async def run_all(self, calls: Sequence[Call[T]], *, block: float = 0.0) -> list[T | BackendError]:
        if not self._before:
            cancel_batch(self._queue)
            walk(self._queue)
        self._before -= 1
        return await super().run_all(calls, block=block)


@pytest.mark.parametrize("lives_for", [1, 2, 3, 1_000])
@pytest.mark.parametrize("before", range(7))
def test_a_cancel_while_the_relay_sends_a_link_leaves_no_link_in_its_queue(
    queue: QueueOnServer, before: int, lives_for: int
) -> None:
    open_batch(queue, plan_of(Chain([link("one"), link("two", delay_ms=HOUR)])))
    (job,) = queue.read()
    assert queue.ack(job)
    with suppress(Died):
        drive(make_relay(queue, executor=CancelsBatch(queue, before, before + lives_for)).relay("orders"))
    for _ in range(3):
        relay(queue)
    if ids_of(queue) == {"two"}:  # the relay had ended before the cancel
        cancel_batch(queue)
        walk(queue)
        relay(queue)
    assert (counts(queue), ids_of(queue)) == ((0, 0, 0, 1), {"finally"})


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: raw.replace(b'"chain":{"links":[', b'"chain":{"links":[1,'),
        lambda raw: raw.replace(b'{"job":{"v":1', b'{"job":{"v":7'),
    ],
    ids=["no JSON", "no chain", "no link"],
)
@pytest.mark.parametrize("ended", ["done", "failed", "cancelled"])
def test_a_member_that_cannot_be_read_counts_as_failed(
    queue: QueueOnServer, server: redis.Redis, damage: Callable[[bytes], bytes], ended: str
) -> None:
    open_batch(queue, plan_of(Chain([link("one"), link("two")])))
    (job,) = queue.read()
    damaged = damage(job.envelope)
    assert damaged != job.envelope
    server.hset(queue.key("jobs"), "one", damaged)
    ends: dict[str, Callable[[Delivery], object]] = {
        "done": queue.ack,
        "failed": queue.fail,
        "cancelled": queue.ack_stopped,
    }
    ends[ended](job)
    relay(queue)
    if ended == "cancelled":
        assert (counts(queue), ids_of(queue)) == ((0, 0, 0, 1), {"finally"})
    else:
        assert counts(queue) == (0, 0, 1, 0)
        assert envelope_at(queue, "catch")["headers"]["delayq-failed-id"] == "one"
        assert server.hgetall(queue.keys.of_batch("b1", "broken")) == {"one": "orders one"}


def test_a_batch_that_another_program_has_damaged_stops_no_other(
    queue: QueueOnServer, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = Link(batch=BatchPlan("b2", members=[Chain([Link(job=msgspec.Raw(b'{"v":1}'))])]))
    open_batch(queue, plan_of(single("one")))
    server.hset(queue.keys.of_batch("b1", "plan"), "plan", "rubbish")
    queue.schedule("first", envelope=chained("first", damaged), now="")
    queue.schedule("other", envelope=chained("other", link("second")), now="")
    for job in queue.read():
        assert queue.ack(job)
    with caplog.at_level(logging.ERROR):
        assert relay(queue) == Relayed(3)
    assert ids_of(queue) == {"second"}
    assert len([record for record in caplog.records if "cannot be read" in record.message]) == 3


def test_a_member_that_cannot_be_cancelled_does_not_delay_other_chains(
    queue: QueueOnServer, server: redis.Redis
) -> None:
    clock = Clock()
    open_batch(queue, plan_of(single("bad"), single("waits", queue="broken", delay_ms=HOUR), single("runs")))
    jobs = queue.keys.of_queue("broken", "jobs")
    server.set(jobs, "another type")
    running = {job.id: job for job in queue.read()}
    assert queue.fail(running["bad"])
    for _ in range(PAGE):
        server.xadd(queue.key("outbox"), {"ended": "done", "job": "{}"})
    assert queue.ack(start(queue, chained("last", link("behind", delay_ms=HOUR)), "last"))
    relay = make_relay(queue, clock=clock)
    one, two = drive(relay.relay("orders")), drive(relay.relay("orders"))
    assert isinstance(one.error, CallRefused) and two.error is None
    assert {"behind", "catch"} <= ids_of(queue)
    server.delete(jobs)
    clock.now += 1
    assert drive(relay.relay("orders")).error is None
    assert counts(queue) == (1, 0, 1, 1)


def test_a_batch_in_a_chain_goes_on_after_its_last_member(queue: QueueOnServer) -> None:
    inner = BatchPlan("b1", members=[single("m1"), single("m2")], before=[link("before")])
    assert queue.ack(start(queue, chained("first", Link(batch=inner), link("last"))))
    relay(queue)
    assert ids_of(queue) == {"before", "m1", "m2"}
    for job in queue.read():
        assert queue.ack(job)
    relay(queue)
    assert ids_of(queue) == {"last"}


@pytest.mark.parametrize("allows", [False, True])
def test_a_failed_batch_in_a_chain_sends_catch_or_goes_on_if_failures_are_allowed(
    queue: QueueOnServer, allows: bool
) -> None:
    inner = BatchPlan("b1", members=[single("m1")], allow_failures=allows)
    assert queue.ack(start(queue, chained("first", Link(batch=inner), link("last"), catch=[link("of-chain")])))
    relay(queue)
    (job,) = queue.read()
    assert queue.fail(job)
    relay(queue)
    assert ids_of(queue) == {"m1", "last" if allows else "of-chain"}


@pytest.mark.parametrize("loses_reply", [False, True], ids=["before the call", "before its reply"])
def test_a_relay_that_dies_at_any_call_sends_everything_once(
    queue: QueueOnServer, server: redis.Redis, loses_reply: bool
) -> None:
    inner = BatchPlan("b2", members=[single("m1"), single("m2")], before=[link("before")])
    for trips in range(30):
        server.flushdb()
        open_batch(
            queue, plan_of(single("one"), single("bad"), single("waits", delay_ms=HOUR), after=Chain([link("no")]))
        )
        queue.schedule("first", envelope=chained("first", Link(batch=inner), link("last")), now="")
        members = {job.id: job for job in queue.read()}
        assert queue.ack(members["first"])
        assert queue.ack(members["one"])
        assert queue.fail(members["bad"])
        mortal = Mortal(queue.executor, trips, loses_reply=loses_reply)
        has_died = False
        try:
            drive(make_relay(queue, executor=mortal).relay("orders"))
        except Died:
            has_died = True
        for _ in range(3):
            relay(queue)
        assert ids_of(queue) == {"bad", "before", "m1", "m2", "catch", "finally"}, trips
        assert int(server.hget(queue.key("meta"), "scheduled_total") or 0) == 4 + 2 + 3, trips
        assert server.xlen(queue.key("outbox")) == 0
        assert counts(queue) == (0, 1, 1, 1)
        if not has_died:
            return
    pytest.fail("the relay needs more than 30 round trips")


def test_a_job_that_was_sent_is_forgotten_an_hour_after_its_record(queue: QueueOnServer, server: redis.Redis) -> None:
    assert queue.ack(start(queue, chained("first", link("second"))))
    relay(queue)
    (token,) = server.keys("*:once:orders.*")
    assert 3_500_000 < server.pttl(token) <= 3_600_000


def test_rewrite_changes_the_chain_of_a_held_job_only(queue: QueueOnServer) -> None:
    job = start(queue, chained("first", link("second")))
    changed = chained("first", link("other"), link("second"))
    for entry in ("1-1", job.entry):
        queue.run(delivery.rewrite(queue.keys, "orders", [Acked("orders", "first", entry, envelope=changed)]))
        expected = ["second"] if entry == "1-1" else ["other", "second"]
        assert [one["job"]["id"] for one in envelope_at(queue, "first")["chain"]["links"]] == expected
    assert queue.ack(job)
    relay(queue)
    assert ids_of(queue) == {"other"}
