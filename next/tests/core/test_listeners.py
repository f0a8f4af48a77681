"""Listeners are called for the events of their class, and their errors go to the log."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from delayq import InvalidInput, JobEnded, emit, listener

pytestmark = pytest.mark.usefixtures("no_listeners")

WRONG: Any = "JobEnded"


@dataclass
class Placed:
    order_id: int


class PlacedAbroad(Placed):
    pass


def test_the_listeners_of_exactly_this_class_are_called_in_order() -> None:
    seen: list[str] = []

    @listener(Placed)
    def first(event: Placed) -> None:
        seen.append(f"first {event.order_id}")

    @listener(Placed)
    def second(event: Placed) -> str:
        seen.append(f"second {event.order_id}")
        return "no verdict"

    assert emit(Placed(1))
    assert emit(PlacedAbroad(2))
    assert seen == ["first 1", "second 1"]
    assert second(Placed(3)) == "no verdict"


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_an_error_is_logged_and_the_others_are_still_called(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    @listener(Placed)
    def broken(event: Placed) -> None:
        raise error

    listener(Placed)(lambda event: seen.append(event.order_id))
    with caplog.at_level(logging.ERROR, logger="delayq"):
        assert not emit(Placed(1))
    assert seen == [1]
    assert caplog.messages == [f"the listener {__name__}.{broken.__qualname__} of Placed failed"]


def test_a_listener_that_returns_false_objects() -> None:
    listener(Placed)(lambda event: event.order_id != 2)
    assert emit(Placed(1))
    assert not emit(Placed(2))


def test_what_is_no_class_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"declared for 'JobEnded', which is not a class\. Name the class") as raised:
        listener(WRONG)
    assert raised.value.field == "kind"


def test_an_async_listener_is_refused() -> None:
    async def hear(event: JobEnded) -> None:
        pass

    with pytest.raises(InvalidInput, match=r"is async\. Use a plain function, or the decorator `queued_listener`"):
        listener(JobEnded)(hear)


def test_a_listener_that_yields_is_refused() -> None:
    def hear(event: JobEnded) -> Iterator[None]:
        yield

    async def hear_async(event: JobEnded) -> AsyncIterator[None]:
        yield

    for function in (hear, hear_async):
        with pytest.raises(InvalidInput, match=r"hear\w*' is a generator function, .* Remove `yield` from it\."):
            listener(JobEnded)(function)


def test_a_listener_that_only_returns_a_coroutine_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    listener(Placed)(lambda event: asyncio.sleep(0))
    assert not emit(Placed(1))
    assert "the listener returned a value of type coroutine, whose code did not run" in caplog.text
