"""Batches and what follows their members, written in the transaction that settles them; on each kind of database."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from delayq import Concurrency, Conflict, InvalidInput, job
from delayq.core.batches import BatchInfo
from delayq.core.errors import BatchNotFound, ConfigError
from delayq.core.states import Answer, State
from delayq.drivers.within import within
from delayq.jobs.batch import PendingBatch, afind_batch, batch, find_batch
from delayq.jobs.chain import chain
from delayq.jobs.context import JobContext
from delayq.jobs.dispatch import named
from delayq.jobs.plans import Member
from delayq.jobs.registry import using
from tests.integration.database.conftest import on_sqlite
from tests.support.database_station import DatabaseStation
from tests.support.station import QUEUE
from tests.support.steps import QUEUES, Steps
from tests.support.waiting import wait_until


def work(ledger: DatabaseStation, **options: Any) -> Any:
    return ledger.working(queues=QUEUES, **options)


def called(pending: PendingBatch, steps: Steps) -> PendingBatch:
    pending = pending.before(steps("before")).then(steps("then")).catch(steps("catch"))
    return pending.finally_(steps("finally").on_queue("mails"))


def numbers(info: BatchInfo) -> tuple[int, int, int, int]:
    return info.pending, info.done, info.failed, info.skipped


def row_of(engine: Engine, batch_id: str) -> Any:
    with engine.connect() as connection:
        return connection.execute(text("SELECT * FROM job_batches WHERE id = :id"), {"id": batch_id}).one()


def test_all_succeed_and_laravels_columns_say_so(ledger: DatabaseStation, steps: Steps) -> None:
    members: list[Member] = [steps("a"), [steps("b"), steps("c", queue="mails")], batch([steps("d")])]
    info = called(batch(members, name="three"), steps).progress(steps("progress")).dispatch()
    assert (numbers(info), info.state, info.name) == ((4, 0, 0, 0), "running", "three")
    with work(ledger):
        steps.until("then", "finally")
        steps.quiet()
    assert {name: steps.counts[name] for name in ("a", "b", "c", "d", "before", "then", "finally", "catch")} == {
        **dict.fromkeys(("a", "b", "c", "d", "before", "then", "finally"), 1),
        "catch": 0,
    }
    info = find_batch(info.id)
    assert (numbers(info), info.state, info.owner != "") == ((0, 4, 0, 0), "finished", True)
    assert steps.headers("finally")["delayq-batch-done"] == "4"
    row = row_of(ledger.engine, info.id)
    assert (row.name, row.total_jobs, row.pending_jobs, row.failed_jobs, row.failed_job_ids, row.cancelled_at) == (
        ("three", 4, 0, 0, "[]", None)
    )
    assert row.finished_at >= row.created_at > 0
    assert row.options.startswith('a:2:{s:13:"allowFailures";b:0;s:6:"delayq";s:')


def test_a_failure_cancels_what_has_not_started_and_a_retry_finishes_it(ledger: DatabaseStation, steps: Steps) -> None:
    waiting = [steps(f"w{n}", id=f"w{n}").delay("1h") for n in range(3)]
    ready = ledger.flag()

    def flaky() -> None:
        if not ready.is_set():
            raise ValueError("not yet")

    ledger.handles("flaky", flaky)
    members: list[Member] = [named("flaky").having(id="bad"), *waiting, [steps("good"), steps("later").delay("1h")]]
    info = called(batch(members), steps).dispatch()
    with work(ledger):
        steps.until("catch", "finally")
        assert find_batch(info.id).state == "failed"
        assert (find_batch(info.id).failed, steps.counts["then"]) == (1, 0)
        assert [ledger.state(f"w{n}") for n in range(3)] == [State.ABSENT] * 3
        assert ledger.state("bad") is State.FAILED
        assert ledger.client.batches.failed(info.id) == [("bad", QUEUE)]
        ready.set()
        assert ledger.retry("bad").error is None
        wait_until(lambda: steps.counts["finally"] == 2, what="it has ended once more")
        steps.quiet()
    assert find_batch(info.id).state == "incomplete"
    assert (find_batch(info.id).failed, steps.counts["then"], steps.counts["catch"]) == (0, 0, 1)


@on_sqlite
def test_failures_may_be_allowed_and_all_are_retried_by_the_batch(ledger: DatabaseStation, steps: Steps) -> None:
    ready = ledger.flag()

    def flaky(context: JobContext) -> None:
        if not ready.is_set():
            raise ValueError("not yet")

    ledger.handles("flaky", flaky, tries=1)
    inner = batch([named("flaky"), steps("in")], allow_failures=True)
    members: list[Member] = [*(named("flaky").having(id=f"f{n}") for n in range(3)), inner, steps("good")]
    info = called(batch(members, allow_failures=True), steps).dispatch()
    with work(ledger):
        steps.until("catch", "finally")
        wait_until(lambda: find_batch(info.id).finished_ms, what="it has ended")
        assert (numbers(find_batch(info.id)), find_batch(info.id).state) == ((0, 2, 3, 0), "failed")
        ready.set()
        assert ledger.client.batches.retry(info.id) == 3
        steps.until("then")
        steps.quiet()
    assert (numbers(find_batch(info.id)), steps.counts["then"], steps.counts["finally"]) == ((0, 5, 0, 0), 1, 2)


@on_sqlite
def test_a_batch_in_a_chain(ledger: DatabaseStation, steps: Steps) -> None:
    chain(steps("a"), batch([steps("b"), steps("c")]), steps("d")).dispatch()
    with work(ledger):
        steps.until("d")
        steps.quiet()
    assert (steps.ran[0], sorted(steps.ran[1:3]), steps.ran[3:]) == ("a", ["b", "c"], ["d"])


def test_members_may_be_added_until_it_ends(ledger: DatabaseStation, steps: Steps) -> None:
    def grows(context: JobContext) -> None:
        assert context.batch is not None
        context.batch.add(steps("more"), steps("and more").on_queue("mails"))

    ledger.handles("grows", grows)
    info = batch([named("grows")], then=steps("then")).dispatch()
    with work(ledger):
        steps.until("then")
        steps.quiet()
    assert (numbers(find_batch(info.id)), steps.counts) == ((0, 3, 0, 0), {"more": 1, "and more": 1, "then": 1})
    with pytest.raises(Conflict, match="has finished"):
        ledger.connection.batches.add(info.id, [])


def test_cancelled_it_ends_with_what_runs(ledger: DatabaseStation, steps: Steps) -> None:
    began, go = ledger.flag(), ledger.flag()

    def slow() -> None:
        began.set()
        assert go.wait(30)

    ledger.handles("slow", slow)
    inner = batch([steps("in").delay("1h")], finally_=steps("in finally"))
    members: list[Member] = [[named("slow"), steps("next")], steps("waits").delay("1h"), inner]
    info = called(batch(members), steps).dispatch()
    with work(ledger, processes=1, threads=1):
        assert began.wait(30)
        assert ledger.client.batches.cancel(info.id, reason="wrong file").state == "cancelling"
        go.set()
        steps.until("finally", "in finally")
        steps.quiet()
    assert (numbers(find_batch(info.id)), find_batch(info.id).state) == ((0, 1, 0, 3), "cancelled")
    assert not {"next", "waits", "in", "then"} & set(steps.ran)


@on_sqlite
def test_what_is_taken_out_by_hand_is_skipped(ledger: DatabaseStation, steps: Steps) -> None:
    one, many = batch([steps("a", id="a").delay("1h")]).dispatch(), batch([steps("b").delay("1h")] * 1).dispatch()
    assert ledger.client.cancel("a") is Answer.CANCELLED
    assert (numbers(find_batch(one.id)), find_batch(one.id).state) == ((0, 0, 0, 1), "incomplete")
    assert ledger.client.clear(QUEUE) == 1
    assert numbers(find_batch(many.id)) == (0, 0, 0, 1)


@on_sqlite
def test_members_do_not_leave_in_a_migration(ledger: DatabaseStation, steps: Steps) -> None:
    batch([steps("a").delay("1h")]).dispatch()
    named("other", {"batch": "of cookies"}).having(delay="1h").dispatch()
    source = ledger.connection.broker.source()
    assert [source.set_aside(QUEUE, lot, 10, lambda job: "") for lot in ("one", "two")] == [1, 0]
    assert source.staying(QUEUE) == "1 belong to batches, which count them here"


@on_sqlite
def test_the_same_id_is_the_same_batch_and_an_empty_one_is_over(ledger: DatabaseStation, steps: Steps) -> None:
    for _ in range(2):
        assert numbers(batch([steps("a"), steps("b")], id="mine").dispatch()) == (2, 0, 0, 0)
    assert batch([], finally_=steps("finally")).dispatch().state == "finished"
    with work(ledger):
        steps.until("a", "b", "finally")
        steps.quiet()
    assert steps.counts == {"a": 1, "b": 1, "finally": 1}
    assert sorted(info.total for info in ledger.client.batches.list()) == [0, 2]


@on_sqlite
def test_it_is_there_when_the_transaction_commits(ledger: DatabaseStation, steps: Steps) -> None:
    with Session(ledger.engine) as session:
        with within(session):
            gone = batch([steps("a")], then=steps("then")).dispatch()
        session.rollback()
        with pytest.raises(BatchNotFound):
            find_batch(gone.id)
        with within(session):
            kept = batch([steps("b")], then=steps("then")).dispatch()
        session.commit()
    assert find_batch(kept.id).total == 1
    with work(ledger):
        steps.until("then")
        steps.quiet()
    assert steps.counts == {"b": 1, "then": 1}


@on_sqlite
async def test_awaited(ledger: DatabaseStation, steps: Steps) -> None:
    info = await batch([steps("a").delay("1h")]).adispatch()
    assert (await afind_batch(info.id)).pending == 1
    assert (await ledger.connection.abatches.cancel(info.id)).state == "cancelled"
    assert [one.id for one in await ledger.connection.abatches.list()] == [info.id]


def test_many_processes_count_every_member_once(ledger: DatabaseStation, steps: Steps) -> None:
    """Some of them are killed with what they hold."""
    tape, ended = ledger.tape(), ledger.tape()
    ledger.handles("count", lambda n: tape.append((os.getpid(), n)))
    ledger.handles("ended", lambda: ended.append(1))
    inner = [batch([named("count", {"n": 100 + 10 * b + n}) for n in range(10)]) for b in range(3)]
    members: list[Member] = [*(named("count", {"n": n}).on_queue(QUEUES[n % 3]) for n in range(60)), *inner]
    info = batch(members, then=named("ended"), finally_=named("ended")).dispatch()
    with work(ledger, processes=3):
        wait_until(lambda: len(tape) > 5, what="some have run")
        os.kill(tape[-1][0], signal.SIGKILL)
        wait_until(lambda: len(tape) > 40, what="more have run")
        os.kill(tape[-1][0], signal.SIGKILL)
        wait_until(lambda: len(ended) == 2, timeout=60, what="it has ended")
        steps.quiet()
    assert (numbers(find_batch(info.id)), find_batch(info.id).state) == ((0, 63, 0, 0), "finished")
    assert {n for _, n in tape} == {*range(60), *range(100, 130)}
    assert len(ended) == 2


@on_sqlite
def test_what_cannot_be_is_refused_before_anything_is_sent(ledger: DatabaseStation, steps: Steps) -> None:
    steps("taken", id="taken").delay("1h").dispatch()
    with pytest.raises(Conflict, match="'taken' is taken by another job"):
        batch([steps("a"), steps("b", id="taken")], id="b").dispatch()
    unique = steps("u", unique="k")
    for what in (
        batch([[steps("a"), unique]]),
        batch([steps("a")], then=unique),
        batch([batch([steps("a")], finally_=unique)]),
        chain(steps("a"), unique),
        chain(steps("a")).catch(unique),
        chain(steps("a"), batch([steps("b")], catch=unique)),
    ):
        with pytest.raises(InvalidInput, match="lets no link of a chain wait for its unique key"):
            what.dispatch()
    with pytest.raises(BatchNotFound, match="There is no batch 'b'"):
        find_batch("b")
    depth = ledger.connection.broker.depth(QUEUE)
    assert (depth.ready, depth.delayed) == (0, 1)


@on_sqlite
def test_a_handler_that_adds_what_cannot_wait_fails(ledger: DatabaseStation, steps: Steps) -> None:
    def grows(context: JobContext) -> None:
        context.chain.append(steps("u", unique="k"))

    ledger.handles("grows", grows, tries=1)
    ref = named("grows").dispatch()
    ledger.drain()
    failed = ledger.client.failed().get(ref.id)
    assert failed is not None
    assert failed.failure is not None
    assert (failed.failure.type, "lets no link wait for its key" in failed.failure.message) == (
        ConfigError.__name__,
        True,
    )


@on_sqlite
def test_a_link_that_asks_for_what_nobody_gives_is_refused(ledger: DatabaseStation, steps: Steps) -> None:
    """A limit stands in what a job declares and not in the envelope that travels; a first link was refused alone."""
    with using(ledger.registry):

        @job("limited", middleware=[Concurrency("api", 1)])
        def limited() -> None:
            """Never runs."""

    for later, why in ((limited.job(), "counts for no limit"), (steps("r", retention="1h"), "forgets a job")):
        for what in (
            chain(steps("a"), later),
            chain(steps("a")).catch(later),
            chain(steps("a"), batch([later])),
            batch([steps("a"), later]),
            batch([[steps("a"), later]]),
            batch([steps("a")], then=later),
        ):
            with pytest.raises(InvalidInput, match=f"The connection 'jobs' {why}"):
                what.dispatch()
    depth = ledger.connection.broker.depth(QUEUE)
    assert (depth.ready, depth.delayed) == (0, 0)
