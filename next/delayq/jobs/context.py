"""What a handler may ask and tell while it runs."""

from collections.abc import Callable
from typing import Any

from delayq.core.envelope import Envelope


class JobContext:
    """The running job. A handler gets it by a parameter that is annotated with this class.

    `attempt` counts from 1; `recoveries` counts the workers that vanished while they ran the job before.
    """

    def __init__(
        self,
        envelope: Envelope,
        *,
        recoveries: int,
        is_stopping: Callable[[], bool],
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self.id = envelope.id
        self.name = envelope.name
        self.queue = envelope.queue
        self.attempt = envelope.attempts + 1
        self.recoveries = recoveries
        self._is_stopping = is_stopping
        self._report = report

    @property
    def stopping(self) -> bool:
        """Whether the job should come to an end: it was cancelled, or its worker stops."""
        return self._is_stopping()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Tell how far the job is. `show` and the dashboard have it about a second later; the last report counts."""
        self._report({"done": done, "total": total, "note": note})
