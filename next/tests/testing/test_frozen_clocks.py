"""A library that freezes the clocks of an application stops neither travel nor the waits of a client."""

import pytest
from freezegun import freeze_time

from delayq import DelayQ, Job, Manager, job
from delayq.testing import Travel


class Close(Job, name="frozen.close"):
    async def handle(self) -> None: ...


@job("frozen.plain", tries=2, backoff="1m", timeout="5s")
def plain(fails: bool = False) -> None:
    if fails:
        raise ValueError


def test_travel_moves_although_the_clocks_of_the_test_are_frozen(elsewhere: Manager, delayq_travel: Travel) -> None:
    with freeze_time("2030-01-01"):
        Close().dispatch(delay="15m")
        plain.job(fails=True).dispatch(delay="5m")
        assert [one.outcome for one in delayq_travel("20m")] == ["retried", "failed", "done"]


@freeze_time("2030-01-01")
def test_clocks_may_be_frozen_before_travel_begins(elsewhere: Manager, delayq_travel: Travel) -> None:
    Close().dispatch(delay="15m")
    assert [one.outcome for one in delayq_travel("15m")] == ["done"]


def test_a_wait_ends_although_the_clocks_are_frozen(client: DelayQ) -> None:
    ref = client.schedule("frozen.plain", delay="1h")
    with freeze_time("2030-01-01", real_asyncio=True), pytest.raises(TimeoutError):
        ref.wait("100ms")
