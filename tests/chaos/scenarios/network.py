"""Links that swallow packets, in a network of the scenario's own: nothing answers, and nothing says that it is gone.

A scenario of this kind runs in a process of its own, in a network namespace with nothing but a loopback interface;
there packets are dropped by iptables. That needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from tests.chaos.engine import ROOT, Lot, Tally
from tests.chaos.scenarios.replicas import DURABILITY, SAFE, done, is_another, is_whole, taken_since
from tests.chaos.world import crew, rig, server, told, verdict
from tests.support.chaos_producer import ProducerLog, produce
from tests.support.chaos_rig import Size
from tests.support.flavours import default_flavour, require
from tests.support.servers import connect
from tests.support.topologies import HOST, Sentinels
from tests.support.waiting import wait_until

PROGRAMS = ("ip", "iptables", "unshare")
MINORITY_S = 6.0


def missing() -> str:
    """Why there is no network of our own here."""
    absent = [name for name in PROGRAMS if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]
    if absent:
        return f"there is no {', '.join(absent)}: apt-get install iproute2 iptables"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "network namespaces need root (CAP_SYS_ADMIN)"


def half_open(lot: Lot) -> Tally:
    """Packets to the server are dropped for a while: connections stay open, and nothing comes back."""
    return _inside(lot, "half_open")


def minority(lot: Lot) -> Tally:
    """A primary is cut off with a producer beside it; the others agree on a new one. What was confirmed is there."""
    return _inside(lot, "minority")


def _inside(lot: Lot, name: str) -> Tally:
    given = json.dumps({**asdict(lot), "folder": str(lot.folder)})
    words = ["unshare", "--net", sys.executable, "-m", "tests.chaos.scenarios.network", name, given]
    told_lines = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return Tally(**json.loads(told_lines[-1]))


def _half_open(lot: Lot) -> Tally:
    rand, port = lot.rand, 16_379
    size = Size(jobs=150 * lot.units, seconds=8.0 * lot.units, longest_ms=10, workers=2, movers=1)
    options = {"port": str(port), "bind": HOST}
    with server(options=options) as one, rig(lot, one, size, url=f"redis://{HOST}:{port}/0", lease_ms=2_000) as run:
        for _ in range(lot.units):
            time.sleep(rand.uniform(0.5, 1.5))
            with dropped(port):
                time.sleep(rand.uniform(0.5, 8.0))
        run.finish(timeout=180)
        return told(verdict(run)).add(times_packets_were_dropped=lot.units)


def _minority(lot: Lot) -> Tally:
    tally = Tally()
    plan = {"seed": lot.own_seed, "jobs": 2_000 * lot.units, "longest_ms": 5, "seconds": 40.0 * lot.units}
    with (
        closing(Sentinels(require(default_flavour()), SAFE | {"min-replicas-max-lag": "2"}, replicas=1)) as pair,
        crew(lot, pair.url, lease_ms=2_000, durability=DURABILITY) as members,
    ):
        log, cut_off = ProducerLog(lot.folder), ProducerLog(lot.folder / "cut-off")
        cut_off.path.parent.mkdir()
        members.hire()
        outside = members.hire(members.duty_with(plan), produce)
        for _ in range(lot.units):
            wait_until(partial(taken_since, log, len(log.dues())), timeout=60, what="jobs are taken")
            before, port = pair.primary(), pair.ports[pair.servers.index(pair.primary())]
            beside = members.hire(
                members.duty_beside(before.url, lot.folder / "cut-off", {**plan, "prefix": "c"}), produce
            )
            with dropped(port):
                wait_until(partial(is_another, pair, before), timeout=60, what="the others agree on another")
                time.sleep(MINORITY_S)
            members.kill_all([beside])
            wait_until(partial(is_whole, pair), timeout=60, what="it follows")
            pair.wait_for_all()
        members.kill_all([outside])
        with connect(pair.primary().url) as plain:
            wait_until(partial(done, plain), timeout=120, what="all is done")
        ended = set(members.ledger.jobs("end"))
    for name, one in (("outside", log), ("cut_off", cut_off)):
        lost = set(one.dues()) - ended
        assert not lost, f"{len(lost)} that the producer {name} was told yes for never ended: {sorted(lost)[:5]}"
        tally.add(**{f"asked_{name}": len(one.asked()), f"taken_{name}": len(one.dues())})
    return tally.add(partitions=lot.units, lost=0)


@contextmanager
def dropped(port: int) -> Iterator[None]:
    """Every packet to or from that port is lost."""
    rules = [["INPUT", "-p", "tcp", side, str(port), "-j", "DROP"] for side in ("--dport", "--sport")]
    for rule in rules:
        _run("iptables", "-A", *rule)
    try:
        yield
    finally:
        for rule in rules:
            _run("iptables", "-D", *rule)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"})


def main() -> None:
    """The other half: this runs inside."""
    name, given = sys.argv[1], json.loads(sys.argv[2])
    _run("ip", "link", "set", "lo", "up")
    given["folder"] = Path(given["folder"])
    plays: dict[str, Any] = {"half_open": _half_open, "minority": _minority}
    sys.stdout.write(json.dumps(asdict(plays[name](Lot(**given)))) + "\n")


if __name__ == "__main__":
    main()
