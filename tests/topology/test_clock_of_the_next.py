"""A failover to a server whose clock is an hour behind: leases count from the failover on, not from an hour later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.chaos.scenarios import clocks
from tests.chaos.scenarios.clocks import HOUR_S, faked
from tests.support.crew import Crew, Duty
from tests.support.flavours import Flavour, missing, require
from tests.support.machine import fair_clock
from tests.support.servers import LocalServer, connect
from tests.support.topologies import Sentinels, caught_up, is_linked, is_primary, say
from tests.support.waiting import wait_until

QUEUE = "orders"
TICK_MS = 1_000


@pytest.fixture
def pair() -> Iterator[Sentinels]:
    """A primary, and a replica whose clock is an hour behind."""
    if reason := clocks.missing():
        missing(reason, allowed=not clocks.wanted())
    behind = faked(f"-{HOUR_S}")
    options = {"enable-debug-command": "yes"}
    with closing(Sentinels(require(Flavour.VALKEY), options, replicas=1, environments=({}, behind))) as made:
        yield made


def told_s(server: LocalServer) -> int:
    """The server's time, in epoch seconds."""
    return int(say(f"{server.url}&protocol=2", "TIME")[0])


def copy_anew(primary: LocalServer, replica: LocalServer) -> None:
    """Let the replica take a whole copy, with the times of delivery as the primary's clock told them."""
    with connect(primary.url) as client:
        before = client.info("stats")["sync_full"]
        client.execute_command("DEBUG", "CHANGE-REPL-ID")
        client.client_kill_filter(_type="replica")
        wait_until(lambda: client.info("stats")["sync_full"] > before, what="a whole copy is made")
    wait_until(partial(is_linked, replica), what="the replica follows")


@pytest.mark.timed
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("lease_ms", "copied"), [(2_000, False), (8_000, True)], ids=["streamed", "copied"])
def test_what_a_dead_worker_held_comes_back_soon(
    pair: Sentinels, tmp_path: Path, record_property: Callable[[str, object], None], *, lease_ms: int, copied: bool
) -> None:
    """Four jobs are held: two by a worker that dies before the failover, two by one that lives on.

    A replica that is told of a delivery dates it by its own clock; a whole copy has the times of the primary.
    """
    within_s = lease_ms / 1000 + TICK_MS / 1000 + 2
    before, after = pair.servers
    assert told_s(after) < time.time() - HOUR_S / 2, "the replica's clock is behind"
    duty = Duty(url=pair.url, folder=tmp_path, lease_ms=lease_ms, tidy_every_ms=TICK_MS)
    with Crew(duty) as members, closing(Connector(pair.url)) as connector:
        client, ledger = Client(connector, duty.options()), members.ledger
        lives = members.hire(members.duty_with({"processes": 2}))
        hold(client, members, "kept-1", "kept-2")
        dies = members.hire(members.duty_with({"processes": 2, "mover": False}))
        hold(client, members, "lost-1", "lost-2")
        members.hire(members.duty_with({"processes": 2}))  # the two others are full
        wait_until(lambda: len(client.workers()) == 6, timeout=30, what="each process has announced itself")
        members.kill_all([dies])
        if copied:
            copy_anew(before, after)
        wait_until(partial(caught_up, before, 1, QUEUE), what="the replica has everything")
        assert starts(members, "lost-1", "lost-2") == [1, 1], "the lease is not over yet"
        before.kill()
        wait_until(partial(_leads, pair, after), timeout=60, what="the replica has taken over")
        began, seen = fair_clock(), time.monotonic()
        wait_until(lambda: starts(members, "lost-1", "lost-2") == [2, 2], timeout=30, what="what was lost starts again")
        took_s = fair_clock() - began
        wait_until(lambda: time.monotonic() - seen > 2 * within_s, timeout=60, what="leases have run out twice")
        assert starts(members, "kept-1", "kept-2") == [1, 1], "a live worker keeps what it runs"
        (tmp_path / "go").touch()
        wait_until(partial(ledger.has_all, "end", ["kept-1", "kept-2", "lost-1", "lost-2"]), what="all have ended")
        assert starts(members, "kept-1", "kept-2", "lost-1", "lost-2") == [1, 1, 2, 2]
        assert lives.is_alive()
    record_property("chaos", f"lost jobs start again {took_s:.1f} s after the failover")
    assert took_s < within_s


def hold(client: Client, members: Crew, *ids: str) -> None:
    """Schedule jobs that run until they may end, and wait until all of them run."""
    for job_id in ids:
        client.schedule("note", {"until": "go"}, id=job_id, queue=QUEUE)
    wait_until(partial(members.ledger.has_all, "start", list(ids)), timeout=30, what="they run")


def starts(members: Crew, *ids: str) -> list[int]:
    """How often each has started."""
    lines = [line.job for line in members.ledger.lines("start")]
    return [lines.count(job_id) for job_id in ids]


def _leads(pair: Sentinels, server: LocalServer) -> bool:
    return pair.primary() is server and is_primary(server)
