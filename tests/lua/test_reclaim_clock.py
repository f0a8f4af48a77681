"""reclaim on a server whose clock is stepped back: what a dead worker holds waits for a lease, not for the step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from delayq.redis.calls import deliver
from delayq.redis.calls.call import Scope
from delayq.redis.keys import GROUP
from tests.chaos.scenarios import clocks
from tests.chaos.scenarios.clocks import HOUR_S, faked, server_with, turn
from tests.support.engine import OURS, Engine
from tests.support.flavours import missing
from tests.support.servers import connect
from tests.support.waiting import wait_until

LEASE_MS = 400


@pytest.fixture
def rate(tmp_path: Path) -> Path:
    if reason := clocks.missing():
        missing(reason, allowed=not clocks.wanted())
    turn(tmp_path / "rate", 0)
    return tmp_path / "rate"


@pytest.fixture
def stepped(rate: Path) -> Iterator[Engine]:
    with server_with(faked(rate)) as one, connect(one.url) as client:
        yield Engine(client).with_options(lease_ms=LEASE_MS)


def step(engine: Engine, rate: Path, seconds: int) -> None:
    """Set the server's clock that far ahead of the machine's, and wait until the server tells it.

    Valkey may tell a time that it read up to half a millisecond ago.
    """
    turn(rate, seconds)

    def is_told() -> bool:
        told, _ = cast("tuple[int, int]", engine.client.time())
        return abs(told - time.time() - seconds) < HOUR_S / 2

    wait_until(is_told, what=f"the server's clock is {seconds} s ahead")


def reclaim(engine: Engine) -> deliver.Reclaimed:
    """By the server's own clock, page by page."""
    while (done := engine.run(deliver.reclaim(Scope(engine.options, engine.queue), 500))).more and not done.back:
        pass
    return done


def has_rested(engine: Engine) -> bool:
    """Whether a tick of the janitor found leases to be trusted again."""
    return reclaim(engine).hold_ms == 0


def test_what_a_dead_worker_holds_comes_back_a_lease_after_the_step(stepped: Engine, rate: Path) -> None:
    """More than two pages of it, in the hands of two dead workers, delivered while the clock was an hour ahead."""
    step(stepped, rate, HOUR_S)
    wait_until(lambda: has_rested(stepped) if stepped.client.exists(stepped.keys.stream) else True, what="a first tick")
    for lot in range(6):
        stepped.ready(*(f"{lot}-{n}" for n in range(200)))
    stepped.read(OURS, 600)
    stepped.read("dq:other:1:b2", 600)
    reclaim(stepped)
    step(stepped, rate, 0)
    back = 0

    def all_are_back() -> bool:
        nonlocal back
        back += reclaim(stepped).back
        return back == 1_200

    wait_until(all_are_back, timeout=10, what="all are ready again")
    assert stepped.rows("meta").get("reclaim_walk") is None


def test_a_step_forth_and_back_between_two_ticks_keeps_nothing(stepped: Engine, rate: Path) -> None:
    """The ticks see no step, so no hold begins."""
    engine = stepped.with_options(lease_ms=3_000)
    engine.ready("lost")
    wait_until(lambda: has_rested(engine), what="leases are trusted")
    step(engine, rate, HOUR_S)
    engine.read(OURS, 1)
    step(engine, rate, 0)
    assert reclaim(engine).hold_ms == 0
    wait_until(lambda: reclaim(engine).back == 1, timeout=10, what="it is ready again")


def test_who_renews_after_the_step_keeps_its_work(stepped: Engine, rate: Path) -> None:
    step(stepped, rate, HOUR_S)
    held = stepped.reserved("mine", "lost")
    reclaim(stepped)
    step(stepped, rate, 0)
    assert reclaim(stepped).hold_ms > 0

    def one_is_back() -> bool:
        stepped.run(deliver.renew(Scope(stepped.options, stepped.queue), OURS, held[:1]))
        return reclaim(stepped).back == 1

    wait_until(one_is_back, timeout=10, what="the other one is ready again")
    pending = stepped.client.xpending_range(stepped.keys.stream, GROUP, "-", "+", 10)
    assert [row["message_id"].decode() for row in pending] == [held[0].entry]
