"""Workers and movers as processes of their own, to be stopped, killed and frozen.

They are forked from a server that has everything imported already, so a new one costs milliseconds and not half a
second of processor time. Their handlers write the ledger:

    note     {"ms": 5}               start, work that long, end; the token is the result. With {"until": "go"} it works
                                     on until there is such a file in the folder
    tick     {}                      one line, the start
    shaky    {"ms": 5, "fails": 2}   the first attempts fail
    spin     {"ms": 5}               as `note`, with the interpreter's lock held
    deadly   {}                      start, then SIGKILL to the whole worker: its supervisor, and so its own process
    crash    {}                      start, then SIGKILL to its own process alone
    version  {"g": 3, "ms": 5}       start-3, work that long, end-3
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from delayq.core.backoff import Fixed
from delayq.core.durability import parse_durability
from delayq.core.options import Options
from delayq.core.outcome import Policy
from delayq.drivers.redis_streams import RedisStreams, RedisStreamsFactory
from delayq.jobs.context import JobContext
from delayq.jobs.function import job
from delayq.jobs.registry import Registry, using
from delayq.loops.janitor import Janitor
from delayq.loops.loop import Loop
from delayq.loops.mover import Mover
from delayq.redis.connect import Connector
from delayq.worker.options import WorkerOptions
from delayq.worker.plan import Plan
from delayq.worker.signals import Signals
from delayq.worker.supervisor import Supervisor
from tests.support.ledger import Ledger
from tests.support.waiting import wait_until

END_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """What one process does. `worker` False: mover and janitor alone. `more` goes to the worker's options."""

    url: str
    folder: Path
    worker: bool = True
    queues: tuple[str, ...] = ("orders",)
    lease_ms: int = 1_000
    tidy_every_ms: int = 1_000
    tries: int = 5
    max_recoveries: int = 3
    durability: str = "memory"
    more: dict[str, Any] = field(default_factory=dict)

    def options(self) -> Options:
        """What the engine is told."""
        return Options(
            lease_ms=self.lease_ms,
            tidy_every_ms=self.tidy_every_ms,
            backoff=Fixed(50),
            tries=self.tries,
            max_recoveries=self.max_recoveries,
            durability=parse_durability(self.durability),
        )

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.txt"

    def log(self, pid: int) -> Path:
        return self.folder / f"log-{pid}.txt"


def whole(pid: int) -> list[int]:
    """A process and all below it: a worker is a supervisor and its children."""
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split() if Path(f"/proc/{pid}").exists() else []
    return [pid, *(found for child in below for found in whole(int(child)))]


def runs(pid: int) -> bool:
    """Whether a process lives; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Crew:
    """The processes of one test; none outlives it."""

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self.ledger = Ledger(duty.ledger)
        self.members: list[ForkServerProcess] = []
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.support.crew"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.kill()  # also one that is frozen
        for member in self.members:
            member.join(END_S)
            member.close()
        self.ledger.close()

    def hire(self, duty: Duty | None = None, life: Callable[[Duty], None] | None = None) -> ForkServerProcess:
        """Start one more process; `life` is what it does, `serve` unless told otherwise."""
        member = self._context.Process(target=life or serve, args=(duty or self.duty,), daemon=True)
        member.start()
        self.members.append(member)
        return member

    def duty_with(self, more: dict[str, Any]) -> Duty:
        """The crew's duty with `more` of its own."""
        return replace(self.duty, more=more)

    def duty_beside(self, url: str, folder: Path, more: dict[str, Any]) -> Duty:
        """The same on another way to the server, with files of its own."""
        return replace(self.duty, url=url, folder=folder, more=more)

    def kill_all(self, members: Sequence[ForkServerProcess]) -> int:
        """SIGKILL to each of them at once, children and all; when that began, in epoch ms."""
        pids = [pid for member in members for pid in whole(member.pid or 0)]
        began_ms = int(time.time() * 1000)
        for member in members:
            member.kill()
        for member in members:
            member.join(END_S)
        wait_until(lambda: not any(map(runs, pids)), what="their children die with them")
        return began_ms

    def log_of(self, member: ForkServerProcess) -> str:
        """What a member logged."""
        assert member.pid is not None
        path = self.duty.log(member.pid)
        return path.read_text() if path.exists() else ""

    def logs(self) -> str:
        """What all members logged."""
        return "".join(path.read_text() for path in sorted(self.duty.folder.glob("log-*.txt")))


def serve(duty: Duty) -> None:
    """The life of one process; it ends with the exit code of its worker."""
    logging.basicConfig(
        filename=duty.log(os.getpid()), level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s"
    )
    if duty.worker:
        raise SystemExit(_work(duty))
    driver = RedisStreams(Connector(duty.url), duty.options())
    loops = [Loop(Mover(driver)), Loop(Janitor(driver, tidy_every_s=duty.tidy_every_ms / 1000))]
    with Signals() as signals:
        for loop in loops:
            loop.start()
        while not signals.stops:
            signals.wait(END_S)
        for loop in loops:
            loop.stop()


def _work(duty: Duty) -> int:
    ledger, options = Ledger(duty.ledger), duty.options()
    given: dict[str, Any] = {
        "queues": duty.queues,
        "fallback": Policy(tries=options.tries, backoff=options.backoff),
        "tidy_every_ms": duty.tidy_every_ms,
        "sleep_ms": 200,
        "max_recoveries": duty.max_recoveries,
        **duty.more,
    }
    plan = Plan(RedisStreamsFactory(duty.url, options), _handlers(ledger, duty.folder), WorkerOptions(**given))
    reason = Supervisor(plan).run()
    logging.getLogger("delayq.crew").info("stopped: %s", reason)
    return reason.exit_code


def _handlers(ledger: Ledger, folder: Path) -> Registry:
    with using(Registry()) as registry:

        @job("note")
        def note(context: JobContext, ms: int = 0, until: str = "") -> str:
            ledger.write("start", context)
            time.sleep(ms / 1000)
            while until and not (folder / until).exists():
                time.sleep(0.005)
            ledger.write("end", context)
            return context.token

        @job("shaky")
        def shaky(context: JobContext, ms: int = 0, fails: int = 1) -> str:
            ledger.write("start", context)
            time.sleep(ms / 1000)
            if context.attempt <= fails:
                ledger.write("fail", context)
                raise ValueError(f"attempt {context.attempt} fails as it was told to")
            ledger.write("end", context)
            return context.token

        @job("version")
        def version(context: JobContext, g: int, ms: int = 0) -> None:
            ledger.write(f"start-{g}", context)
            time.sleep(ms / 1000)
            ledger.write(f"end-{g}", context)

        _rough_ones(ledger)
    return registry


def _rough_ones(ledger: Ledger) -> None:
    """Those that are no friends of their worker, and one that is over before it began."""

    @job("tick")
    def tick(context: JobContext) -> None:
        ledger.write("start", context)

    @job("spin")
    def spin(context: JobContext, ms: int = 0) -> None:
        ledger.write("start", context)
        end = time.monotonic() + ms / 1000
        while time.monotonic() < end:
            sum(range(20_000_000))  # one call into C: no other thread runs meanwhile
        ledger.write("end", context)

    @job("deadly")
    def deadly(context: JobContext) -> None:
        ledger.write("start", context)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    @job("crash")
    def crash(context: JobContext) -> None:
        ledger.write("start", context)
        os.kill(os.getpid(), signal.SIGKILL)
