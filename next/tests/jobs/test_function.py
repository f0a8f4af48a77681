"""Functions declared as jobs: what is refused, and how a payload reaches them."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from delayq import InvalidInput
from delayq.core.envelope import decode
from delayq.core.errors import UnknownJob
from delayq.core.job_spec import JobSpec, prepare
from delayq.core.options import Options
from delayq.jobs.function import job
from delayq.jobs.registry import Registry


def sent(data: Any) -> Any:
    """Return a payload as a worker gets it."""
    return decode(prepare(JobSpec(name="n", data=data), Options(), 0).envelope).data


def called(function: Callable[..., Any], data: Any) -> Any:
    registry = Registry()
    job("n", registry=registry)(function)
    handler = registry.get("n")
    return handler.call(handler.read(sent(data)), None)


def test_a_job_needs_no_payload() -> None:
    assert called(lambda: "ran", None) == "ran"
    assert called(lambda: "ran", {}) == "ran"


def test_members_of_the_payload_are_keyword_arguments() -> None:
    def close(order_id: int, reason: str = "unpaid") -> tuple[int, str]:
        return order_id, reason

    assert called(close, {"order_id": 42}) == (42, "unpaid")
    assert called(close, {"order_id": 42, "reason": "fraud"}) == (42, "fraud")
    with pytest.raises(UnknownJob):
        called(close, {"order_id": 42, "colour": "red"})


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def any_arguments(*arguments: int) -> None: ...


def any_members(**members: int) -> None: ...


def by_position(number: int, /) -> None: ...


@pytest.mark.parametrize("function", [generator, async_generator, any_arguments, any_members, by_position])
def test_a_function_that_cannot_be_a_job_is_refused_where_it_is_declared(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidInput, match=function.__name__):
        job("n", registry=Registry())(function)


@pytest.mark.parametrize("options", [{"tries": -1}, {"max_exceptions": 0}, {"timeout": "soon"}, {"queue": "a b"}])
def test_options_that_mean_nothing_are_refused_where_they_are_declared(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        job("n", registry=Registry(), **options)(test_a_job_needs_no_payload)
