"""Unique and debounced jobs as users write them: who is let in, what is told, when a start frees the key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from delayq import (
    Debounce,
    Discard,
    Job,
    JobDebounced,
    Release,
    Unique,
    UniqueJobSkipped,
    batch,
    chain,
    dispatch,
    dispatch_many,
    job,
    listener,
)
from delayq.core.errors import BackendUnavailable, ConfigError, Conflict, InvalidInput
from delayq.core.states import Answer, State
from delayq.core.unique import Until
from delayq.drivers.redis_limits import RedisLimits
from tests.support.around import Marks, declare
from tests.support.station import Station

pytestmark = pytest.mark.usefixtures("manager")


def invoice(**options: Any) -> type[Any]:
    class SendInvoice(Job, **{"name": "invoice.send", "delay": "1h", **options}):
        order_id: int
        by: str = "ann"

        def handle(self) -> None:
            return None

    return SendInvoice


def test_a_second_one_is_told_who_owns_the_key(station: Station) -> None:
    skipped: list[UniqueJobSkipped] = []
    listener(UniqueJobSkipped)(skipped.append)
    kind = invoice(unique=Unique(key=["order_id"]))
    first, second, other = (kind(order_id=n, by=by).dispatch() for n, by in ((1, "ann"), (1, "bob"), (2, "ann")))
    assert (first.outcome, second.outcome, other.outcome) == (Answer.CREATED, Answer.KEPT, Answer.CREATED)
    assert second.id == first.id
    assert skipped == [UniqueJobSkipped(first.id, "invoice.send", "orders")]
    with pytest.raises(Conflict, match=first.id):
        kind(order_id=1).dispatch(on_conflict="error")
    assert station.client.cancel(first.id) == Answer.CANCELLED
    assert kind(order_id=1).dispatch().outcome == Answer.CREATED


def test_what_is_said_goes_before_what_is_declared() -> None:
    kind = invoice(unique=Unique())
    assert kind(order_id=1).dispatch().outcome == Answer.CREATED
    assert kind(order_id=1).dispatch(unique="key").outcome == Answer.CREATED
    assert kind(order_id=2).dispatch(unique="key").outcome == Answer.KEPT
    assert dispatch("other", unique="key", delay="1h").outcome == Answer.KEPT, "a text is shared by all names"
    assert dispatch("invoice.send", {"order_id": 1, "by": "ann"}, unique=Unique()).outcome == Answer.KEPT


def test_a_key_of_a_function_and_of_an_instance() -> None:
    @job("act", unique=Unique(key=lambda fields: fields["user"]), delay="1h")
    def act(user: str, n: int) -> None:
        return None

    assert [act.job(user, 1).dispatch().outcome for user in ("a", "a", "b")] == ["created", "kept", "created"]
    kind = invoice(unique=Unique(key=lambda job: f"{job.order_id % 2}"))
    assert [ref.outcome for ref in dispatch_many(kind(order_id=n) for n in (1, 2, 3))] == ["created", "created", "kept"]


def test_what_cannot_be_declared() -> None:
    with pytest.raises(ConfigError, match="unique=7"):
        invoice(unique=7)
    with pytest.raises(ConfigError, match="debounce='1s'"):
        invoice(debounce="1s")
    with pytest.raises(ConfigError, match="debounce= and unique="):
        invoice(delay=None, debounce=Debounce("1s"), unique="k")
    with pytest.raises(ConfigError, match="debounce= and delay="):
        invoice(debounce=Debounce("1s"))
    kind = invoice(delay=None, debounce=Debounce("1s"))
    with pytest.raises(InvalidInput, match="is debounced"):
        chain(kind(order_id=1)).dispatch()
    with pytest.raises(InvalidInput, match="is debounced"):
        batch([kind(order_id=1)]).dispatch()
    with pytest.raises(InvalidInput, match="no id of your own"):
        kind(order_id=1).dispatch(id="mine")
    with pytest.raises(InvalidInput, match="not both"):
        invoice()(order_id=1).dispatch(unique="k", debounce=Debounce("1s"))


# -- until start -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("is_async", [False, True])
def test_until_start_the_next_one_is_let_in_while_it_runs(station: Station, is_async: bool, threads: int) -> None:
    began, go = station.flag(), station.flag()

    def blocks() -> None:
        began.set()
        assert go.wait(30)

    async def waits() -> None:
        await asyncio.to_thread(blocks)

    act = job("act", unique=Unique(until="start"))(waits if is_async else blocks)
    first = act.job().dispatch()
    assert act.job().dispatch().id == first.id
    with station.working(threads=threads):
        assert began.wait(15)
        second = act.job().dispatch(delay="1h")
        assert (second.outcome, second.id != first.id) == (Answer.CREATED, True)
        assert act.job().dispatch().id == second.id
        go.set()
        station.until_gone([first.id])
    assert [view.owner for view in station.client.locks.all()] == [second.id]


@pytest.mark.parametrize("kind", ["class", "function", "async class"])
def test_middleware_that_snoozes_leaves_the_key_alone(station: Station, kind: str) -> None:
    """The key is freed behind all middleware, right before the handler."""
    marks: Marks = station.tape()
    opened = station.flag()
    job_id = declare(
        kind, marks, [Release.unless(lambda _: opened.is_set(), delay="1h")], unique=Unique(until="start")
    )()
    station.drain()
    assert station.ends(job_id) == ["snoozed"]
    [held] = station.client.locks.all()
    assert (held.owner, held.until, held.state) == (job_id, Until.START, State.SCHEDULED)
    opened.set()
    station.client.run_now(job_id)
    station.drain()
    assert (list(marks), station.client.locks.all()) == (["run"], [])


def test_a_retry_does_not_take_the_key_again(station: Station) -> None:
    @job("act", unique=Unique(until="start"), tries=2, backoff="1h")
    def act() -> None:
        raise ValueError("once more")

    first = act.job().dispatch()
    station.drain()
    assert station.job(first.id).attempts == 1
    second = act.job().dispatch()
    assert second.outcome == Answer.CREATED
    station.client.run_now(first.id)
    station.drain()
    assert station.state(first.id) is State.FAILED
    assert station.client.retry(first.id).state is State.SCHEDULED, "not even when somebody retries it by hand"


@pytest.mark.parametrize("is_async", [False, True])
def test_where_nobody_can_be_asked_the_handler_does_not_run(
    station: Station, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    ran = station.flag()

    async def waiting() -> None:
        ran.set()

    job("act", unique=Unique(until="start"), tries=1)(waiting if is_async else ran.set)

    def away(*_: object) -> None:
        raise BackendUnavailable("gone")

    async def aaway(*_: object) -> None:
        away()

    ref = dispatch("act", unique=Unique(until="start"))
    with monkeypatch.context() as patched:
        patched.setattr(RedisLimits, "ask", away)
        patched.setattr(RedisLimits, "aask", aaway)
        station.drain()
    found = station.job(ref.id)
    assert (station.ends(ref.id), found.attempts, found.state) == (["snoozed"], 0, State.SCHEDULED)
    assert not ran.is_set()
    assert "could not be freed: gone" in station.said()
    station.client.run_now(ref.id)
    station.drain()
    assert ran.is_set()


def test_a_job_that_ends_before_its_start_frees_it_too(station: Station) -> None:
    def refuse(_: object, __: object) -> None:
        raise Discard

    act = job("act", unique=Unique(until="start"), middleware=[refuse])(lambda: None)
    act.job().dispatch()
    station.drain()
    assert station.client.locks.all() == []


# -- for a window, and debounced ---------------------------------------------------------------------------------------


def test_a_window_outlives_its_job_and_ends_by_itself(station: Station) -> None:
    station.now_ms = 1_800_000_000_000
    kind = invoice(delay=None, unique=Unique(key=["order_id"], until="window", window="1h"))
    first = kind(order_id=1).dispatch()
    station.drain()
    assert station.state(first.id) is State.ABSENT
    again = kind(order_id=1).dispatch()
    assert (again.outcome, again.id, again.state) == (Answer.KEPT, first.id, State.ABSENT)
    with pytest.raises(InvalidInput, match="unique for a window"):
        kind(order_id=1).dispatch(on_conflict="replace")


def test_the_janitor_sweeps_windows_that_are_over(station: Station) -> None:
    short, long = (Unique(until="window", window=window) for window in ("1ms", "1h"))
    for n in range(30):
        dispatch("act", n, unique=short, delay="1h")
    kept = dispatch("act", 1, unique=long, delay="1h")
    done = dispatch("act", 2, unique=Unique(), delay="1h")
    station.driver.tidy("orders")
    assert {view.owner for view in station.client.locks.all()} == {kept.id, done.id}


def test_the_last_of_many_dispatches_runs(station: Station) -> None:
    debounced: list[JobDebounced] = []
    listener(JobDebounced)(debounced.append)
    seen = station.tape()

    @job("index", debounce=Debounce("200ms", key=["user"]))
    def index(user: str, n: int) -> None:
        seen.append((user, n))

    first, second = index.job("ann", 1).dispatch(), index.job("ann", 2).dispatch()
    other, *_ = dispatch_many([index.job("bob", 1)])
    assert (first.outcome, second.outcome, other.outcome) == (Answer.CREATED, Answer.DEBOUNCED, Answer.CREATED)
    assert second.instead_of == first.id
    assert debounced == [JobDebounced(first.id, "index", "orders", second.id)]
    with station.working(mover=True):
        station.until_gone([second.id, other.id])
    assert sorted(seen) == [("ann", 2), ("bob", 1)]
    assert index.job("ann", 3).dispatch().outcome == Answer.CREATED
