"""What a handler may know about the delivery it is running."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from delayq.core.progress import Number
from delayq.jobs.coordinated import RunningBatch, RunningChain
from delayq.jobs.stopping import Stopping
from delayq.jobs.talk import Talk


def _nobody_asked() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class JobContext:
    """One attempt, as its handler sees it.

    `attempt` counts from 1. `token` is the stream entry's id: it grows with every delivery of the job, so a handler
    may pass it to its own database to refuse a late writer (after a failover that lost writes it may repeat).
    `stop_asked()` tells whether somebody asked this job to stop (`cancel` with `running`): a handler that loops may
    look, tidy up and return. It is known within a second. `stopping` tells when the worker wants to end.
    `chain` is the rest of the chain this job is a link of, which it may prepend to and append to; `batch` the batch it
    is a member of, or None. `raw` is its envelope as it travelled (an encrypted payload is still encrypted there); b''
    where there is none, as in `run_job`.
    """

    id: str
    name: str
    queue: str
    attempt: int
    tries: int
    recoveries: int
    due_ms: int
    token: str
    headers: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    stop_asked: Callable[[], bool] = field(default=_nobody_asked, repr=False)
    talk: Talk = field(default_factory=Talk, repr=False)
    chain: RunningChain = field(default_factory=RunningChain, repr=False)
    batch: RunningBatch | None = field(default=None, repr=False)
    raw: bytes = field(default=b"", repr=False)

    @property
    def stopping(self) -> Stopping:
        """Tells when the worker wants to end: `is_set()`, `wait(seconds)`, `await arrived()`, `then(callback)`."""
        return self.talk.stopping

    def progress(self, done: Number, total: Number | None = None, note: str = "") -> None:
        """Tell how far this job is, for whoever looks: `client.progress(id)`, `delayq show`, `delayq top`.

        As often as you like: it is written three times a second at most, and dropped when the attempt ends. Raises
        `InvalidInput` for anything but numbers from 0 on. A `note` is cut to 500 characters.
        """
        self.talk.teller.progress(done, total, note)

    def partial(self, value: Any) -> None:
        """Tell a result that is not final yet: any JSON of at most 256 KiB. Raises `InvalidPayload`. As `progress`."""
        self.talk.teller.partial(value)
