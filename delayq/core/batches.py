"""What is told of a batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """A batch as it stands. Members are counted where they are, so the four numbers always make up `total`.

    `skipped`: members that will not run, because they were cancelled or stand behind a link that failed. Times are
    epoch ms. `finished_ms` is set when every member has ended, however it did; a retry takes it away again. `owner`:
    who dispatched it, user@host/pid; '' where that is not known.
    """

    id: str
    name: str
    pending: int
    done: int
    failed: int
    skipped: int
    created_ms: int
    cancelled_ms: int | None
    finished_ms: int | None
    allow_failures: bool
    owner: str = ""

    @property
    def total(self) -> int:
        """All members."""
        return self.pending + self.done + self.failed + self.skipped

    @property
    def processed(self) -> int:
        """Members that have ended."""
        return self.total - self.pending

    @property
    def progress(self) -> int:
        """Per cent of the members that have ended, rounded down; 100 for an empty batch."""
        return self.processed * 100 // self.total if self.total else 100

    @property
    def state(self) -> str:
        """How it stands, in a word.

        running, cancelling (what runs goes on, nothing else starts); and when all have ended: finished (all members
        have succeeded), failed (some have failed), cancelled, incomplete (none has failed, but some were skipped).
        `then` is sent when all have succeeded, and so never with one that is incomplete.
        """
        if self.finished_ms is None:
            return "cancelling" if self.cancelled_ms is not None else "running"
        if self.failed:
            return "failed"
        if self.cancelled_ms is not None:
            return "cancelled"
        return "incomplete" if self.skipped else "finished"
