"""A chain in a batch that grows while it runs, in the transaction that settles the link; on each kind of database."""

from __future__ import annotations

from typing import Any

from delayq import JobContext
from delayq.core.states import State
from delayq.jobs.batch import batch, find_batch
from delayq.jobs.chain import chain
from delayq.jobs.dispatch import named
from tests.integration.database.conftest import on_sqlite
from tests.support.database_station import DatabaseStation
from tests.support.members import numbers
from tests.support.steps import QUEUES, Steps


def work(ledger: DatabaseStation) -> Any:
    return ledger.working(queues=QUEUES, processes=1, threads=2)


def test_new_links_are_members(ledger: DatabaseStation, steps: Steps) -> None:
    def grow(context: JobContext) -> None:
        context.chain.prepend(steps("next").on_queue("mails"), batch([steps("in")]))
        context.chain.append(steps("last"))

    ledger.handles("grow", grow)
    info = batch([chain(named("grow"), steps("planned")), named("grow")], then=steps("then")).dispatch()
    with work(ledger):
        steps.until("then")
        steps.quiet()
    assert (numbers(find_batch(info.id)), find_batch(info.id).state) == ((0, 9, 0, 0), "finished")
    assert steps.counts == {"next": 2, "in": 2, "planned": 1, "last": 2, "then": 1}
    assert steps.headers("then")["delayq-batch-total"] == "9"


@on_sqlite
def test_in_a_batch_that_was_cancelled_they_are_skipped_at_once(ledger: DatabaseStation, steps: Steps) -> None:
    began, go = ledger.flag(), ledger.flag()

    def grow(context: JobContext) -> None:
        context.chain.prepend(steps("new", id="new").delay("1h"))
        began.set()
        assert go.wait(50)

    ledger.handles("grow", grow)
    info = batch([chain(named("grow"), steps("planned"))], finally_=steps("finally")).dispatch()
    with work(ledger):
        assert began.wait(50)
        ledger.client.batches.cancel(info.id)
        go.set()
        steps.until("finally")
        steps.quiet()
    assert (numbers(find_batch(info.id)), find_batch(info.id).state) == ((0, 1, 0, 2), "cancelled")
    assert (steps.ran, ledger.state("new")) == (["finally"], State.ABSENT)


@on_sqlite
def test_one_whose_id_is_another_jobs_is_skipped(ledger: DatabaseStation, steps: Steps) -> None:
    def grow(context: JobContext) -> None:
        context.chain.prepend(steps("mine", id="mine"))

    steps("other", id="mine").delay("1h").dispatch()
    ledger.handles("grow", grow)
    info = batch([chain(named("grow"), steps("planned"))], finally_=steps("finally")).dispatch()
    with work(ledger):
        steps.until("finally")
    assert (numbers(find_batch(info.id)), find_batch(info.id).state) == ((0, 1, 0, 2), "incomplete")
    assert (steps.ran, ledger.state("mine")) == (["finally"], State.SCHEDULED)
