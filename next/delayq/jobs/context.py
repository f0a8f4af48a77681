"""The context of a running job: facts for its handler, and progress reports of the handler."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from delayq.core.envelope import REFUSED, Envelope
from delayq.core.errors import DelayqError, InvalidInput

if TYPE_CHECKING:  # these modules import this one
    from delayq.jobs.batch import RunningBatch
    from delayq.jobs.chain import RunningChain

MAX_NOTE: Final = 500


def _not_stopping() -> bool:
    return False


def _drop(progress: dict[str, Any]) -> None:
    """Ignore a progress report, because the job runs without a worker that could store it."""


class JobContext:
    """The running job, as its handler sees it.

    To receive this object, annotate a parameter of the handler with this class.

    * `id`, `name`, `queue`: the id, name and queue of the job.
    * `attempt`: the number of this attempt, counted from 1. `tries`: the limit of attempts; 0 = no limit.
    * `recoveries`: the number of times that a worker vanished (died, or lost the lease) while it had this job.
    * `due_ms`: the due time, in epoch ms.
    * `token`: a text that grows with each delivery of the job. A database can use the token to reject late writes of an
      older delivery. The token is '' if the job runs without a worker, for example by `dispatch_sync`. Limits are then
      not checked.
    * `place_ms`: how long the job keeps a place under a concurrency limit at most, in ms: the timeout of the job, plus
      the `timeout_grace` of the worker and 8 s; 0 = the job has no timeout. A limit with `expire_after` uses that
      time instead.
    * `headers`, `tags`: the headers (a mapping) and tags (a tuple) of the job.
    * `raw`: the envelope as stored in Redis, in bytes.
    * `chain`, `batch`: the chain and the batch of the job.
    """

    used_chain: "RunningChain | None" = None
    """The chain, if the handler has used it."""

    def __init__(
        self,
        envelope: Envelope,
        raw: bytes,
        *,
        tries: int,
        due_ms: int,
        recoveries: int = 0,
        token: str = "",
        place_ms: int = 0,
        is_stopping: Callable[[], bool] = _not_stopping,
        on_progress: Callable[[dict[str, Any]], None] = _drop,
    ) -> None:
        self.id = envelope.id
        self.name = envelope.name
        self.queue = envelope.queue
        self.attempt = envelope.attempts + 1
        self.tries = tries
        self.recoveries = recoveries
        self.due_ms = due_ms
        self.token = token
        self.place_ms = place_ms
        self.headers: Mapping[str, str] = envelope.headers or {}
        if REFUSED in self.headers:
            self.headers = {name: value for name, value in self.headers.items() if name != REFUSED}
        self.tags: tuple[str, ...] = tuple(envelope.tags or ())
        self.raw = raw
        self._is_stopping = is_stopping
        self._on_progress = on_progress

    def __repr__(self) -> str:
        """Leave the payload out, because payloads do not belong in a log."""
        return f"JobContext(id={self.id!r}, name={self.name!r}, queue={self.queue!r}, attempt={self.attempt})"

    @property
    def chain(self) -> "RunningChain":
        """The jobs that follow this job. A job without a chain can begin one.

        Raises DelayqError for a job that runs without a worker, and for a chain that another program has damaged.
        """
        raise DelayqError(f"The job {self.name!r} runs without a worker, so no jobs follow it.")

    @property
    def batch(self) -> "RunningBatch | None":
        """The batch of this member or callback; None = the job belongs to no batch, or runs without a worker."""
        return None

    @property
    def stopping(self) -> bool:
        """True if the handler should end soon: the job was cancelled or timed out, or its worker is shutting down."""
        return self._is_stopping()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report the progress of the job. `delayq show` displays the last report, about one second later.

        `done` and `total` are numbers, 0 or more, such as 3 of 10 files; `total` None = not known. `note` is cut to 500
        characters. Raises InvalidInput for other values of `done` and `total`.
        """
        for field, value in (("done", done), ("total", total)):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (is_number and value >= 0) and not (field == "total" and value is None):  # type: ignore[operator]
                raise InvalidInput(f"{field} is {value!r}.", hint="Give a number, 0 or more.", field=field)
        self._on_progress({"done": done, "total": total, "note": note[:MAX_NOTE]})
