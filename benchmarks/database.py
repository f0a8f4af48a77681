"""`python -m benchmarks.database`: jobs in a database, and procrastinate on the same PostgreSQL in the same run.

Both sides send the same jobs in batches, and one worker process of each empties the queue with a handler that does
nothing. The rate counts from the first handler's start to the last one's. The peer needs `pip install procrastinate`.
Commits are durable on all sides. It takes turns, a run of each side after the other, and says the median.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple

from benchmarks.rig import quiet_logs
from benchmarks.shared import Marks
from benchmarks.work import NAME, QUEUE, payload, specs
from delayq.app import driver_factory
from delayq.core.outcome import Policy
from delayq.core.states import OnConflict
from delayq.drivers.database.connection import DatabaseConnection
from delayq.drivers.database.schema import migrate
from delayq.jobs.current import make_manager
from delayq.jobs.function import job
from delayq.jobs.registry import Registry, using
from delayq.manager import Manager
from delayq.settings import Settings
from delayq.worker.fork import fork, is_told
from delayq.worker.options import WorkerOptions
from delayq.worker.plan import Plan
from delayq.worker.supervisor import Supervisor
from tests.support.mariadb import mariadb
from tests.support.postgres import postgres

BATCH: Final = 500
PATIENCE_S: Final = 120.0
WANTED: Final = 5_000


class Rates(NamedTuple):
    """Jobs a second."""

    sent: float
    worked: float


def delayq_on(url: str, count: int) -> Rates:
    """A connection of the driver `database`."""
    settings = Settings(connections={"jobs": {"driver": "database", "url": url}}, connection="jobs")
    with closing(make_manager(settings)) as manager:
        connection = manager.connection("jobs")
        assert isinstance(connection, DatabaseConnection)
        migrate(connection.broker.database, connection.broker.tables)
        connection.broker.clear(QUEUE)
        jobs = specs(count, delay=None)
        began = time.perf_counter()
        for start in range(0, count, BATCH):
            connection.schedule_many(jobs[start : start + BATCH], OnConflict.KEEP)
        sent = count / (time.perf_counter() - began)
        connection.close()
        return Rates(sent, _worked(manager, count))


def _worked(manager: Manager, count: int) -> float:
    marks = Marks(count)
    with using(Registry()) as registry:

        @job(NAME, queue=QUEUE)
        def close(order_id: int, customer: str, total: str, note: str) -> None:
            marks.cells[order_id] = time.perf_counter()

    options = WorkerOptions(queues=(QUEUE,), fallback=Policy(tries=1, backoff=Settings().backoff), mover=False)
    factory = driver_factory(manager, "jobs")

    def work(pipe: int) -> None:
        Supervisor(Plan(factory, registry, options, told=partial(is_told, pipe))).run()

    worker = fork(work, [])
    try:
        marks.wait(PATIENCE_S)
    finally:
        worker.tell()
        worker.wait()
    return _rate(marks)


def procrastinate_on(url: str, count: int, concurrency: int) -> Rates:
    """The peer. `concurrency`: how many of its asyncio handlers may run side by side."""
    procrastinate: Any = import_module("procrastinate")  # of the group `peers`, which few have
    marks = Marks(count)
    where = url.partition("?host=")[2]
    conninfo = f"host={where} user=delayq dbname=postgres"
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=conninfo))

    async def handler(order_id: int, customer: str, total: str, note: str) -> None:
        marks.cells[order_id] = time.perf_counter()

    close = app.task(queue=QUEUE, name=NAME)(handler)

    async def send() -> float:
        async with app.open_async():
            if not await app.check_connection_async():
                await app.schema_manager.apply_schema_async()
            began = time.perf_counter()
            for start in range(0, count, BATCH):
                await close.batch_defer_async(*map(payload, range(start, min(count, start + BATCH))))
            return count / (time.perf_counter() - began)

    async def serve() -> None:
        async with app.open_async():
            words: dict[str, Any] = {"delete_jobs": "successful", "install_signal_handlers": False}
            await app.run_worker_async(queues=[QUEUE], wait=False, concurrency=concurrency, **words)

    sent = asyncio.run(send())
    worker = fork(lambda pipe: asyncio.run(serve()), [])
    try:
        marks.wait(PATIENCE_S)
    finally:
        worker.wait()
    return Rates(sent, _rate(marks))


def _rate(marks: Marks) -> float:
    taken = sorted(marks.taken())
    return (len(taken) - 1) / (taken[-1] - taken[0])


@contextmanager
def sqlite() -> Iterator[str]:
    """A file on the disk of the working directory: a folder in memory would have no disk to wait for."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=".") as folder:
        yield f"sqlite:///{folder}/jobs.db"


def median(runs: list[Rates]) -> Rates:
    """Of each rate."""
    return Rates(statistics.median(run.sent for run in runs), statistics.median(run.worked for run in runs))


def main(argv: list[str] | None = None) -> int:
    """1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.database", description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of delayq in one run (default 20000)")
    parser.add_argument("--peer-jobs", type=int, default=4_000, help="jobs of the peer in one run (default 4000)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side (default 3)")
    given = parser.parse_args(argv)
    with quiet_logs(), postgres(durable=True) as server, sqlite() as file, mariadb() as other:
        sides: dict[str, Callable[[], Rates]] = {
            "delayq on SQLite": partial(delayq_on, file, given.jobs),
            "delayq on MariaDB": partial(delayq_on, other, given.jobs),
            "delayq on PostgreSQL": partial(delayq_on, server, given.jobs),
            "procrastinate, concurrency 1": partial(procrastinate_on, server, given.peer_jobs, 1),
            "procrastinate, concurrency 10": partial(procrastinate_on, server, given.peer_jobs, 10),
        }
        runs: dict[str, list[Rates]] = {side: [] for side in sides}
        for _ in range(given.repeats):
            for side, run in sides.items():
                runs[side].append(run())
                print(f"{side}: {runs[side][-1]}", file=sys.stderr, flush=True)
    return report({side: median(some) for side, some in runs.items()})


def report(rates: dict[str, Rates]) -> int:
    """Print the table; 1 when a target is missed."""
    print("| side | sent /s | worked /s |\n|---|---|---|")
    for side, rate in rates.items():
        print(f"| {side} | {rate.sent:,.0f} | {rate.worked:,.0f} |")
    peer = max(rate.worked for side, rate in rates.items() if side.startswith("procrastinate"))
    lite, ours = rates["delayq on SQLite"].worked, rates["delayq on PostgreSQL"].worked
    print(f"\nSQLite: {lite:,.0f} worked a second, wanted {WANTED:,}. PostgreSQL: {ours / peer:.1f} x the peer's best.")
    return 0 if lite >= WANTED and ours > peer else 1


if __name__ == "__main__":
    sys.exit(main())
