"""Batches in a database: ids that others have, and what a retry brings back."""

from __future__ import annotations

from typing import Any

import pytest

from delayq import Conflict
from delayq.core.states import State
from delayq.jobs.batch import batch, find_batch
from delayq.jobs.chain import chain
from delayq.jobs.context import JobContext
from delayq.jobs.dispatch import Dispatch, named
from delayq.jobs.plans import Member
from tests.integration.database.conftest import on_sqlite
from tests.support.database_station import DatabaseStation
from tests.support.members import numbers
from tests.support.station import QUEUE
from tests.support.steps import QUEUES, Steps
from tests.support.waiting import wait_until

on_two = pytest.mark.parametrize("server_url", ["sqlite", "postgresql"], indirect=True)


class Held:
    """A job that runs until it is let go."""

    def __init__(self, ledger: DatabaseStation) -> None:
        self.began, self.go = ledger.flag(), ledger.flag()
        began, go = self.began, self.go

        def held() -> None:
            began.set()
            assert go.wait(50)

        ledger.handles("held", held)

    def __call__(self) -> Dispatch:
        return named("held")


def work(ledger: DatabaseStation) -> Any:
    return ledger.working(queues=QUEUES, processes=1, threads=2)


def another(steps: Steps, queue: str = QUEUE) -> None:
    """Somebody else's job has the id."""
    steps("other", id="mine").on_queue(queue).delay("1h").dispatch()


def untouched(ledger: DatabaseStation, queue: str = QUEUE) -> bool:
    return ledger.state("mine", queue) is State.SCHEDULED


# -- ids that others have --------------------------------------------------------------------------------------------


@on_two
@pytest.mark.parametrize("queue", [QUEUE, "mails"])
def test_a_chain_hears_that_the_id_of_a_link_is_taken(ledger: DatabaseStation, steps: Steps, queue: str) -> None:
    another(steps, queue)
    chain(steps("a"), steps("b", id="mine").on_queue(queue), steps("c")).catch(steps("caught")).dispatch()
    with work(ledger):
        steps.until("caught")
    assert steps.counts == {"a": 1, "caught": 1}
    assert steps.headers("caught")["delayq-failed-id"] == "mine"
    assert untouched(ledger, queue)


@on_two
def test_a_batch_hears_that_the_id_of_a_later_link_is_taken(ledger: DatabaseStation, steps: Steps) -> None:
    held = Held(ledger)
    batch([chain(held(), steps("b", id="mine"), steps("c"))], id="b", finally_=steps("finally")).dispatch()
    with work(ledger):
        assert held.began.wait(50)
        another(steps)
        held.go.set()
        steps.until("finally")
    info = find_batch("b")
    assert (numbers(info), info.state, steps.counts) == ((0, 1, 0, 2), "incomplete", {"finally": 1})
    assert ledger.client.batches.retry("b") == 0
    assert untouched(ledger)


@on_two
def test_a_later_batch_hears_that_the_ids_of_its_members_are_taken(ledger: DatabaseStation, steps: Steps) -> None:
    inner = batch([chain(steps("b", id="mine"), steps("c")), steps("d")], id="inner", finally_=steps("inner over"))
    batch([chain(steps("a"), inner)], id="outer", finally_=steps("finally")).dispatch()
    another(steps)
    with work(ledger):
        steps.until("finally")
    assert (numbers(find_batch("inner")), find_batch("inner").state) == ((0, 1, 0, 2), "incomplete")
    assert (numbers(find_batch("outer")), untouched(ledger)) == ((0, 1, 0, 1), True)
    assert steps.counts == {"a": 1, "d": 1, "inner over": 1, "finally": 1}


@on_two
def test_a_batch_whose_id_is_another_s_when_its_turn_comes_is_skipped(ledger: DatabaseStation, steps: Steps) -> None:
    held = Held(ledger)
    batch([chain(held(), batch([steps("a")], id="mine"), steps("c"))], id="b", finally_=steps("finally")).dispatch()
    with work(ledger):
        assert held.began.wait(50)
        batch([steps("hers").delay("1h")], id="mine").dispatch()
        held.go.set()
        steps.until("finally")
    assert (numbers(find_batch("b")), numbers(find_batch("mine"))) == ((0, 1, 0, 2), (1, 0, 0, 0))
    assert steps.counts == {"finally": 1}


@on_sqlite
def test_the_id_of_a_callback_that_is_taken_holds_nothing_up(ledger: DatabaseStation, steps: Steps) -> None:
    another(steps)
    batch([steps("a")], id="b", then=steps("then", id="mine"), finally_=steps("finally")).dispatch()
    with work(ledger):
        steps.until("finally")
    assert (numbers(find_batch("b")), steps.counts, untouched(ledger)) == (
        (0, 1, 0, 0),
        {"a": 1, "finally": 1},
        True,
    )


@on_two
def test_taken_ids_are_refused_and_nothing_was_sent(ledger: DatabaseStation, steps: Steps) -> None:
    another(steps)
    batch([steps("hers").delay("1h")], id="hers").dispatch()
    mine = steps("b", id="mine")
    for members in ([steps("a"), mine], [batch([mine])], [batch([steps("a")], id="hers")]):
        with pytest.raises(Conflict, match="nothing was sent"):
            batch(members, id="b").dispatch()
    batch([batch([steps("in").delay("1h")], id="in")], id="out").dispatch()
    with pytest.raises(Conflict, match="'in' is taken by another batch"):
        batch([steps("a")], id="in").dispatch()
    assert sorted(info.id for info in ledger.client.batches.list()) == ["hers", "in", "out"]
    assert ledger.connection.broker.depth(QUEUE).delayed == 3


@on_sqlite
def test_a_catch_that_waits_still_is_not_taken_by_itself(ledger: DatabaseStation, steps: Steps) -> None:
    """The link fails a second time, and the job that was told of the first is still there."""
    caught = steps("caught", delay="1h")
    chain(steps("bad", "give up", id="bad"), steps("b")).catch(caught).dispatch()
    with work(ledger):
        for _ in range(2):
            wait_until(lambda: ledger.state("bad") is State.FAILED, what="it has failed")
            assert ledger.retry("bad").error is None
        wait_until(lambda: ledger.state("bad") is State.FAILED, what="it has failed again")
    assert "was another job's" not in ledger.said()


# -- a retry beside a cancel -----------------------------------------------------------------------------------------


@on_two
def test_a_retry_brings_back_nothing_that_was_skipped(ledger: DatabaseStation, steps: Steps) -> None:
    """The later link is still to come when the batch goes on; it was skipped, as on Redis."""
    held, mended = Held(ledger), ledger.flag()

    def flaky(context: JobContext) -> None:
        if not mended.is_set():
            raise ValueError("not yet")

    ledger.handles("flaky", flaky, tries=1)
    members: list[Member] = [
        named("flaky"),
        chain(held(), steps("skipped"), batch([steps("skipped too")], id="inner")),
    ]
    batch(members, id="b", then=steps("then"), finally_=steps("finally")).dispatch()
    with work(ledger):
        assert held.began.wait(50)
        wait_until(lambda: find_batch("b").skipped == 2, what="the failure has skipped the links")
        mended.set()
        assert ledger.client.batches.retry("b") == 1
        wait_until(lambda: find_batch("b").done == 1, what="it has run again")
        held.go.set()
        steps.until("finally")
        steps.quiet()
    assert (numbers(find_batch("b")), find_batch("b").state) == ((0, 2, 0, 2), "incomplete")
    assert steps.counts == {"finally": 1}
