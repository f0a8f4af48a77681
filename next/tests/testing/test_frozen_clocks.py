"""A library that freezes the clocks of an application stops neither travel nor the waits of a client."""

import asyncio
import subprocess
import sys
from typing import Any, ClassVar

import pytest
from freezegun import freeze_time

from delayq import DelayQ, Job, Manager, job
from delayq.testing import GiveUp, Travel, faking, run_job


class Close(Job, name="frozen.close"):
    async def handle(self) -> None: ...


@job("frozen.naps")
async def naps() -> str:
    async with asyncio.timeout(10):
        await asyncio.sleep(0.01)
    return "rested"


@job("frozen.hidden")
def hidden() -> Any:
    return naps()


class Fails(Job, name="frozen.fails", tries=1):
    hooks: ClassVar[list[str]] = []

    async def handle(self) -> None:
        raise ValueError

    async def failed(self, error: BaseException) -> None:
        self.hooks.append(await naps())


@job("frozen.plain", tries=2, backoff="1m", timeout="5s")
def plain(fails: bool = False) -> None:
    if fails:
        raise ValueError


def test_travel_moves_although_the_clocks_of_the_test_are_frozen(elsewhere: Manager, delayq_travel: Travel) -> None:
    with freeze_time("2030-01-01"):
        Close().dispatch(delay="15m")
        plain.job(fails=True).dispatch(delay="5m")
        assert [one.outcome for one in delayq_travel("20m")] == ["retried", "failed", "done"]


def test_deadlines_come_from_the_clock_of_travel_after_an_earlier_freeze(
    elsewhere: Manager, delayq_travel: Travel
) -> None:
    def outcomes() -> list[str]:
        plain.job().dispatch(delay="10m", deadline="5m")
        plain.job(fails=True).dispatch(retry_until="90s", tries=0)
        return [one.outcome for one in delayq_travel("1h")]

    expected = ["retried", "retried", "failed", "done"]
    for frozen in ("2020-01-01", "2020-01-01", "2040-01-01"):
        with freeze_time(frozen):
            assert outcomes() == expected
        assert outcomes() == expected
    with freeze_time(delayq_travel.now):
        delayq_travel("10m")
        assert outcomes() == expected


def test_the_fake_follows_a_frozen_clock(elsewhere: Manager) -> None:
    for _ in range(2):
        with faking() as fake, freeze_time("2030-01-01"):
            Close().dispatch(at="2030-01-01T00:15:00Z")
            fake.assert_pushed_with_delay(Close, "15m")
        with freeze_time("2031-01-01"), faking() as fake:
            Close().dispatch(at="2031-01-01T00:15:00Z")
            fake.assert_pushed_with_delay(Close, "15m")


def test_an_application_that_is_imported_while_the_clocks_are_frozen() -> None:
    program = """
import asyncio
from freezegun import freeze_time
with freeze_time("2030-01-01"):
    from delayq import job
    from delayq.testing import run_job

    @job("frozen.late")
    async def late() -> str:
        await asyncio.sleep(0.05)
        return "rested"

    print(run_job(late.job()).result, late.job().dispatch_sync().result)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "rested rested\n"


@freeze_time("2030-01-01")
def test_clocks_may_be_frozen_before_travel_begins(elsewhere: Manager, delayq_travel: Travel) -> None:
    Close().dispatch(delay="15m")
    assert [one.outcome for one in delayq_travel("15m")] == ["done"]


@pytest.mark.timeout(20)
@freeze_time("2030-01-01")
def test_async_handlers_can_wait_although_the_clocks_are_frozen(elsewhere: Manager, delayq_travel: Travel) -> None:
    naps.job().dispatch(delay="15m")
    hidden.job().dispatch(delay="15m")
    assert [one.outcome for one in delayq_travel("15m")] == ["done", "done"]
    assert run_job(naps.job()).result == "rested"
    assert hidden.job().dispatch_sync().result == "rested"
    failed = run_job(Fails())
    assert isinstance(failed.outcome, GiveUp)
    assert Fails.hooks == ["rested"]


def test_a_wait_ends_although_the_clocks_are_frozen(client: DelayQ) -> None:
    ref = client.schedule("frozen.plain", delay="1h")
    with freeze_time("2030-01-01", real_asyncio=True), pytest.raises(TimeoutError):
        ref.wait("100ms")
