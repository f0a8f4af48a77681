"""Calls of the janitor, which repair and clean up a queue, and calls of the relay, which read its outbox."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from delayq.redis.calls.call import Call, command, queue_call, read
from delayq.redis.calls.delivery import PAYLOAD_LOST
from delayq.redis.keys import Keys

PAGE: Final = 500
PRUNE_LIMIT: Final = 500
FROM_START: Final = "-"

Verdict = Literal["acked", "again", "garbage"]


class Tidied(msgspec.Struct, frozen=True, gc=False):
    """The counts of a queue, after its stream, group and `meta` were repaired.

    `regrouped`: 1 if the consumer group was repaired. `counted`: the sum of all counters. `is_new`: 1 for a new queue.
    """

    lease_ms: int
    in_stream: int
    entries: int
    scheduled: int
    failed: int
    completed: int
    jobs: int
    unique: int
    locks: int
    regrouped: int
    counted: int
    is_new: int

    @property
    def is_damaged(self) -> bool:
        """True if the counts do not match, or if a row of `unique` was lost. No script can cause such damage."""
        placed = self.scheduled + self.entries + self.failed + self.completed
        return self.in_stream != self.entries or placed != self.jobs or self.locks > self.unique


class OutsideAck(msgspec.Struct, frozen=True, gc=False):
    """An entry that `outside_acks` has found, and the verdict on it; see outside_acks.lua.

    "acked": a plain consumer acknowledged the job. "again": no worker has the job, so it must be delivered again.
    "garbage": the entry is not a job.
    """

    entry: str
    id: str
    verdict: Verdict


class OutsideAcks(msgspec.Struct, frozen=True, gc=False):
    """One page of entries that `outside_acks` has found.

    `after` is an argument for the next page; '' = this was the last page. All later pages of the pass need the `marks`
    of the first page.
    """

    after: str
    marks: str
    found: list[OutsideAck]


class Pruned(msgspec.Struct, frozen=True, gc=False):
    """The numbers of deleted completed jobs, failed jobs and windows.

    A window is the time for which a unique key with until="window" is taken.
    """

    completed: int
    failed: int
    windows: int


class FollowUp(msgspec.Struct, frozen=True, gc=False):
    """A job-end record from the outbox.

    `ended` is "done", "failed" or "cancelled". `failure` is JSON, or b'' if the job did not fail.
    """

    entry: str
    ended: str
    envelope: bytes
    failure: bytes


class Outbox(msgspec.Struct, frozen=True, gc=False):
    """One page of the outbox. `is_held`: True if another relay has reserved the outbox; `rows` is then empty."""

    is_held: bool
    is_more: bool
    rows: list[FollowUp]


def tidy(keys: Keys, queue: str, *, lease_ms: int) -> Call[Tidied]:
    """Create or repair the stream, the group and `meta` of a queue, and return the sizes of its keys."""
    return queue_call("tidy", keys, queue, lambda reply: Tidied(*reply), lease_ms=lease_ms)


def outside_acks(
    keys: Keys, queue: str, *, after: str = FROM_START, marks: str = "", scope: Literal["delivered", "all"]
) -> Call[OutsideAcks]:
    """Read one page of delivered entries that are not pending any more. Handle each page before you read the next one.

    With the scope "all", the page also contains undelivered and pending entries that are garbage.
    """

    def parse(reply: list[bytes]) -> OutsideAcks:
        next_after, next_marks, *rest = (word.decode("utf-8", "replace") for word in reply)
        rows = iter(rest)
        found = [OutsideAck(*row) for row in zip(rows, rows, rows, strict=True)]  # type: ignore[arg-type]
        return OutsideAcks(next_after, next_marks, found)

    return queue_call("outside_acks", keys, queue, parse, after=after, limit=PAGE, seen=marks, scope=scope)


def mend(keys: Keys, queue: str, job_ids: Sequence[bytes], *, now_ms: str = "") -> Call[list[str]]:
    """Repair jobs, so that each job is in exactly one state and has an envelope. The call returns a word for each id.

    The list may be shorter than `job_ids`. Then call again with the remaining ids. mend.lua explains the words.
    """
    rows = [(job_id,) for job_id in job_ids]
    return queue_call("mend", keys, queue, _read_words, now=now_ms, queue=queue, lost=PAYLOAD_LOST, rows=rows)


def bury(keys: Keys, queue: str, garbage: Sequence[tuple[str, bytes]], *, now_ms: str = "") -> Call[list[str]]:
    """Move stream entries that are not jobs to the failed jobs. The call returns a word for each entry.

    `garbage` contains the id and the failure of each entry. The list may be shorter than `garbage`. Then call again
    with the remaining rows. bury.lua explains the words.
    """
    return queue_call("bury", keys, queue, _read_words, now=now_ms, rows=garbage)


def prune(
    keys: Keys, queue: str, *, keep_failed_ms: int, windows: Sequence[bytes] = (), now_ms: str = ""
) -> Call[Pruned]:
    """Delete completed and failed jobs that were kept long enough, and those `windows` of unique keys that are over."""
    return queue_call(
        "prune",
        keys,
        queue,
        lambda reply: Pruned(*reply),
        now=now_ms,
        keep_ms=keep_failed_ms,
        limit=PRUNE_LIMIT,
        rows=[(window,) for window in windows],
    )


def remove_consumer(keys: Keys, queue: str, consumer: str, *, idle_ms: int) -> Call[bool]:
    """Remove a consumer that has no pending entries and was idle for `idle_ms`; 0 = the consumer removes itself."""
    return queue_call("consumer_remove", keys, queue, bool, consumer=consumer, idle_ms=idle_ms)


def read_outbox(
    keys: Keys, queue: str, *, relay: str, hold_ms: int, after: str = FROM_START, now_ms: str = ""
) -> Call[Outbox]:
    """Read one page of job-end records, and reserve the outbox for this relay for `hold_ms`."""

    def parse(reply: list[Any]) -> Outbox:
        rows = [_follow_up(entry, fields) for entry, fields in zip(reply[2::2], reply[3::2], strict=True)]
        return Outbox(reply[0] == 1, reply[1] == 1, rows)

    return queue_call(
        "outbox_read", keys, queue, parse, now=now_ms, relay=relay, hold_ms=hold_ms, after=after, limit=PAGE
    )


def has_records_since(keys: Keys, queue: str, since_ms: int) -> Call[bool]:
    """Read whether the outbox has a record of a job that ended at this time or later."""
    return read("XRANGE", keys.of_queue(queue, "outbox"), since_ms, "+", "COUNT", 1, parse=bool)


def ack_outbox(keys: Keys, queue: str, entries: Sequence[str]) -> Call[int]:
    """Remove relayed records from the outbox. The call returns the number of removed records."""
    return queue_call("outbox_ack", keys, queue, int, rows=[(entry,) for entry in entries])


def release_outbox(keys: Keys, queue: str) -> Call[int]:
    """End the reservation of the outbox, so that another relay can read it at once."""
    return command("HDEL", keys.of_queue(queue, "meta"), "relay", "relay_until", parse=int)


def record_activity(keys: Keys, queue: str, *, now_ms: str = "") -> Call[int]:
    """Add the growth of the counters since the last call to the rows of this minute and this day."""
    return queue_call("activity_record", keys, queue, int, repeatable=False, now=now_ms)


def _follow_up(entry: bytes, fields: list[bytes]) -> FollowUp:
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    ended = named.get(b"ended", b"").decode("utf-8", "replace")
    return FollowUp(entry.decode(), ended, named.get(b"job", b""), named.get(b"failure", b""))


def _read_words(reply: list[bytes]) -> list[str]:
    return [word.decode() for word in reply]
