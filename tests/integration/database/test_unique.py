"""Unique and debounced jobs in a database: who is let in, and when a key is free again; on each kind of database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.orm import Session

from delayq import Conflict, Debounce, Fail, Unique, dispatch
from delayq.core.errors import LockNotFound
from delayq.core.spec import JobSpec
from delayq.core.states import Answer, OnConflict, State
from delayq.core.unique import Until
from delayq.jobs.chain import chain
from delayq.jobs.dispatch import named
from tests.integration.database.conftest import on_sqlite
from tests.support.database_station import DatabaseStation
from tests.support.station import QUEUE
from tests.support.steps import Steps
from tests.support.waiting import wait_until


def owners(ledger: DatabaseStation) -> list[str]:
    return [view.owner for view in ledger.client.locks.all()]


def later(name: str = "act", **said: Any) -> Any:
    return dispatch(name, **{"delay": "1h", "unique": "k", **said})


def test_a_second_one_is_told_who_owns_the_key(ledger: DatabaseStation) -> None:
    first, second, other = later(id="a"), later("other", id="b"), later(id="c", unique="another")
    assert (first.outcome, second.outcome, other.outcome) == (Answer.CREATED, Answer.KEPT, Answer.CREATED)
    assert (second.id, second.state) == ("a", State.SCHEDULED)
    with pytest.raises(Conflict, match="'a'"):
        later(id="d", on_conflict="error")
    with pytest.raises(Conflict, match="'a'"):
        later(id="a", on_conflict="error")
    assert later(id="a", unique="another").outcome is Answer.KEPT, "its id is taken, and so it takes no other key"
    assert later(queue="mails", id="e").outcome is Answer.CREATED, "a key belongs to a queue"
    assert ledger.state("b") is State.ABSENT


@on_sqlite
@pytest.mark.parametrize("how", ["cancel", "clear", "run", "fail", "replace"])
def test_every_end_frees_it(ledger: DatabaseStation, steps: Steps, how: str) -> None:
    first = named("step", {"name": "a", "does": "give up" if how == "fail" else ""}).having(unique="k", id="a")
    first.having(delay="0s" if how in ("run", "fail") else "1h").dispatch()
    assert owners(ledger) == ["a"]
    if how == "cancel":
        assert ledger.client.cancel("a") is Answer.CANCELLED
    elif how == "clear":
        assert ledger.client.clear(QUEUE) == 1
    elif how == "replace":
        assert later(id="a", unique="another", on_conflict="replace").outcome is Answer.REPLACED
        assert later(id="x", unique="another").id == "a"
    else:
        ledger.drain()
    assert owners(ledger) == (["a"] if how == "replace" else [])
    assert later(id="b").outcome is Answer.CREATED


@on_sqlite
def test_a_retry_takes_it_again_or_says_who_has_it(ledger: DatabaseStation, steps: Steps) -> None:
    steps("a", "give up", unique="k", id="a").dispatch()
    ledger.drain()
    later(id="b")
    again = ledger.retry("a")
    assert isinstance(again.error, Conflict)
    assert "'b'" in str(again.error)
    assert ledger.state("a") is State.FAILED
    ledger.client.cancel("b")
    assert ledger.retry("a").error is None
    assert (later(id="c").id, ledger.state("a"), ledger.client.failed().count(QUEUE)) == ("a", State.READY, 0)


def test_until_start_the_next_one_is_let_in_while_it_runs(ledger: DatabaseStation) -> None:
    began, go, key = ledger.flag(), ledger.flag(), Unique("k", until="start")

    def blocks() -> None:
        began.set()
        assert go.wait(30)

    ledger.handles("act", blocks)
    first = dispatch("act", unique=key)
    assert (dispatch("act", unique=key).id, ledger.client.locks.all()[0].until) == (first.id, Until.START)
    with ledger.working():
        assert began.wait(30)
        second = later(unique=key)
        assert (second.outcome, later(unique=key).id) == (Answer.CREATED, second.id)
        go.set()
        ledger.until_gone([first.id])
    assert owners(ledger) == [second.id]


def test_a_window_outlives_its_job_and_ends_by_itself(ledger: DatabaseStation, steps: Steps) -> None:
    key = Unique("k", until="window", window="1h")
    first = named("step", {"name": "a"}).having(unique=key).dispatch()
    ledger.drain()
    assert dispatch("step", unique=key).id == first.id
    [lock] = ledger.client.locks.all()
    assert (lock.until, lock.state, lock.owner) == (Until.WINDOW, State.ABSENT, first.id)
    short = Unique("s", until="window", window="300ms")
    assert dispatch("step", unique=short, delay="1h").outcome is Answer.CREATED
    wait_until(lambda: dispatch("step", unique=short, delay="1h").outcome is Answer.CREATED, what="it has ended")


def test_the_last_of_many_dispatches_runs(ledger: DatabaseStation, steps: Steps) -> None:
    quiet = Debounce("1h", max_wait="2h")
    first, second = (dispatch("step", {"name": name}, debounce=quiet) for name in "ab")
    assert (first.outcome, second.outcome, second.instead_of) == (Answer.CREATED, Answer.DEBOUNCED, first.id)
    assert (ledger.state(first.id), ledger.state(second.id)) == (State.ABSENT, State.SCHEDULED)
    assert ledger.client.run_now(second.id).outcome is Answer.READY
    ledger.drain()
    third = dispatch("step", {"name": "c"}, debounce=quiet)
    assert (third.outcome, steps.ran) == (Answer.CREATED, ["b"])
    hurried = [dispatch("step", {"name": "d"}, debounce=Debounce("1h", max_wait="1h", key="x")) for _ in range(2)]
    assert (hurried[0].due_ms or 0) >= (hurried[1].due_ms or 0), "not longer than an hour after the first"


def test_two_hundred_at_once_are_one_job(ledger: DatabaseStation) -> None:
    def send(n: int) -> Any:
        spec = JobSpec(name="act", queue=QUEUE, unique=f"k{n % 4}", delay="1h")
        return ledger.connection.schedule_many([spec] * 5, OnConflict.KEEP)

    with ThreadPoolExecutor(8) as pool:
        refs = [ref for some in pool.map(send, range(40)) for ref in some]
    created = [ref.id for ref in refs if ref.outcome is Answer.CREATED]
    assert len(created) == 4
    assert {ref.id for ref in refs} == set(created) == set(owners(ledger))
    assert ledger.connection.broker.depth(QUEUE).delayed == 4


@on_sqlite
def test_a_key_is_taken_when_the_transaction_commits(ledger: DatabaseStation) -> None:
    with Session(ledger.engine) as session:
        later(id="a", within=session)
        session.rollback()
        assert later(id="b", within=session).outcome is Answer.CREATED
        session.commit()
    assert (later(id="c").id, owners(ledger)) == ("b", ["b"])


@on_sqlite
def test_a_lock_that_nobody_owns_keeps_nobody_out_and_is_swept(ledger: DatabaseStation, steps: Steps) -> None:
    """As when PHP has run the job, or somebody has emptied the table."""
    later(id="a")
    with ledger.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM jobs")
    assert [(view.owner, view.state) for view in ledger.client.locks.all()] == [("a", State.ABSENT)]
    broker = ledger.connection.broker
    broker.database.write(lambda connection: broker.locking.sweep(connection, QUEUE, broker.now_ms()))
    assert owners(ledger) == []
    assert later(id="b").outcome is Answer.CREATED


@on_sqlite
def test_a_key_is_freed_by_hand(ledger: DatabaseStation) -> None:
    later(id="a")
    [lock] = ledger.client.locks.all()
    assert ledger.client.locks.get(lock.lock) == lock
    assert (lock.name, lock.state, lock.queue) == ("act", State.SCHEDULED, QUEUE)
    assert ledger.client.locks.free(lock.lock, reason="moved") == lock
    with pytest.raises(LockNotFound, match="Nobody holds"):
        ledger.client.locks.free(lock.lock, reason="moved")
    assert later(id="b").outcome is Answer.CREATED


@on_sqlite
def test_a_link_has_no_key_of_its_own_but_the_first_one_may(ledger: DatabaseStation, steps: Steps) -> None:
    ref = chain(steps("a", unique="k"), steps("b")).dispatch()
    assert owners(ledger) == [ref.id]
    ledger.drain()
    assert (steps.ran, owners(ledger)) == (["a", "b"], [])


@on_sqlite
def test_a_handler_that_fails_frees_it_for_the_next(ledger: DatabaseStation) -> None:
    def fails() -> None:
        raise Fail("no")

    ledger.handles("fails", fails)
    assert dispatch("fails", unique="k").outcome is Answer.CREATED
    ledger.drain()
    assert dispatch("fails", unique="k").outcome is Answer.CREATED
