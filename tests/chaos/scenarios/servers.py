"""The server is killed, restarted, stopped, and forgets: everybody goes on by themselves."""

from __future__ import annotations

import time
from functools import partial

from tests.chaos.engine import Lot, Tally
from tests.chaos.world import ALWAYS, client_of, crew, rig, server, told, verdict, with_losses
from tests.support.chaos_rig import Size
from tests.support.ledger import Ledger
from tests.support.servers import LocalServer
from tests.support.waiting import wait_until

CONSUMING_MS = 5_000
LEASE_MS = 1_000


def redis_kills(lot: Lot) -> Tally:
    """kill -9 of the server at any moment of the load; what it acknowledged it must still know."""
    size = Size(jobs=40 * lot.units, seconds=1.2 * lot.units, longest_ms=8, workers=2, movers=1)
    with server(persistent=True, options=ALWAYS) as one, rig(lot, one, size, lease_ms=2_000) as run:
        _kill_server(lot, one)
        run.finish(timeout=120)
        return told(verdict(run)).add(kills_of_the_server=lot.units)


def redis_kills_everysec(lot: Lot) -> Tally:
    """The same with `appendfsync everysec`: during an fsync what was acknowledged may be in memory alone."""
    size = Size(jobs=40 * lot.units, seconds=1.2 * lot.units, longest_ms=8, workers=2, movers=1)
    with server(persistent=True) as one, rig(lot, one, size, lease_ms=2_000) as run:
        _kill_server(lot, one)
        run.finish(timeout=120)
        found = with_losses(run)
        return told(found).add(kills_of_the_server=lot.units)


def _kill_server(lot: Lot, one: LocalServer) -> None:
    rand = lot.rand
    for _ in range(lot.units):
        time.sleep(rand.uniform(0.05, 1.0))
        one.kill()
        time.sleep(rand.choice((0.0, 0.0, 0.2)))
        one.start()


def restarts(lot: Lot) -> Tally:
    """The server ends or is killed, is away for a while, and comes back; a job sent then starts within five seconds."""
    rand, took_ms = lot.rand, list[float]()
    with server(persistent=True, options=ALWAYS) as one, crew(lot, one.url) as members, client_of(members) as client:
        worker = members.hire()
        for n in range(lot.units):
            rand.choice((one.kill, one.shutdown))()
            time.sleep(rand.uniform(0.0, 1.5))
            one.start()
            up_ms = time.time() * 1000
            client.schedule("note", id=f"after{n}", data={})
            wait_until(partial(_has, members.ledger, f"after{n}"), timeout=60, what="it consumes again")
            [line] = [line for line in members.ledger.lines("start") if line.job == f"after{n}"]
            took_ms.append(line.at_ms - up_ms)
        assert worker.is_alive(), "the worker that was there from the beginning ended"
    late = [ms for ms in took_ms if ms > CONSUMING_MS]
    assert not late, f"later than {CONSUMING_MS} ms: {late}"
    return Tally().add(restarts=lot.units, late=len(late)).time("consuming_again_after", *took_ms)


def _has(ledger: Ledger, job: str) -> bool:
    return job in ledger.jobs("start")


def stopped(lot: Lot) -> Tally:
    """The server stands still for two leases while jobs run: nobody's job is taken for dead."""
    rounds = lot.units
    size = Size(jobs=60 * rounds, seconds=4.0 * rounds, longest_ms=1_500, workers=3, movers=1, more={"threads": 16})
    rand = lot.rand
    with server() as one, rig(lot, one, size, lease_ms=LEASE_MS) as run:
        held = 0
        for _ in range(rounds):
            time.sleep(rand.uniform(0.8, 2.0))
            held += int(run.client.hlen(run.keys.of("entries")))
            one.stop()
            time.sleep(2 * LEASE_MS / 1000)
            one.cont()
        run.finish(timeout=120)
        found = verdict(run)
        assert found.run_twice == 0, f"{found.run_twice} live jobs were taken back"
        return told(found).add(stops_of_two_leases=rounds, in_the_stream_meanwhile=held)
