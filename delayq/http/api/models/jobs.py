"""Jobs: what is asked for, and what is told of them."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Raw, Struct, field

from delayq.core.spec import JobSpec
from delayq.core.unique import unique_from
from delayq.http.api.models.words import Duration, Epoch, Instant, JobId, JobName, Limit, Queue, Reason

OnConflict = Literal["keep", "replace", "postpone", "error"]
State = Literal["scheduled", "ready", "reserved", "failed", "completed"]
MOST_BATCH = 1_000


class NewJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to schedule. At most one of `delay` and `at`; neither means now."""

    name: JobName
    data: Annotated[Raw, Meta(description="Anything JSON can carry.", examples=[{"order_id": 42}])] = field(
        default_factory=lambda: Raw(b"null")
    )
    queue: Queue | None = None
    delay: Duration | None = None
    at: Instant | None = None
    tz: Annotated[str, Meta(description="Time zone of an `at` without offset.", examples=["Europe/Berlin"])] | None = (
        None
    )
    fold: Annotated[int, Meta(ge=0, le=1, description="Which is meant when clocks go back.")] | None = None
    id: JobId | None = None
    tries: Annotated[int, Meta(ge=0, le=1_000_000, description="0 = no limit.")] | None = None
    backoff: Duration | Annotated[list[Duration], Meta(max_length=100)] | None = None
    retention: Duration | None = None
    unique: Annotated[str, Meta(min_length=1, max_length=1_000)] | None = None
    unique_for: (
        Annotated[
            Duration,
            Meta(description="How long `unique`, or else the name with its payload, is locked, whatever the job does."),
        ]
        | None
    ) = None
    headers: dict[str, str] | None = None
    tags: Annotated[list[str], Meta(max_length=100)] | None = None
    timeout: Duration | None = None
    deadline: Limit | None = None
    retry_until: Limit | None = None
    max_exceptions: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    encrypted: bool | None = None

    def spec(self, job_id: str | None = None, *, read: bool = False) -> JobSpec:
        """What the engine is asked for; `job_id` stands in for an id that was not given.

        `read`: whether the payload was read already; else the engine does.
        """
        data = self.data if read else bytes(self.data)
        own_id = self.id if self.id is not None else job_id
        if _seldom(self) == _UNSAID:
            return JobSpec(name=self.name, data=data, queue=self.queue, delay=self.delay, id=own_id)
        return JobSpec(
            name=self.name,
            data=data,
            queue=self.queue,
            delay=self.delay,
            at=self.at,
            tz=self.tz,
            fold=self.fold,
            id=own_id,
            tries=self.tries,
            backoff=self.backoff,
            retention=self.retention,
            unique=unique_from(self.unique, self.unique_for),
            headers=self.headers,
            tags=self.tags,
            timeout=self.timeout,
            deadline=self.deadline,
            retry_until=self.retry_until,
            max_exceptions=self.max_exceptions,
            encrypted=self.encrypted,
        )


# Most jobs say none of these. To look at all of them at once costs a third of what it costs to hand them over.
_SELDOM: Final = tuple(
    member for member in NewJob.__struct_fields__ if member not in ("name", "data", "queue", "delay", "id")
)
_UNSAID: Final = (None,) * len(_SELDOM)
_seldom: Final = attrgetter(*_SELDOM)


class NewJobAlone(NewJob, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job, and how it is sent."""

    on_conflict: OnConflict = "keep"
    durability: Annotated[str, Meta(description="memory, replicas:n or fsync.", examples=["memory"])] | None = None


class NewJobs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Up to 1,000 jobs. All are checked before the first is sent."""

    jobs: Annotated[list[NewJob], Meta(min_length=1, max_length=MOST_BATCH)]
    on_conflict: OnConflict = "keep"
    durability: str | None = None


class NewTime(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another due time: exactly one of `delay` and `at`."""

    delay: Duration | None = None
    at: Instant | None = None
    tz: str | None = None
    fold: Annotated[int, Meta(ge=0, le=1)] | None = None


class Again(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A retry. `data`, when it is there, takes the place of the payload."""

    data: Annotated[Raw, Meta(description="Anything JSON can carry.", examples=[{"order_id": 42}])] = field(
        default_factory=Raw
    )
    reason: Reason | None = None


class Copy(Again, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A clone of a job: its id (else a new one), and when it is due (else at once)."""

    id: JobId | None = None
    delay: Duration | None = None


class Scheduled(Struct, frozen=True, kw_only=True):
    """What became of a job that was scheduled, moved or retried."""

    id: JobId
    queue: Queue
    state: str
    due_ms: Epoch | None
    due: str | None
    outcome: Annotated[str, Meta(examples=["created"])]
    name: str = ""


class ScheduledJobs(Struct, frozen=True, kw_only=True):
    """What became of each job, in the order given; and how many had which outcome."""

    jobs: list[Scheduled]
    outcomes: dict[str, int]


class Answered(Struct, frozen=True, kw_only=True):
    """What became of a job that was cancelled or forgotten."""

    id: JobId
    queue: Queue
    outcome: str


class JobRow(Struct, frozen=True, kw_only=True):
    """A job as lists have it. `data` of an encrypted one only says that it is."""

    id: str
    name: str | None
    queue: Queue
    state: State
    due_ms: Epoch | None
    due: str | None
    attempts: int | None
    tries: int | None
    data: Any
    encrypted: bool
    created_ms: Epoch | None
    created: str | None
    failed_ms: Epoch | None
    failed: str | None
    forget_ms: Epoch | None
    forget: str | None


class JobInFull(JobRow, frozen=True, kw_only=True):
    """Everything known about a job."""

    error: dict[str, Any] | None
    result: Any
    retention_ms: int | None
    headers: dict[str, str]
    tags: list[str]
    recoveries: int
    entry: str | None
    consumer: str | None
    idle_ms: int | None
    cancel_asked_ms: Epoch | None
    cancel_asked: str | None
    progress: dict[str, Any] | None


class JobReason(Struct, frozen=True, kw_only=True):
    """One reason: a short name that stays, how much it weighs, a sentence, and what to do ('' = nothing)."""

    code: str
    weight: Literal["fine", "wait", "held", "problem"]
    what: str
    next: str


class JobReasons(Struct, frozen=True, kw_only=True):
    """Why a job is where it is, the heaviest reason first."""

    id: str
    name: str
    queue: str
    state: str
    reasons: list[JobReason]


class JobPage(Struct, frozen=True, kw_only=True):
    """Some jobs. A page may be short, even empty: only `next_cursor` null is the end."""

    jobs: list[JobRow]
    next_cursor: str | None


class JobType(Struct, frozen=True, kw_only=True):
    """How the attempts of all jobs of one name ended and how long they ran.

    `retried`: attempts that failed and were tried again; `failed`: those that failed for good; `other`: snoozed,
    discarded, or stopped as asked. `failure_rate`: the share of `retried` and `failed` among these and `done`.
    `name` is `unknown` for jobs without a handler in their worker, and `(other)` for all names beyond 200 of a queue.
    """

    name: str
    queues: list[Queue]
    attempts: int
    per_minute: float
    done: int
    retried: int
    failed: int
    other: int
    failure_rate: Annotated[float, Meta(ge=0, le=1)] | None
    p50_ms: float | None
    p99_ms: float | None
    mean_ms: float | None
    took_ms: float


class JobTypes(Struct, frozen=True, kw_only=True):
    """Metrics by job name from `since_ms` to `now_ms`; `queue` null: of all queues that the key covers."""

    queue: Queue | None
    since_ms: Epoch
    since: str
    now_ms: Epoch
    now: str
    job_types: list[JobType]
