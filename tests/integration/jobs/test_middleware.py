"""What surrounds handlers: in which order, around which, and what it may decide."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from delayq import (
    Discard,
    Fail,
    Job,
    Middleware,
    Next,
    Retry,
    RunningJob,
    Snooze,
    dispatch,
    use_middleware,
)
from delayq.core.errors import ConfigError
from delayq.core.states import State
from tests.support.around import (
    KINDS,
    Marking,
    Marks,
    async_function,
    async_manager,
    declare,
    handle_class,
    manager_class,
    plain_function,
    plain_manager,
)
from tests.support.station import Station
from tests.support.tape import Tape

pytestmark = pytest.mark.usefixtures("manager")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "form", [plain_function, async_function, plain_manager, async_manager, manager_class, handle_class]
)
def test_every_form_surrounds_every_handler_it_can(station: Station, kind: str, form: Any) -> None:
    marks: Marks = station.tape()
    if kind == "async class" and form is plain_function:
        with pytest.raises(ConfigError, match=r"plain and cannot wait for the async job 'act'"):
            declare(kind, marks, [form(marks)])
        return
    send = declare(kind, marks, [form(marks)])
    send()
    station.drain()
    job_id = send()  # only now: async jobs of one batch run side by side
    station.drain()
    assert marks == ["+", "run", "-1"] * 2
    assert station.ends(job_id) == ["done"]


@pytest.mark.parametrize("kind", ["class", "async class"])
def test_global_then_declared_then_the_jobs_own(station: Station, kind: str) -> None:
    marks: Marks = station.tape()
    use_middleware(Marking(marks, "one"), Marking(marks, "two"))

    class Base(Job, middleware=[Marking(marks, "declared")]):
        def middleware(self) -> Sequence[Middleware]:
            return [Marking(marks, "own")]

    class Plain(Base):
        def handle(self) -> None:
            marks.append("run")

    class Async(Base):
        async def handle(self) -> None:
            marks.append("run")

    (Plain if kind == "class" else Async)().dispatch()
    station.drain()
    names = ["one", "two", "declared", "own"]
    end = "" if kind == "class" else " async"
    assert marks == [f"+{name}{end}" for name in names] + ["run"] + [f"-{name}{end}" for name in reversed(names)]


def test_global_middleware_may_come_later(station: Station) -> None:
    marks: Marks = station.tape()
    send = declare("function", marks, ())
    send()
    station.drain()
    use_middleware(Marking(marks, "late"))
    send()
    station.drain()
    assert marks == ["run", "+late", "run", "-late"]


def test_a_class_that_declares_its_own_replaces_what_it_would_inherit(station: Station) -> None:
    marks: Marks = station.tape()

    class Base(Job, middleware=[Marking(marks, "base")]):
        def handle(self) -> None:
            marks.append("run")

    class Bare(Base, middleware=()):
        pass

    Bare().dispatch()
    station.drain()
    assert marks == ["run"]


def test_it_sees_the_job_and_its_delivery(station: Station) -> None:
    seen: Tape[Any] = station.tape()

    def look(job: RunningJob, next: Next) -> Any:
        seen.append((job.name, dict(job.fields), type(job.instance).__name__, job.context.id, job.context.attempt))
        assert job.context is job.context
        return next(job)

    class Note(Job, name="note", middleware=[look]):
        text: str = "-"

        def handle(self) -> None: ...

    ref = Note(text="hello").dispatch()
    station.drain()
    assert seen == [("note", {"text": "hello"}, "Note", ref.id, 1)]


def test_what_it_returns_is_the_result(station: Station) -> None:
    def double(job: RunningJob, next: Next) -> Any:
        return 2 * next(job)

    job_id = declare("function", [], [double], retention="1h")()
    station.drain()
    assert station.job(job_id).result == 2


SIGNALS = [
    (Snooze("1h"), State.SCHEDULED, 0),
    (Retry("1h"), State.SCHEDULED, 1),
    (Fail("no stock"), State.FAILED, 1),
    (Discard(), State.ABSENT, 0),
    (ValueError("broken"), State.SCHEDULED, 1),
]


@pytest.mark.parametrize("kind", ["class", "async class"])
@pytest.mark.parametrize(("error", "state", "attempts"), SIGNALS, ids=lambda value: type(value).__name__)
def test_it_may_raise_what_a_handler_may(
    station: Station, kind: str, error: Exception, state: State, attempts: int
) -> None:
    marks: Marks = station.tape()

    class Stop:
        def __init__(self, job: RunningJob) -> None: ...

        def __enter__(self) -> None:
            raise error

        def __exit__(self, *error: object) -> None: ...

    job_id = declare(kind, marks, [Stop], backoff="1h")()
    station.drain()
    assert (station.state(job_id), marks) == (state, [])
    if state is not State.ABSENT:
        assert station.job(job_id).attempts == attempts


def test_a_payload_that_does_not_fit_reaches_no_middleware(station: Station) -> None:
    marks: Marks = station.tape()
    declare("function", marks, [Marking(marks, "one")], tries=1)
    job_id = dispatch("act", {"number": "many"}).id
    station.drain()
    assert (station.state(job_id), marks) == (State.FAILED, [])


@pytest.mark.parametrize("wrong", [7, "Timed", object(), lambda: 1, dict])
def test_what_is_no_middleware_is_refused(station: Station, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"is no middleware"):
        use_middleware(wrong)


def test_a_member_called_middleware_must_be_the_method(station: Station) -> None:
    with pytest.raises(ConfigError, match="name of an option"):

        class Wrong(Job):
            middleware = ()  # type: ignore[assignment]

            def handle(self) -> None: ...


def test_plain_middleware_around_async_jobs_is_refused(station: Station) -> None:
    declare("async class", [], ())
    with pytest.raises(ConfigError, match=r"plain_function.* cannot wait for the async job 'act'"):
        use_middleware(plain_function([]))
    with pytest.raises(ConfigError, match=r"cannot wait for the async middleware"):
        declare("method", [], [plain_function([]), async_function([])])


async def sync(kind: type[Job], *, awaited: bool) -> Any:
    if awaited:
        return (await kind().adispatch_sync()).result
    return (await asyncio.to_thread(kind().dispatch_sync)).result


@pytest.mark.parametrize("awaited", [False, True])
async def test_it_surrounds_jobs_that_run_here_too(station: Station, awaited: bool) -> None:
    marks: Marks = station.tape()
    use_middleware(Marking(marks, "one"))

    class Plain(Job):
        def handle(self) -> int:
            return 1

    class Async(Job):
        async def handle(self) -> int:
            return 2

    assert [await sync(kind, awaited=awaited) for kind in (Plain, Async)] == [1, 2]
    assert marks == ["+one", "-one", "+one async", "-one async"]


async def test_a_plain_handler_in_async_middleware_does_not_hold_up_the_callers_loop(station: Station) -> None:
    threads: list[int] = []

    class Plain(Job, middleware=[async_function([])]):
        def handle(self) -> None:
            threads.append(threading.get_ident())

    await Plain().adispatch_sync()
    assert threads != [threading.get_ident()]
