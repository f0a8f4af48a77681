"""Every scene and every way to ask: a worker leaves within its grace, with its exit code, and nobody stays behind.

    idle                  nothing to do                          TERM         once
    busy                  a handler that hears nothing           TERM twice   the second once the first was heard
    stopped, dead         Redis hangs, Redis is gone             INT          once
    busy stopped, …       both

What a busy one had not finished starts in the worker that stands by, within 2 s, and nothing is charged for it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from delayq.core.states import State
from delayq.worker.names import consumer_name, label_of
from tests.support.flavours import missing
from tests.support.machine import fair_clock, wait_fairly
from tests.support.orphans import adopting, children, zombies
from tests.support.servers import LocalServer, OwnServer
from tests.support.supervision import House, Shop
from tests.support.waiting import wait_until

GRACE_S = 1.0
ELSEWHERE_S = 2.0
SENT = {
    "TERM": (signal.SIGTERM,),
    "TERM twice": (signal.SIGTERM, signal.SIGTERM),
    "INT": (signal.SIGINT,),
}
pytestmark = pytest.mark.timed  # the grace is a promise
EACH_WAY = pytest.mark.parametrize("sent", list(SENT))


@pytest.fixture
def server(own_server: OwnServer) -> LocalServer:
    return own_server()


@pytest.fixture
def home(server: LocalServer, tmp_path: Path) -> Iterator[House]:
    made = House(server.url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def elsewhere(server: LocalServer, tmp_path: Path) -> Iterator[House]:
    (tmp_path / "elsewhere").mkdir()
    made = House(server.url, tmp_path / "elsewhere")
    yield made
    made.close()


@pytest.fixture
def alone() -> list[str]:
    """The words that make a program process 1."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-pf", "--mount-proc", "true"], check=False).returncode != 0:
        missing("this machine lets nobody make a process namespace", allowed=True)
    return [unshare, "-pf", "--mount-proc", "--kill-child"]


@contextmanager
def worker(home: House, *, busy: bool, before: Sequence[str] = (), grace_s: float = GRACE_S) -> Iterator[Shop]:
    """A worker of two processes that has worked; when `busy`, one of them runs `held`, which never ends."""
    home.schedule("orphan" if before else "good", "first")
    with home.open(processes=2, grace_ms=int(grace_s * 1000), before=before) as shop:
        home.until_gone("first")
        if busy:
            home.schedule("deaf", "held", seconds=60)
            home.until_started("held")
        yield shop


def asked(shop: Shop, sent: str, send: Callable[[signal.Signals], None]) -> int:
    """Ask it to stop, and wait until it has; the exit code."""
    began = fair_clock()
    for number in SENT[sent]:
        send(number)
        wait_until(lambda: "stopping (terminated by SIG" in shop.said() or not shop.alive(), what="it has heard")
    code = shop.ended()
    assert fair_clock() - began < GRACE_S + 1.0
    return code


def grace_of(sent: str) -> float:
    """So long for the second signal that only the second one can have ended it."""
    return 60.0 if sent == "TERM twice" else GRACE_S


def code_of(scene: str, sent: str) -> int:
    """130 for who is torn out of a job, 0 for every other end."""
    return 130 if "busy" in scene and sent == "TERM twice" else 0


@contextmanager
def standing_by(elsewhere: House) -> Iterator[None]:
    """Another worker, with nothing to do so far."""
    with elsewhere.open(name=consumer_name("elsewhere")):
        wait_until(
            lambda: any(label_of(one.name) == "elsewhere" for one in elsewhere.client.workers()),
            what="the other worker is there",
        )
        yield


@contextmanager
def trouble(server: LocalServer, scene: str) -> Iterator[None]:
    """What happens to Redis."""
    if "stopped" in scene:
        server.stop()
    if "dead" in scene:
        server.kill()
    try:
        yield
    finally:
        if "stopped" in scene:
            server.cont()


def starts_elsewhere(home: House, elsewhere: House) -> None:
    """`held` runs in the worker that stands by, soon after the other has left, and as if for the first time."""
    wait_fairly(lambda: elsewhere.starts("held"), within=ELSEWHERE_S, what="it starts elsewhere")
    assert len(elsewhere.starts("held")) == 1
    assert len(home.starts("held")) == 1
    held = elsewhere.job("held")
    assert held.envelope is not None
    assert (held.state, held.envelope.attempts, held.recoveries) == (State.RESERVED, 0, 0)


@EACH_WAY
@pytest.mark.parametrize("scene", ["idle", "stopped", "dead", "busy stopped", "busy dead"])
def test_it_leaves_within_its_grace(home: House, server: LocalServer, scene: str, sent: str) -> None:
    busy, grace_s = "busy" in scene, grace_of(sent)
    with worker(home, busy=busy, grace_s=grace_s) as shop, adopting() as orphans, trouble(server, scene):
        assert asked(shop, sent, shop.signal) == code_of(scene, sent)
        assert home.processes() == []
        assert orphans() == []


@EACH_WAY
def test_what_it_had_not_finished_starts_elsewhere(home: House, elsewhere: House, sent: str) -> None:
    with worker(home, busy=True, grace_s=grace_of(sent)) as shop, standing_by(elsewhere):
        with adopting() as orphans:
            assert asked(shop, sent, shop.signal) == code_of("busy", sent)
            assert home.processes() == []
            assert orphans() == []
        starts_elsewhere(home, elsewhere)


@EACH_WAY
@pytest.mark.parametrize("scene", ["idle", "busy"])
def test_as_process_1(home: House, elsewhere: House, alone: list[str], scene: str, sent: str) -> None:
    busy, grace_s = scene == "busy", grace_of(sent)
    with worker(home, busy=busy, before=alone, grace_s=grace_s) as shop, standing_by(elsewhere):
        wait_until(lambda: home.rows("gone"), what="the orphan has ended")
        wait_until(lambda: not zombies(shop.pid), what="the orphan was waited for")
        (first,) = children(shop.pid)
        assert asked(shop, sent, lambda number: os.kill(first, number)) == code_of(scene, sent)
        assert home.processes() == []
        if busy:
            starts_elsewhere(home, elsewhere)


@pytest.mark.parametrize("first", [True, False], ids=["process 1", "any other process"])
def test_a_worker_leaves_with_0_while_its_code_is_loaded(
    home: House, tmp_path: Path, request: pytest.FixtureRequest, first: bool
) -> None:
    """The kernel keeps signals from a first process that has no handler for them; others would end by the signal."""
    work = ["--url", home.url, "work", "--app", "tests.support.supervised_slow_to_load"]
    before: list[str] = request.getfixturevalue("alone") if first else []
    command = [*before, sys.executable, "-m", "delayq", *work]
    shop = Shop(command, {**os.environ, "LEDGER": str(home.ledger)}, tmp_path / "stderr")
    try:
        wait_until(lambda: home.rows("loading"), what="it loads its code")
        (pid,) = children(shop.pid) if first else (shop.pid,)
        os.kill(pid, signal.SIGTERM)
        assert shop.ended() == 0  # loading takes longer than that is waited for
    finally:
        shop.close()


def test_signals_that_come_while_it_leaves_change_nothing(home: House) -> None:
    """The exit code tells the reason, also to whoever goes on pressing Ctrl-C."""

    def ended() -> bool:
        shop.signal(signal.SIGTERM, signal.SIGINT)
        return not shop.alive()

    with worker(home, busy=False) as shop:
        wait_until(ended, what="it has left")
        assert shop.ended() == 0
