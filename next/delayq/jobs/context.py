"""The context of a running job: questions and reports of its handler."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from delayq.core.envelope import Envelope
from delayq.core.errors import InvalidInput

MAX_NOTE: Final = 500


def _not_stopping() -> bool:
    return False


def _drop(progress: dict[str, Any]) -> None:
    """Drop a progress report: where no worker runs the job, nothing reads it."""


class JobContext:
    """The running job. A handler gets it by a parameter that is annotated with this class.

    `attempt` counts from 1, `tries` is how many there are (0 = no limit), `recoveries` counts the workers that vanished
    while they ran the job before. `due_ms` is when it was due, in epoch ms. `token` grows with every delivery: a
    database may refuse a write that comes with an older one. `raw` is the envelope as it travelled.
    """

    def __init__(
        self,
        envelope: Envelope,
        raw: bytes,
        *,
        tries: int,
        due_ms: int,
        recoveries: int = 0,
        token: str = "",
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
        self.headers: Mapping[str, str] = envelope.headers or {}
        self.tags: tuple[str, ...] = tuple(envelope.tags or ())
        self.raw = raw
        self._is_stopping = is_stopping
        self._on_progress = on_progress

    def __repr__(self) -> str:
        """Leave the payload out: it does not belong into a log."""
        return f"JobContext(id={self.id!r}, name={self.name!r}, queue={self.queue!r}, attempt={self.attempt})"

    @property
    def stopping(self) -> bool:
        """Whether the job should come to an end: it was cancelled, or its worker stops."""
        return self._is_stopping()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Tell how far the job is. `show` and the dashboard have it about a second later; the last report counts.

        A note is cut to 500 characters. Raises InvalidInput for anything but numbers from 0 on.
        """
        for field, value in (("done", done), ("total", total)):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (is_number and value >= 0) and not (field == "total" and value is None):  # type: ignore[operator]
                raise InvalidInput(f"{field} is {value!r}.", hint="Give a number from 0 on.", field=field)
        self._on_progress({"done": done, "total": total, "note": note[:MAX_NOTE]})
