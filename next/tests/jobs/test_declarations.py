"""Declarations that would silently do nothing, and annotations of the context."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Optional

import pytest

from delayq import InvalidInput, Job, JobContext, handles, job
from delayq.jobs.handlers import call_failed_hook
from delayq.jobs.local_run import run
from delayq.jobs.registry import Registry
from tests.support.queue import envelope_of

REPORTS = Path(__file__).parents[1]


@pytest.fixture
def jobs() -> Registry:
    return Registry()


def test_a_job_class_whose_handle_yields_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"Export.handle is a generator function, .* Remove `yield`"):

        class Export(Job, name="declared.export"):
            def handle(self) -> Iterator[int]:
                yield 1

    with pytest.raises(InvalidInput, match="is a generator function"):

        class AsyncExport(Job, name="declared.export2"):
            async def handle(self) -> AsyncIterator[int]:
                yield 1


def test_a_method_that_yields_is_refused_unless_it_is_private(jobs: Registry) -> None:
    class Feed:
        def fire(self, context: JobContext, data: object) -> None: ...

        def _rows(self) -> Iterator[int]:
            yield 1

    handles("Feed", registry=jobs)(Feed)

    class Broken:
        def send(self, context: JobContext, data: object) -> Iterator[int]:
            yield 1

    with pytest.raises(InvalidInput, match=r"Broken.send is a generator function.*begin the name of the method with _"):
        handles("Broken", registry=jobs)(Broken)


def hidden(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate without `functools.wraps`, so that nothing shows a generator function inside."""

    def call() -> Any:
        return function()

    return call


def yields() -> Iterator[int]:
    yield 1


async def yields_later() -> AsyncIterator[int]:
    yield 1


async def returns_a_generator() -> Iterator[int]:
    return yields()


@pytest.mark.parametrize("function", [yields, yields_later, returns_a_generator])
def test_a_generator_behind_a_decorator_is_an_error_of_the_job(jobs: Registry, function: Any) -> None:
    job("feed", registry=jobs)(hidden(function))
    ran = run(envelope_of("one", name="feed"), jobs=jobs)
    assert isinstance(ran.error, TypeError)
    assert "returned a generator" in str(ran.error)
    assert "and the code of this generator did not run" in str(ran.error)


def plain(context: JobContext) -> str:
    return context.id


def optional(context: Optional[JobContext] = None) -> str:  # noqa: UP045
    return context.id if context else "none"


def union(context: JobContext | None = None) -> str:
    return context.id if context else "none"


def annotated(context: Annotated[JobContext, "x"]) -> str:
    return context.id


def nested(context: Annotated[Annotated[JobContext, "x"] | None, "y"] = None) -> str:
    return context.id if context else "none"


@pytest.mark.parametrize("function", [plain, optional, union, annotated, nested])
def test_the_context_is_given_in_each_form_of_its_annotation(jobs: Registry, function: Any) -> None:
    job("context", registry=jobs)(function)
    assert run(envelope_of("one", name="context"), jobs=jobs).result == "one"


def test_a_context_that_may_be_something_else_is_refused(jobs: Registry) -> None:
    def either(context: JobContext | int) -> None: ...

    with pytest.raises(InvalidInput, match=r"of JobContext and another type\. Annotate the context as Job"):
        job("either", registry=jobs)(either)


LATER = """
from __future__ import annotations
from typing import TYPE_CHECKING
from delayq import Job, job
from delayq.jobs.local_run import run
if TYPE_CHECKING:
    from delayq import JobContext
{imports}

@job("order.close")
def close(context: JobContext, {parameter}) -> str:
    return context.id

print(run(b'{{"v":1,"id":"one","name":"order.close","queue":"q","data":{{"price":1}},"attempts":0,"created_ms":0}}'))
"""


def program(imports: str, parameter: str) -> "subprocess.CompletedProcess[str]":
    text = LATER.format(imports=imports, parameter=parameter)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=REPORTS.parent, check=False)


def test_the_context_need_not_be_imported_at_run_time() -> None:
    ran = program("", "price: int")
    assert "result='one'" in ran.stdout, ran.stderr


def test_a_type_of_the_payload_must_be_imported_at_run_time() -> None:
    ran = program("    from decimal import Decimal", "price: Decimal")
    assert ran.stderr.rstrip().splitlines()[-1] == (
        "delayq.core.errors.InvalidInput: An annotation of __main__.close cannot be read: name 'Decimal' is not "
        "defined. Import the type at run time, outside of `if TYPE_CHECKING`, because delayq needs the type to read "
        "the payload."
    )


def test_hooks_whose_code_would_not_run_are_refused(jobs: Registry) -> None:
    with pytest.raises(InvalidInput, match=r"Told.failed is a generator function"):

        class Told(Job, name="declared.told"):
            def handle(self) -> None: ...

            def failed(self, error: BaseException) -> Iterator[None]:  # type: ignore[override]
                yield

    with pytest.raises(InvalidInput, match=r"Asked.prepare_for_dispatch is async, .* Remove `async`"):

        class Asked(Job, name="declared.asked"):
            def handle(self) -> None: ...

            async def prepare_for_dispatch(self) -> bool:  # type: ignore[override]
                return False

    class Mailer:
        def fire(self, context: JobContext, data: object) -> None: ...

        async def failed(self, data: object, error: BaseException) -> AsyncIterator[None]:
            yield

    with pytest.raises(InvalidInput, match=r"Mailer.failed is a generator function"):
        handles("Mailer", registry=jobs)(Mailer)


def test_a_hook_behind_a_decorator_that_yields_is_logged(jobs: Registry, caplog: pytest.LogCaptureFixture) -> None:
    class Mailer:
        def fire(self, context: JobContext, data: object) -> None: ...

        def failed(self, data: object, error: BaseException) -> object:
            return (n for n in range(3))

    handles("Mailer", registry=jobs)(Mailer)
    handler = jobs.find("Mailer@fire")
    assert handler is not None
    call_failed_hook(handler, {}, ValueError(), None, job_id="1")
    assert "job 1 (Mailer@fire): the `failed` hook of the job raised an exception" in caplog.text
    assert "returned a generator" in caplog.text
