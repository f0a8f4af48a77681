"""Between clients and the server: scripts forgotten, connections killed, replies lost, cut and late."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.chaos.engine import Lot, Tally
from tests.chaos.world import rig, server, told, verdict
from tests.support.chaos_rig import Size
from tests.support.proxy import Proxy
from tests.support.servers import connect

PACE_S = 0.004
"""A job every so often."""


def script_flush(lot: Lot) -> Tally:
    """SCRIPT FLUSH every 50 ms: no call fails, none is unknown."""
    size = Size(jobs=lot.units, seconds=PACE_S * lot.units, longest_ms=2, workers=2, movers=1)
    with server() as one, rig(lot, one, size) as run:
        with connect(one.url) as plain, again_and_again(plain.script_flush, 0.05) as flushes:
            run.finish(timeout=120)
        found = verdict(run)
        assert found.accepted == found.asked, "a call failed because a script was forgotten"
        assert found.run_twice == 0
        return told(found).add(flushes=flushes[0])


def client_kill(lot: Lot) -> Tally:
    """CLIENT KILL of everybody, five times a second."""
    size = Size(jobs=lot.units, seconds=PACE_S * lot.units, longest_ms=5, workers=3, movers=2)
    with server() as one, rig(lot, one, size) as run:
        with connect(one.url) as plain:

            def kill() -> None:
                for kind in ("normal", "pubsub"):
                    plain.client_kill_filter(_type=kind, skipme=True)

            with again_and_again(kill, 0.2) as rains:
                run.wait_for_the_producer()
        run.finish(timeout=120)
        return told(verdict(run)).add(times_all_connections_were_killed=rains[0])


def replies(lot: Lot) -> Tally:
    """Every hundredth reply is lost, or cut together with its connection, and all of them are late."""
    size = Size(jobs=lot.units, seconds=10 * PACE_S * lot.units, longest_ms=5, workers=2, movers=1)
    with server() as one, Proxy(one.socket) as proxy, rig(lot, one, size, url=proxy.url, lease_ms=2_000) as run:
        rand = lot.rand

        def another_fault() -> None:
            proxy.delay(rand.choice((0.0, 0.0, 0.002)))
            (proxy.swallow if rand.random() < 0.3 else proxy.cut)(after=rand.randint(0, 20))

        with again_and_again(another_fault, 0.3):
            run.wait_for_the_producer()
        proxy.heal()
        proxy.delay(0.0)
        run.finish(timeout=120)
        found = verdict(run)
        fences = run.crew.logs().count("it was taken back meanwhile")
        assert found.ended_twice <= fences + proxy.lost
        return told(found).add(replies=proxy.replies, replies_lost=proxy.lost)


@contextmanager
def again_and_again(act: Callable[[], object], every_s: float) -> Iterator[list[int]]:
    """Something is done every so often while the block runs; how often is in the list afterwards."""
    enough, times = threading.Event(), [0]

    def run() -> None:
        while not enough.wait(every_s):
            act()
            times[0] += 1

    thread = threading.Thread(target=run, name="nemesis")
    thread.start()
    try:
        yield times
    finally:
        enough.set()
        thread.join()
