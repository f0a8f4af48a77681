"""What one read of the streams brought, sorted: deliveries, and what is none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from delayq.core.errors import DelayqError
from delayq.drivers.base import Delivery
from delayq.redis.bounded import Skipped
from delayq.redis.calls.call import text

# More digits than a time in ms has; what is longer was not written by delayq, and Python refuses very long ones.
MOST_DIGITS = 18
FIELDS = [b"id", b"job", b"due", b"recoveries"]
"""Of an entry that delayq appended, in its order."""


@dataclass(slots=True)
class Batch:
    """What was read. `garbage` are entries without an id or a job, as (queue, entry id).

    An envelope of more than `most` bytes is not kept: nobody scheduled it with delayq. It is not looked into either,
    which would take several times its size.
    """

    most: int
    deliveries: list[Delivery] = field(default_factory=list)
    garbage: list[tuple[str, str]] = field(default_factory=list)
    errors: list[DelayqError] = field(default_factory=list)
    more: bool = False
    """Not all was asked for: together it would be too large."""

    @property
    def size(self) -> int:
        """Bytes of the envelopes it holds."""
        return sum(len(delivery.raw) for delivery in self.deliveries)

    def forget(self, queue: str) -> None:
        """Drop what was read of one queue, to be read anew."""
        self.deliveries = [delivery for delivery in self.deliveries if delivery.queue != queue]
        self.garbage = [one for one in self.garbage if one[0] != queue]

    def take(self, queue: str, rows: Iterable[Sequence[Any]]) -> None:
        """Sort rows of a queue's stream, (entry id, [field, value, ...] or None) each, as Redis sent them."""
        take = self.deliveries.append
        for entry, fields in rows:
            if not fields:  # the entry is gone, and tidy will see to its job
                continue
            stop = False
            if fields[::2] == FIELDS:
                _, job_id, _, raw, _, due, _, recoveries = fields
            else:  # asked to stop, foreign, or of another version
                named = dict(zip(fields[::2], fields[1::2], strict=False))
                job_id, raw, due, recoveries = map(named.get, FIELDS)
                stop = b"stop" in named
            if not job_id or raw is None:
                self.garbage.append((queue, text(entry)))
                continue
            times, why = 0 if recoveries == b"0" else _count(recoveries), ""
            due_ms = int(due) if due and len(due) <= MOST_DIGITS and due.isdigit() else 0
            if type(raw) is Skipped or len(raw) > self.most:
                size = raw.size if isinstance(raw, Skipped) else len(raw)
                why, raw = f"The envelope has {size:,} bytes; more than {self.most:,} are not read.", b""
            name = job_id.decode("utf-8", "backslashreplace")
            take(Delivery(queue, name, entry.decode(), raw, due_ms, times, stop, why))


def _count(value: bytes | None) -> int:
    return int(value) if value and len(value) <= MOST_DIGITS and value.isdigit() else 0
