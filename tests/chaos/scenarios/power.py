"""The machine loses power: of the append-only file there is what was synced, and nothing that came after.

A shim stands between the server and `fdatasync`. It writes down how long a file was when a sync of it began that then
worked: so much is on the disk. A cut is `kill -9`, and the file is cut there. What an honest disk keeps beyond that is
luck, and is taken away here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.chaos.engine import Lot, Tally
from tests.chaos.scenarios.clocks import environment_of
from tests.chaos.scenarios.disk import newest_file
from tests.chaos.world import ALWAYS, rig, told, verdict
from tests.support.chaos_rig import Size
from tests.support.flavours import Flavour, require
from tests.support.rule_one import broken
from tests.support.servers import LocalServer

WINDOW_MS = 2_000
"""What `everysec` may lose, as Redis documents it."""
JOBS_A_CUT = 40
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int synced(const char *call, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
    char link[64], name[4096], line[4200];
    struct stat before;
    int known = fstat(fd, &before) == 0, done = real(fd);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (done != 0 || !known || length <= 0) return done;
    name[length] = 0;
    int log = open(getenv("DELAYQ_SYNCED"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    int size = snprintf(line, sizeof line, "%lld %s\n", (long long)before.st_size, name);
    if (log < 0 || write(log, line, size) != size) abort();
    close(log);
    return done;
}
int fdatasync(int fd) { return synced("fdatasync", fd); }
int fsync(int fd) { return synced("fsync", fd); }
"""


def missing() -> str:
    """Why no power can be cut here."""
    return "" if shutil.which("cc") else "there is no C compiler: apt-get install gcc libc6-dev"


def always(lot: Lot) -> Tally:
    """With `appendfsync always`: what was acknowledged is there."""
    with _server(lot, "always") as one, rig(lot, one, _size(lot), lease_ms=2_000) as run:
        bytes_gone, _ = _cut_again_and_again(lot, one)
        run.finish(timeout=120)
        return told(verdict(run)).add(cuts=lot.units, bytes_cut_off=bytes_gone)


def everysec(lot: Lot) -> Tally:
    """With `appendfsync everysec`: what is lost was taken within two seconds before a cut; nothing is half there."""
    with _server(lot, "everysec") as one, rig(lot, one, _size(lot), lease_ms=2_000) as run:
        bytes_gone, cut_ms = _cut_again_and_again(lot, one)
        run.finish(timeout=120)
        assert broken(run.client, run.keys) == []
        dues, ended = run.log.dues(), set(run.crew.ledger.jobs("end"))
    lost = {job: dues[job] for job in dues.keys() - ended}
    old = [job for job, due in lost.items() if all(due < at - WINDOW_MS for at in cut_ms)]
    assert not old, f"{len(old)} were due, so taken, more than {WINDOW_MS} ms before any cut: {old[:5]}"
    tally = Tally().add(jobs=lot.units * JOBS_A_CUT, taken=len(dues), lost=len(lost), lost_though_older=len(old))
    return tally.add(cuts=lot.units, bytes_cut_off=bytes_gone)


def _size(lot: Lot) -> Size:
    return Size(jobs=JOBS_A_CUT * lot.units, seconds=2.0 * lot.units, longest_ms=8, workers=2, movers=1)


@contextmanager
def _server(lot: Lot, policy: str) -> Iterator[LocalServer]:
    """One whose syncs are written down."""
    source, shim, log = lot.folder / "shim.c", lot.folder / "shim.so", lot.folder / "synced.txt"
    source.write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"], check=True)
    log.touch()
    options = {**ALWAYS, "appendfsync": policy}
    with (
        environment_of({"LD_PRELOAD": str(shim), "DELAYQ_SYNCED": str(log)}),
        closing(LocalServer(require(Flavour.VALKEY), persistent=True, options=options)) as one,
    ):
        one.start()
        yield one


def _cut_again_and_again(lot: Lot, one: LocalServer) -> tuple[int, list[float]]:
    """How many bytes went, and when each cut was, in epoch ms."""
    rand, gone, at_ms = lot.rand, 0, list[float]()
    for _ in range(lot.units):
        time.sleep(rand.uniform(0.05, 1.8))
        at_ms.append(time.time() * 1000)
        one.kill()
        gone += _cut(newest_file(one.folder), lot.folder / "synced.txt")
        one.start()
    return gone, at_ms


def _cut(file: Path, log: Path) -> int:
    """Leave of it what was synced; how many bytes that takes away."""
    mine = [line.split(" ", 1)[0] for line in log.read_text().splitlines() if line.endswith(f" {file}")]
    size, kept = file.stat().st_size, int(mine[-1]) if mine else 0
    os.truncate(file, min(size, kept))
    return max(0, size - kept)
