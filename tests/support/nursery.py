"""A process that has imported everything and forks workers and movers on demand, so that thousands may be killed.

    python -m tests.support.nursery URL LEDGER LEASE_MS WORK_MS

reads one word a line (`worker` or `mover`), forks such a process and prints its pid. Handlers append one line to the
ledger at every start and end: `start|end id attempt token pid`. The file is opened for appending, so lines of
different processes never mix. End of input ends the nursery; what it forked is the caller's to end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

from delayq.core.backoff import Fixed
from delayq.core.options import Options
from delayq.core.outcome import Policy
from delayq.drivers.redis_streams import RedisStreams
from delayq.jobs.context import JobContext
from delayq.jobs.function import job
from delayq.jobs.registry import Registry, using
from delayq.loops.janitor import Janitor
from delayq.loops.loop import Loop
from delayq.loops.mover import Mover
from delayq.redis.connect import Connector
from delayq.worker.options import WorkerOptions
from delayq.worker.worker import Worker

QUEUE = "chaos"


def main() -> None:
    url, ledger, lease_ms, work_ms = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the killed; the system reaps them
    options = Options(lease_ms=lease_ms, tidy_every_ms=lease_ms // 2)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.close(0)
            _child(line.strip(), RedisStreams(Connector(url), options), ledger, work_ms)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _child(role: str, driver: RedisStreams, ledger: str, work_ms: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        if role == "worker":
            _work(driver, ledger, work_ms)
        else:
            _move(driver)
    finally:
        os._exit(0)


def _work(driver: RedisStreams, ledger: str, work_ms: int) -> None:
    note = _writer(ledger)
    registry = Registry()
    with using(registry):

        @job("chaos.step")
        def step(n: int, context: JobContext) -> str:
            note("start", context)
            time.sleep(work_ms / 1000)
            note("end", context)
            return context.token

    policy = Policy(tries=5, backoff=Fixed(100), retention_ms=3_600_000)
    options = WorkerOptions(
        queues=(QUEUE,), fallback=policy, mover=False, tidy_every_ms=driver.options.tidy_every_ms, sleep_ms=200
    )
    Worker(driver, registry, options).run()


def _move(driver: RedisStreams) -> None:
    janitor = Loop(Janitor(driver, (QUEUE,), tidy_every_s=driver.options.tidy_every_ms / 1000))
    janitor.start()
    Loop(Mover(driver, (QUEUE,))).run()


def _writer(path: str) -> Callable[[str, JobContext], None]:
    ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(word: str, context: JobContext) -> None:
        os.write(ledger, f"{word} {context.id} {context.attempt} {context.token} {os.getpid()}\n".encode())

    return note


if __name__ == "__main__":
    main()
