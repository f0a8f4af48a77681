"""Mistakes of people who come from Celery, RQ or Dramatiq: each of them says at once what to write instead."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from delayq import ConfigError, InvalidInput, Job, Manager, batch, chain, dispatch_many, job
from delayq.jobs import registry
from delayq.jobs.registry import load_app
from delayq.testing import run_job


@pytest.fixture
def close(manager: Manager) -> type[Any]:
    class CloseOrder(Job, name="order.close"):
        order_id: int

        def handle(self) -> None: ...

    return CloseOrder


def warned(act: Callable[[], object]) -> list[str]:
    """The warnings of `act`, what it left behind included."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
        gc.collect()
    assert all(one.category is ResourceWarning for one in caught)
    return [str(one.message) for one in caught]


def test_a_dispatch_that_is_not_sent_warns_with_the_call_to_make(close: Any, caplog: pytest.LogCaptureFixture) -> None:
    [text] = warned(lambda: close(order_id=1).delay("15m"))
    assert "'order.close'" in text
    assert "was not sent" in text
    assert ".dispatch()" in text
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [("WARNING", text)]


def test_the_warning_names_the_line_of_the_caller(close: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        close(order_id=1).on_queue("vip").delay("15m")
    assert [one.filename for one in caught] == [__file__]


def test_a_job_of_a_function_that_is_not_sent_warns(manager: Manager) -> None:
    @job("mail.send")
    def send(to: str) -> None: ...

    [text] = warned(lambda: send.job(to="ann"))
    assert "'mail.send'" in text


@pytest.mark.parametrize("make", [chain, lambda one: batch([one])], ids=["chain", "batch"])
def test_a_chain_or_a_batch_that_is_not_sent_warns_once(close: Any, make: Callable[[Any], Any]) -> None:
    [text] = warned(lambda: make(close(order_id=1).delay("15m")).on_queue("vip"))
    assert "was not sent" in text
    assert ".dispatch()" in text


def test_what_is_sent_does_not_warn(close: Any) -> None:
    def reused() -> None:
        urgent = close(order_id=1).on_queue("vip")
        urgent.delay("15m").dispatch()
        urgent.delay("30m").tags("second").dispatch()

    def verbs() -> None:
        close(order_id=1).delay("1m").dispatch_sync()
        run_job(close(order_id=1).delay("1m"))
        dispatch_many([close(order_id=1).delay("1m")])

    assert warned(reused) == []
    assert warned(verbs) == []
    assert warned(lambda: close(order_id=1)) == []
    assert warned(lambda: close(order_id=1).dispatch(delay="15m")) == []


async def test_what_is_sent_awaited_does_not_warn(close: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await close(order_id=1).delay("15m").adispatch()
        gc.collect()


def test_what_is_part_of_a_chain_or_a_batch_that_is_sent_does_not_warn(close: Any) -> None:
    def whole() -> None:
        first = chain(close(order_id=1).delay("1m"), batch([close(order_id=2).on_queue("vip")]))
        run = first.catch(close(order_id=3).delay("1s"))
        run.dispatch()

    def many() -> None:
        with pytest.raises(ConfigError):
            batch([chain(close(order_id=1).delay("1m"))], then=close(order_id=2).delay("1s")).dispatch()

    assert warned(lambda: chain(close(order_id=1).delay("1m"), close(order_id=2)).dispatch()) == []
    assert warned(whole) == []
    assert warned(many) == []


def test_what_lives_as_long_as_its_process_does_not_warn(tmp_path: Path) -> None:
    """A dispatch at the top of a module, used again and again by those who need it, also by a forked worker."""
    program = """
import os
from delayq import Job

class Tell(Job):
    def handle(self): ...

LATER = Tell().delay("15m")
if (child := os.fork()) == 0:
    del LATER
    os._exit(0)
os.waitpid(child, 0)
"""
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=50, check=True
    )
    assert told.stderr == ""


def test_what_was_refused_does_not_warn(close: Any) -> None:
    def refused() -> None:
        with pytest.raises(InvalidInput):
            close(order_id=1).delay("15m").dispatch(tris=3)
        with pytest.raises(InvalidInput):
            close(order_id=1).delay("15 minuets").dispatch()

    assert warned(refused) == []


def boom(*_: object) -> str:
    raise LookupError("no such order")


def caught(act: Callable[[], None]) -> str:
    try:
        act()
    except (LookupError, InvalidInput) as error:
        return str(error)
    return ""


def caught_without_a_name(act: Callable[[], None]) -> None:
    try:
        act()
    except (LookupError, InvalidInput):
        gc.collect()


def suppressed(act: Callable[[], None]) -> None:
    with contextlib.suppress(LookupError, InvalidInput):
        act()


@pytest.mark.parametrize("way", [caught, caught_without_a_name, suppressed])
def test_an_exception_before_the_verb_is_told_alone(
    close: Any, way: Callable[[Callable[[], None]], object], caplog: pytest.LogCaptureFixture
) -> None:
    """What ends the sentence is that exception; a warning beside it would name a call that was there."""

    def inside_the_sentence() -> None:
        close(order_id=1).delay("15m").on_queue("vip").dispatch(id=boom())

    def between_two_lines() -> None:
        later = close(order_id=1).delay("15m")
        boom(later)
        later.dispatch()

    def by_delayq_itself() -> None:
        close(order_id=1).delay("15m").with_headers({"trace": 7}).dispatch()

    def in_a_chain() -> None:
        chain(close(order_id=1).delay("1m")).on_queue(boom()).dispatch()

    for act in (inside_the_sentence, between_two_lines, by_delayq_itself, in_a_chain):
        assert warned(lambda act=act: way(act)) == [], act.__name__  # type: ignore[misc]
    assert caplog.records == []


async def test_an_exception_before_the_verb_is_told_alone_in_a_coroutine(
    close: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def between_two_lines() -> None:
        later = close(order_id=1).delay("15m")
        boom(later)
        await later.adispatch()

    with contextlib.suppress(LookupError):
        await between_two_lines()
    gc.collect()
    assert caplog.records == []


def test_a_forgotten_verb_still_warns_where_no_exception_is(close: Any) -> None:
    def kept_until_the_end() -> None:
        later = close(order_id=1).delay("15m")
        with contextlib.suppress(LookupError):
            boom(later)

    def made_anew() -> None:
        later = close(order_id=1).delay("15m")
        later = close(order_id=2).delay("15m")
        later.dispatch()

    assert len(warned(kept_until_the_end)) == 1
    assert len(warned(made_anew)) == 1


@pytest.mark.parametrize("verb", ["dispatch", "adispatch", "delay", "on_queue", "dispatch_after_response", "tags"])
def test_a_verb_of_the_class_says_to_make_a_job_first(close: Any, verb: str) -> None:
    """`Close.delay(order_id=1)` is Celery's, `Close.dispatch(order_id=1)` Laravel's."""
    with pytest.raises(TypeError) as raised:
        getattr(close, verb)(order_id=1, tries=3)
    assert str(raised.value) == (
        f"CloseOrder.{verb} was called on the class, which is no job yet; make one with its fields and send that: "
        "CloseOrder(order_id=...).dispatch()."
    )
    with pytest.raises(TypeError, match=r"send that: CloseOrder\(\.\.\.\)\.dispatch\(\)\."):
        getattr(close, verb)(1)


def test_a_verb_of_the_class_still_takes_a_job(close: Any) -> None:
    assert close.dispatch(close(order_id=1), queue="vip").queue == "vip"
    assert close.delay.__doc__ == Job.delay.__doc__


def test_a_job_decorator_without_a_name_is_a_type_error() -> None:
    with pytest.raises(TypeError) as raised:

        @job()  # type: ignore[call-arg]  # what is tested
        def send(to: str) -> None: ...

    assert str(raised.value) == '@job() needs the name of the job, as in @job("order.close").'


def test_a_bare_job_decorator_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r'@job needs the name of the job: @job\("…"\)') as raised:

        @job  # type: ignore[arg-type]  # what is tested
        def send(to: str) -> None: ...

    assert "send" in str(raised.value)


def test_a_name_that_is_no_text_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="@job needs the name of the job"):
        job(7)  # type: ignore[arg-type]  # what is tested


def test_a_job_class_with_its_own_init_is_refused() -> None:
    with pytest.raises(ConfigError, match="defines __init__") as raised:

        class Export(Job, name="export"):
            def __init__(self, number: int) -> None:
                self.number = number

            def handle(self) -> None: ...

    assert "number: int" in str(raised.value) or "field" in str(raised.value)
    assert "export" not in registry.current().names()


class Counted:
    """A mixin that thinks it is constructed."""

    def __init__(self) -> None:
        self.counted = 0


@dataclasses.dataclass(kw_only=True)
class Addressed:
    """A mixin whose constructor was made of its fields."""

    to: str


class Named(Protocol):
    """A protocol, which has a constructor of its own that nobody wrote."""

    to: str


def test_a_mixin_with_its_own_init_is_refused_by_name() -> None:
    for bases in ((Counted, Job), (Job, Counted)):
        with pytest.raises(ConfigError) as raised:
            type("Export", bases, {"handle": lambda self: None})
        assert "Export inherits from" in raised.value.message
        assert "test_silent_mistakes.Counted, which defines __init__" in raised.value.message
    assert "Export" not in registry.current().names()


def test_a_mixin_of_fields_or_a_protocol_is_no_such_mixin(manager: Manager) -> None:
    class Send(Job, Addressed, Named, name="mail.send"):
        text: str = ""

        def handle(self) -> None: ...

    ref = Send(to="ann", text="hello").dispatch()
    assert ref.name == "mail.send"


@pytest.mark.parametrize("verb", ["dispatch", "adispatch", "delay", "on_queue", "apply_async", "send", "enqueue"])
def test_a_job_function_names_the_call_to_make(manager: Manager, verb: str) -> None:
    @job("flaky")
    def flaky(number: int) -> None: ...

    with pytest.raises(AttributeError) as raised:
        getattr(flaky, verb)
    assert "flaky.job(…).dispatch()" in str(raised.value)
    with pytest.raises(AttributeError, match=r"no attribute 'nothing_of_the_kind'$"):
        flaky.nothing_of_the_kind  # type: ignore[attr-defined]  # noqa: B018  # what is tested


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("from delayq import no_such_thing", "cannot import name 'no_such_thing' from 'delayq'"),
        ("import no_such_module_here", "there is no module 'no_such_module_here'"),
    ],
)
def test_an_import_error_of_the_application_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str
) -> None:
    name = "app_" + said.split("'")[1]
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError) as raised:
        load_app(name)
    assert said in raised.value.message
