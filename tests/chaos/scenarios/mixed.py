"""Everything at once, by chance; and workers of two versions side by side."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from delayq.redis.keys import Keys
from tests.chaos.engine import ROOT, Lot, Tally
from tests.chaos.world import ALWAYS, crew, rig, server, told, verdict
from tests.support.chaos_oracle import judge
from tests.support.chaos_producer import ProducerLog, plan, produce
from tests.support.chaos_rig import QUEUE, Rig, Size, is_idle
from tests.support.servers import LocalServer, connect
from tests.support.waiting import wait_until

MINUTE_S = 60.0
JOBS_A_MINUTE = 2_000
EARLIER = "DELAYQ_CHAOS_FROM"
DEFAULT = "HEAD~1"


def anything(lot: Lot) -> Tally:
    """A minute for each unit: kill, freeze, restart, stop, forget, cut, one after another, from the seed."""
    rand, tally = lot.rand, Tally()
    size = Size(jobs=JOBS_A_MINUTE * lot.units, seconds=MINUTE_S * lot.units, longest_ms=15, workers=4, movers=2)
    with server(persistent=True, options=ALWAYS) as one, rig(lot, one, size, lease_ms=1_000) as run:
        end = time.monotonic() + MINUTE_S * lot.units
        while time.monotonic() < end:
            time.sleep(rand.uniform(0.1, 1.0))
            name = rand.choice(list(NEMESES))
            NEMESES[name](run, one)
            tally.add(**{name: 1})
        run.finish(timeout=180)
        return tally.add(**told(verdict(run)).counts)


def _kill(run: Rig, one: LocalServer) -> None:
    run.kill(*run.rand.sample(run.posts, run.rand.randint(1, 3)))


def _kill_child(run: Rig, one: LocalServer) -> None:
    run.kill_child(run.rand.choice([post for post in run.posts if post.is_worker]))


def _freeze(run: Rig, one: LocalServer) -> None:
    post = run.rand.choice([post for post in run.posts if post.holder.is_alive()])
    run.signal(post, signal.SIGSTOP)
    time.sleep(run.rand.uniform(0.1, 4.0))
    run.signal(post, signal.SIGCONT)


def _end(run: Rig, one: LocalServer) -> None:
    """TERM, as an operator does, and another one."""
    post = run.rand.choice([post for post in run.posts if post.is_worker])
    os.kill(post.pid, signal.SIGTERM)
    post.holder.join(60)
    post.holder = run.crew.hire(post.duty, post.life)


def _restart(run: Rig, one: LocalServer) -> None:
    one.kill()
    time.sleep(run.rand.choice((0.0, 0.2, 2.0)))
    one.start()


def _stop(run: Rig, one: LocalServer) -> None:
    one.stop()
    time.sleep(run.rand.uniform(0.1, 3.0))
    one.cont()


def _forget(run: Rig, one: LocalServer) -> None:
    run.client.script_flush()


def _cut(run: Rig, one: LocalServer) -> None:
    for kind in ("normal", "pubsub"):
        run.client.client_kill_filter(_type=kind, skipme=True)


NEMESES: dict[str, Callable[[Rig, LocalServer], None]] = {
    "kills": _kill,
    "kills_of_children": _kill_child,
    "freezes": _freeze,
    "orderly_ends": _end,
    "kills_of_the_server": _restart,
    "stops_of_the_server": _stop,
    "script_flushes": _forget,
    "cuts": _cut,
}


# -- two versions ------------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from pathlib import Path
from tests.support.crew import Duty, serve
serve(Duty(url=sys.argv[1], folder=Path(sys.argv[2]), lease_ms=1_000))
"""


def earlier() -> str:
    """Which commit is the other version."""
    return os.environ.get(EARLIER, DEFAULT)


def no_earlier_commit() -> str:
    """Why there is no other version here."""
    words = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{earlier()}^{{commit}}"]
    found = subprocess.run(words, capture_output=True, check=False)
    return "" if found.returncode == 0 else f"there is no commit {earlier()} here ({EARLIER} names another)"


def upgrade(lot: Lot) -> Tally:
    """A worker with mover and janitor of each; they are ended and started in turn, as in a rolling upgrade and back."""
    older = lot.folder / "older"
    words = ["git", "-C", str(ROOT), "archive", earlier(), "delayq", "scripts", "tests"]
    packed = subprocess.run(words, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(older, filter="data")
    given = {"seed": lot.own_seed, "jobs": lot.units, "longest_ms": 8}
    with server() as one, crew(lot, one.url) as members, connect(one.url) as plain, ExitStack() as stack:
        start = partial(_version, one.url, lot.folder)
        running = [stack.enter_context(start(older)), stack.enter_context(start(ROOT))]
        members.hire(members.duty_with({**given, "seconds": lot.units / 100}), produce)
        log, keys, turns = ProducerLog(lot.folder), Keys("delayq", QUEUE), 0
        while len(log.asked()) < lot.units:
            process = running.pop(0)
            process.terminate()
            assert process.wait(60) in {0, -signal.SIGTERM}, "one that has not begun dies of it, others leave"
            running.append(stack.enter_context(start(older if turns % 2 == 0 else ROOT)))
            turns += 1
            time.sleep(lot.rand.uniform(0.5, 3.0))
        wait_until(lambda: is_idle(plain, keys), timeout=120, what="all is done")
        found = judge(plain, keys, plan(lot.own_seed, lot.units, 8), log, members.ledger)
    assert found.wrong == [], found.wrong[:10]
    assert found.run_twice == 0, f"{found.run_twice} ran again, and nobody was killed"
    return told(found).add(times_a_version_was_replaced=turns)


@contextmanager
def _version(url: str, folder: Path, root: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": str(root)}
    words = [sys.executable, "-c", PROGRAM, url, str(folder)]
    with subprocess.Popen(words, cwd=root, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()
