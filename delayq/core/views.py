"""What is said of jobs and queues: plain values that travel from the engine to its users."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import msgspec

from delayq.core.control import WorkerOrder
from delayq.core.envelope import ABSENT, Envelope
from delayq.core.errors import ConfigError, DelayqError, JobHasFailed, JobNotFound
from delayq.core.failure import Failure
from delayq.core.names import LOST
from delayq.core.progress import Progress
from delayq.core.ran import Ended
from delayq.core.states import Answer, State


class Fate(StrEnum):
    """What became of a job that was not stored anywhere.

    done, released, snoozed, discarded: how it ended on a connection that runs it at once, where nobody tries it again.
    dropped: sent to the null connection. vetoed: its `prepare_for_dispatch` said no. after response, after commit: it
    is sent then, if that comes. rolled back: it did not come. not sent: it came, and the backend did not take the job.
    outbox: written in the sender's own transaction; the relay sends it. in background: a process of its own runs it.
    """

    DONE = "done"
    RELEASED = "released"
    SNOOZED = "snoozed"
    DISCARDED = "discarded"
    DROPPED = "dropped"
    VETOED = "vetoed"
    AFTER_RESPONSE = "after response"
    AFTER_COMMIT = "after commit"
    ROLLED_BACK = "rolled back"
    UNSENT = "not sent"
    OUTBOX = "outbox"
    BACKGROUND = "in background"


Delay: TypeAlias = str | timedelta
Instant: TypeAlias = str | datetime
Timeout: TypeAlias = str | timedelta


class RefHome(ABC):
    """The backend that a `JobRef` asks. It counts for nothing when answers are compared, and is not shown with them."""

    @abstractmethod
    def cancel(self, ref: JobRef, running: bool) -> Answer:
        """See `JobRef.cancel`; so are all others."""

    @abstractmethod
    async def acancel(self, ref: JobRef, running: bool) -> Answer:
        """Awaited."""

    @abstractmethod
    def reschedule(self, ref: JobRef, delay: Delay | None, at: Instant | None) -> JobRef:
        """See `JobRef`."""

    @abstractmethod
    async def areschedule(self, ref: JobRef, delay: Delay | None, at: Instant | None) -> JobRef:
        """Awaited."""

    @abstractmethod
    def run_now(self, ref: JobRef) -> JobRef:
        """See `JobRef`."""

    @abstractmethod
    async def arun_now(self, ref: JobRef) -> JobRef:
        """Awaited."""

    @abstractmethod
    def get(self, ref: JobRef) -> JobInfo | None:
        """See `JobRef.refresh`."""

    @abstractmethod
    async def aget(self, ref: JobRef) -> JobInfo | None:
        """Awaited."""

    @abstractmethod
    def wait(self, ref: JobRef, timeout: Timeout) -> JobInfo | None:
        """See `JobRef`."""

    @abstractmethod
    async def await_(self, ref: JobRef, timeout: Timeout) -> JobInfo | None:
        """Awaited."""

    @abstractmethod
    def check_results(self) -> None:
        """Raises `InvalidInput` where no results are kept."""


def ended(info: JobInfo | None) -> bool:
    """Whether a job will not run any more by itself."""
    return info is None or info.state in (State.COMPLETED, State.FAILED)


def result_of(info: JobInfo | None, ref: JobRef) -> Any:
    """The result of a job that has ended; see `JobRef.result`."""
    if info is None:
        raise JobNotFound(
            f"Nothing is kept of the job {ref.id!r} in queue {ref.queue!r}: it is done or was cancelled.",
            hint='Give it a retention, such as retention="1h", to keep its result for that long.',
        )
    if info.state is State.FAILED:
        why = f": {info.failure.type}: {info.failure.message}" if info.failure else "."
        raise JobHasFailed(
            f"The job {ref.id!r} in queue {ref.queue!r} has failed{why}", hint="Use retry to run it again."
        )
    return info.result


class JobRef(msgspec.Struct, frozen=True, dict=True):
    """The answer to a schedule, a reschedule, a retry.

    `outcome` says what happened (`created`, `kept`, `replaced`, `postponed`, `rescheduled`, …; a `Fate` if it is
    stored nowhere). When another job owns the unique key, `id` is that job's, wherever it is. `instead_of` is the job
    whose place a debounced one took. `due_ms` is None when the job no longer waits for a time. `name` is '' after
    reschedule and run_now, which do not read the job. `connection` is the one that took it where there was a choice (a
    failover), else ''.
    """

    id: str
    queue: str
    state: State
    due_ms: int | None
    outcome: Answer | Fate
    name: str = ""
    instead_of: str = ""
    connection: str = ""
    home: ClassVar[RefHome | None] = None
    """Answers the questions of this ref; kept beside the fields, so no copy that travels has it."""

    def asked_at(self, home: RefHome | None) -> Self:
        """Return this ref, after `home` was set to answer its questions; None: nothing can answer."""
        self.__dict__["home"] = home
        return self

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @property
    def latest(self) -> JobRef:
        """What is known by now: of a job that waited for a commit, what became of it; else this answer."""
        return self

    # -- what can be asked and done, in the queue that has the job -----------------------------------------------------

    def cancel(self, *, running: bool = False) -> Answer:
        """Make sure the job does not run, as `Client.cancel` in its own queue.

        Returns `cancelled`, or why not: `running`, `finished`, `failed`, `unknown`. With `running=True` a job that runs
        is asked to stop. Raises `BackendError`; `InvalidInput` when the job's connection cannot do this
        (docs/connections.md), or inside an open transaction of the database that keeps the job; `ConfigError` when
        nothing keeps the job.
        """
        ref, home = self._at_home()
        return home.cancel(ref, running)

    async def acancel(self, *, running: bool = False) -> Answer:
        """Make sure the job does not run, awaited: takes, returns and raises what `cancel` does."""
        ref, home = self._at_home()
        return await home.acancel(ref, running)

    def reschedule(self, *, delay: Delay | None = None, at: Instant | None = None) -> JobRef:
        """Give the waiting job a new due time: `delay` ('30m') from now, or `at` (RFC 3339, a datetime).

        Returns the new answer. Raises `JobNotFound`, `JobRunning`, `JobHasFailed`, `JobFinished`, and as `cancel`;
        `InvalidInput` also for a wrong time.
        """
        ref, home = self._at_home()
        return home.reschedule(ref, delay, at)

    async def areschedule(self, *, delay: Delay | None = None, at: Instant | None = None) -> JobRef:
        """Give the waiting job a new due time, awaited: takes, returns and raises what `reschedule` does."""
        ref, home = self._at_home()
        return await home.areschedule(ref, delay, at)

    def run_now(self) -> JobRef:
        """Let the waiting job run at once (on a paused queue: when it is resumed). Raises as `reschedule`."""
        ref, home = self._at_home()
        return home.run_now(ref)

    async def arun_now(self) -> JobRef:
        """Let the waiting job run at once, awaited. Returns and raises what `run_now` does."""
        ref, home = self._at_home()
        return await home.arun_now(ref)

    def refresh(self) -> JobInfo | None:
        """Everything known about the job now; None when it is done and not kept (`retention`), or was cancelled.

        Raises as `cancel`; `InvalidInput` also where a job that runs cannot be told from one that is done.
        """
        ref, home = self._at_home()
        return home.get(ref)

    async def arefresh(self) -> JobInfo | None:
        """Everything known about the job now, awaited. Returns and raises what `refresh` does."""
        ref, home = self._at_home()
        return await home.aget(ref)

    def wait(self, timeout: Timeout) -> JobInfo | None:
        """Wait until the job has ended: completed, failed, or gone. Asks the backend every 20 ms, later once a second.

        Returns what `refresh` returns then. Raises `TimeoutError` when it has not ended after `timeout` ('30s'), and as
        `cancel`.
        """
        ref, home = self._at_home()
        return home.wait(ref, timeout)

    async def await_(self, timeout: Timeout) -> JobInfo | None:
        """Wait until the job has ended, awaited. Takes, returns and raises what `wait` does."""
        ref, home = self._at_home()
        return await home.await_(ref, timeout)

    def result(self, timeout: Timeout = "0s") -> Any:
        """What the handler returned. Waits up to `timeout` ('30s') for the end of the job; by default not at all.

        Raises `TimeoutError` when it has not ended by then, `JobHasFailed` when it failed, `JobNotFound` when nothing
        is kept of it: results need a `retention`. `InvalidInput` when the job's connection keeps no results.
        """
        ref, home = self._at_home()
        home.check_results()
        return result_of(home.wait(ref, timeout), ref)

    async def aresult(self, timeout: Timeout = "0s") -> Any:
        """What the handler returned, awaited. Takes, returns and raises what `result` does."""
        ref, home = self._at_home()
        home.check_results()
        return result_of(await home.await_(ref, timeout), ref)

    def _at_home(self) -> tuple[JobRef, RefHome]:
        """The latest answer, and who to ask about it. Raises `ConfigError`."""
        ref = self.latest
        if ref.home is None:
            raise ConfigError(
                f"The job {ref.id!r} cannot be asked about through this answer ({ref.outcome}): no backend keeps the "
                "job, or the answer came from another process.",
                hint="Ask a client of its backend by the id, such as DelayQ().get(id, queue=...) for Redis.",
            )
        return ref, ref.home


class Later:
    """What becomes known of a job after its dispatch was answered."""

    __slots__ = ("ref",)

    def __init__(self) -> None:
        self.ref: JobRef | None = None


class WaitingRef(JobRef, frozen=True, kw_only=True):
    """The answer for a job that waits for a commit: `outcome` says so, and `latest` what became of it."""

    later: Later = msgspec.field(default_factory=Later)

    @property
    def latest(self) -> JobRef:
        """This answer while the transaction is open; then the backend's, or one that says `rolled back`, `not sent`."""
        return self.later.ref or self


@dataclass(frozen=True, slots=True)
class JobInfo:
    """Everything known about one job. `raw` is its envelope's bytes; `envelope` is None when they cannot be read.

    `ended` is how one that is kept as completed came to its end, as far as its worker told. `opened` is the payload of
    an encrypted job whose key is known. Only `get` looks for these two.
    """

    id: str
    queue: str
    state: State
    raw: bytes = field(repr=False)
    envelope: Envelope | None
    due_ms: int | None = None
    failed_ms: int | None = None
    forget_ms: int | None = None
    failure: Failure | None = None
    result: Any = None
    recoveries: int = 0
    entry: str = ""
    consumer: str = ""
    idle_ms: int | None = None
    cancel_asked_ms: int | None = None
    progress: Progress | None = None
    ended: Ended | None = None
    opened: msgspec.Raw | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The job's name, or '' when its envelope cannot be read."""
        return self.envelope.name if self.envelope else ""

    @property
    def data(self) -> Any:
        """The payload, decoded; None when the envelope cannot be read, or is encrypted and was not opened."""
        if self.opened is not None:
            return msgspec.json.decode(self.opened)
        return msgspec.json.decode(self.envelope.data) if self.envelope and not self.encrypted else None

    @property
    def encrypted(self) -> bool:
        """Whether its payload is encrypted; its result is then too."""
        return self.envelope is not None and self.envelope.encrypted is not ABSENT

    @property
    def is_lost(self) -> bool:
        """Whether its payload is gone: what was left is its id, so that it can be shown and forgotten, not retried."""
        return self.name == LOST

    @property
    def created_ms(self) -> int | None:
        """When its producer made it, in epoch milliseconds; None when nothing says so."""
        return self.envelope.created_ms or None if self.envelope else None

    @property
    def attempts(self) -> int | None:
        """Attempts made, with the one that succeeded; None when the envelope cannot be read.

        An envelope is rewritten by attempts that failed. One that succeeds leaves it as it is, and is counted here.
        """
        if self.envelope is None:
            return None
        return self.envelope.attempts + (self.state is State.COMPLETED)


class Retried(NamedTuple):
    """What became of one failed job that was to be retried: where it is now, or why it is not tried again.

    Both, when it is tried again and that is not as safe as its queue asks (`NotConfirmed`).
    """

    id: str
    ref: JobRef | None
    error: DelayqError | None


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs and the cursor of the next page ('' at the end)."""

    jobs: tuple[JobInfo, ...]
    cursor: str


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How much of a queue is in which state. `paused_until_ms`: None = not paused, 0 = until resumed."""

    queue: str
    scheduled: int
    ready: int
    reserved: int
    failed: int
    completed: int
    paused_until_ms: int | None
    overdue_oldest_ms: int
    lease_ms: int
    mover_tick_ms: int
    now_ms: int
    counters: Mapping[str, int]

    @property
    def paused(self) -> bool:
        return self.paused_until_ms is not None

    @property
    def load(self) -> int:
        """How much there is to do: jobs that are ready or run. What waits for its time is none of it."""
        return self.ready + self.reserved


def urgency(stats: QueueStats) -> tuple[int, int, int, int, str]:
    """Return a key that sorts queues: the longest overdue first, then what has most to do, failed, and counted."""
    overdue_ms = 0 if stats.paused else stats.overdue_oldest_ms
    return -overdue_ms, -stats.load, -stats.failed, -stats.counters.get("scheduled_total", 0), stats.queue


class ShardView(NamedTuple):
    """How much one shard of a queue holds. `load`: jobs that are ready or run."""

    name: str
    scheduled: int
    load: int
    failed: int
    completed: int


@dataclass(frozen=True, slots=True)
class QueueView:
    """What a queue keeps for itself. `shards` since `since_ms` (None = ever since); jobs may lie by `before` still.

    `paused_until_ms` as in `QueueStats`. `held` has a row for each shard that may hold jobs.
    """

    queue: str
    lease_ms: int
    paused_until_ms: int | None
    shards: int
    since_ms: int | None
    before: tuple[int, ...]
    held: tuple[ShardView, ...]


class SilentJob(NamedTuple):
    """A delivered job whose holder has been silent for longer than a lease: `silent_ms`, since it last spoke."""

    id: str
    worker: str
    silent_ms: int


@dataclass(frozen=True, slots=True)
class Silent:
    """Delivered jobs with a silent holder: how many (at most 500 in each shard are counted), and some of them."""

    count: int = 0
    jobs: tuple[SilentJob, ...] = ()

    @property
    def longest_ms(self) -> int:
        """The longest silence among the jobs listed; 0 when there is none."""
        return max((one.silent_ms for one in self.jobs), default=0)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker that said "I am here" and whose word has not expired. `about` is what else it said of itself."""

    name: str
    queues: tuple[str, ...]
    about: Mapping[str, Any]

    @property
    def worker(self) -> str:
        """The worker this process belongs to, which is what orders are given to; '' when it does not say so."""
        said = self.about.get("worker")
        return said if isinstance(said, str) else ""


@dataclass(frozen=True, slots=True)
class OrderedWorker:
    """A worker that was told something: its name, the order, and its processes as they were then."""

    name: str
    order: WorkerOrder
    processes: tuple[WorkerInfo, ...]


@dataclass(frozen=True, slots=True)
class Upcoming:
    """How many jobs fall due in each span of `span_ms` from `now_ms` on."""

    queue: str
    now_ms: int
    span_ms: int
    overdue: int
    counts: tuple[int, ...]
    later: int
