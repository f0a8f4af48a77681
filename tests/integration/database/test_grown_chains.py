"""A chain in a batch that grows while it runs, in the transaction that settles the link; on each kind of database."""

from __future__ import annotations

from typing import Any

import pytest

from delayq import Conflict, JobContext
from delayq.core.states import State
from delayq.jobs.batch import batch, find_batch
from delayq.jobs.chain import chain
from delayq.jobs.dispatch import named
from delayq.jobs.plans import Member
from tests.integration.database.conftest import on_sqlite
from tests.support.database_station import DatabaseStation
from tests.support.members import numbers
from tests.support.steps import QUEUES, Steps
from tests.support.waiting import wait_until


def work(ledger: DatabaseStation) -> Any:
    return ledger.working(queues=QUEUES)


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


@on_sqlite
def test_a_link_that_has_another_members_id_is_passed_by(ledger: DatabaseStation, steps: Steps) -> None:
    refused = ledger.tape()

    def grow(context: JobContext) -> None:
        assert context.batch is not None
        with pytest.raises(Conflict) as error:
            context.batch.add(chain(steps("other", id="x"), steps("behind")))
        refused.append(str(error.value))
        context.chain.prepend(steps("other", id="x"))

    ledger.handles("grow", grow)
    members: list[Member] = [steps("x", id="x").delay("1h"), chain(named("grow"), steps("planned"))]
    info = batch(members).dispatch()
    with work(ledger):
        wait_until(lambda: find_batch(info.id).skipped, what="what stands behind it is skipped")
    assert (numbers(find_batch(info.id)), ledger.state("x")) == ((1, 1, 0, 1), State.SCHEDULED)
    assert "The id 'x' is taken by another member" in refused[0]
