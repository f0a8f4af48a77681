"""The append-only file ends anywhere: whatever is left of it, each job is whole, and in one place."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from delayq.redis.keys import Keys
from tests.chaos.engine import Lot, Tally
from tests.chaos.world import ALWAYS, rig, server
from tests.support.chaos_rig import QUEUE, Size
from tests.support.rule_one import broken
from tests.support.servers import LocalServer, connect
from tests.support.waiting import wait_until

JOBS = 400


def aof_tail(lot: Lot) -> Tally:
    """Cut the file at every byte of its last part, and start a server on it; `units` are cuts.

    The file is made once for a seed's lot; its last bytes are those of jobs that were scheduled, promoted, delivered,
    retried and settled.
    """
    size = Size(jobs=JOBS, seconds=4.0, longest_ms=4, workers=2, movers=1)
    with server(persistent=True, options=ALWAYS) as one:
        with rig(lot, one, size) as run:
            wait_until(lambda: len(run.crew.ledger.jobs("end")) > JOBS // 2, timeout=60, what="half of it is done")
            one.kill()
        asked = set(run.log.asked())
        file, tally = newest_file(one.folder), Tally()
        whole, keys = file.read_bytes(), Keys("delayq", QUEUE)
        for cut in range(lot.units):
            file.write_bytes(whole[: len(whole) - cut])
            with started(one), connect(one.url) as plain:
                assert broken(plain, keys) == [], f"cut by {cut} bytes"
                known = {job.decode() for job in plain.hkeys(keys.of("jobs"))}
                assert known <= asked, f"cut by {cut} bytes: {sorted(known - asked)[:3]} were never asked for"
                tally.add(cuts=1, jobs_looked_at=len(known))
        return tally.add(broken_jobs=0)


@contextmanager
def started(one: LocalServer) -> Iterator[None]:
    """The server's program on its files, without what `start` does to end it with us: thousands of them are started."""
    with subprocess.Popen(one.arguments({}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(one.is_ready, what="it has loaded what is left")
            yield
        finally:
            process.kill()


def newest_file(folder: Path) -> Path:
    """The file that takes the changes; where it is depends on the server's age."""
    [path] = [*folder.glob("appendonlydir/*.incr.aof"), *folder.glob("appendonly.aof")]
    return path
