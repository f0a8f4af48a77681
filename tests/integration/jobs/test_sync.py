"""Jobs that run where they are dispatched: through JSON, the handler, the decision and the `failed` hook."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any, ClassVar

import pytest

from delayq import Discard, Fail, Job, JobContext, Retry, Snooze
from delayq.core.errors import InvalidInput, InvalidPayload, UnknownJob
from delayq.core.outcome import DeadlinePassed, Release
from delayq.core.states import State
from delayq.core.views import Fate
from delayq.jobs.dispatch import dispatch
from delayq.manager import Manager
from tests.support.station import Station

pytestmark = pytest.mark.usefixtures("manager")

SIGNALS = {"snooze": Snooze("5m"), "retry": Retry("5m"), "fail": Fail("why"), "discard": Discard()}


@pytest.fixture
def acting(station: Station) -> type[Any]:
    """A job class that does what its field says, and hears of its failures."""

    class Acting(Job, name="act", tries=5, delay="1h", queue="orders"):
        what: str = "return"
        heard: ClassVar[list[str]] = []

        def handle(self, context: JobContext) -> Any:
            if self.what in SIGNALS:
                raise SIGNALS[self.what]
            if self.what == "raise":
                raise ValueError("broken")
            return (context.attempt, context.tries, context.queue, context.token, self.what)

        def failed(self, error: BaseException) -> None:
            self.heard.append(str(error))

    return Acting


def test_the_answer_has_the_result_and_the_outcome(acting: Any, station: Station) -> None:
    ran = acting().dispatch_sync()
    assert (ran.fate, ran.result) == (Fate.DONE, (1, 1, "orders", "", "return"))
    ref = acting().on_connection("sync").dispatch(delay="1h")
    assert (ref.outcome, ref.state, ref.queue, ref.due_ms) == (Fate.DONE, State.ABSENT, "orders", None)
    assert station.client.queues() == []


@pytest.mark.parametrize(
    ("what", "fate"), [("snooze", Fate.SNOOZED), ("retry", Fate.RELEASED), ("discard", Fate.DISCARDED)]
)
def test_what_is_not_done_says_so(acting: Any, what: str, fate: Fate) -> None:
    ran = acting(what=what).dispatch_sync()
    assert ran.fate is fate
    assert acting(what=what).on_connection("sync").dispatch().outcome is fate
    assert acting.heard == []
    if what != "discard":
        assert isinstance(ran.outcome, Release)
        assert ran.outcome.delay_ms == 300_000


@pytest.mark.parametrize(("what", "error"), [("raise", ValueError), ("fail", Fail)])
def test_a_failure_is_heard_and_raised_whatever_the_tries(acting: Any, what: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        acting(what=what).dispatch_sync()
    with pytest.raises(error):
        acting(what=what).on_connection("sync").dispatch()
    assert len(acting.heard) == 2


def test_a_deadline_counts_here_too(acting: Any, manager: Manager) -> None:
    raw = b'{"v":1,"id":"a","name":"act","queue":"x","data":null,"attempts":0,"created_ms":1,"deadline_ms":1}'
    with pytest.raises(DeadlinePassed):
        manager.connection("sync").push_raw(raw)
    assert len(acting.heard) == 1


def test_it_goes_through_json_and_nobody_knows_its_name_fails(acting: Any) -> None:
    with pytest.raises(InvalidPayload, match="'what'"):
        acting(what=object()).dispatch_sync()
    with pytest.raises(UnknownJob):
        dispatch("nobody", connection="sync")


async def test_an_async_job_runs_in_this_loop_and_a_plain_one_beside_it(acting: Any) -> None:
    here = asyncio.get_running_loop()
    mark: ContextVar[str] = ContextVar("mark", default="")
    mark.set("mine")

    class Away(Job):
        async def handle(self) -> Any:
            return asyncio.get_running_loop() is here

    class Plain(Job):
        def handle(self) -> Any:
            return (threading.current_thread() is threading.main_thread(), mark.get())

    assert (await Away().adispatch_sync()).result is True
    assert (await Plain().adispatch_sync()).result == (False, "mine")
    assert (await Away().on_connection("sync").adispatch()).outcome is Fate.DONE
    with pytest.raises(InvalidInput, match="adispatch"):
        Away().dispatch_sync()
    with pytest.raises(ValueError, match="broken"):
        await acting(what="raise").adispatch_sync()
    assert acting.heard == ["broken"]


def test_an_async_job_where_no_loop_runs(station: Station) -> None:
    class Away(Job):
        async def handle(self) -> int:
            await asyncio.sleep(0)
            return 7

    assert Away().dispatch_sync().result == 7
