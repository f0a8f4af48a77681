"""What the loops and workers call: promote, settle, renew, reclaim, and the janitor's repairs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from delayq.core import failure as failures
from delayq.core.failure import Failure
from delayq.redis.calls.call import Argument, Call, Scope, call, number, text

PAGE = 500
# reclaim does more for each entry than other scripts do, 20 to 45 us: so many keep Redis for well below 10 ms.
TAKE_BACK = 100
# Without the closing brace: the scripts add when it happened and what was on record before.
LOST = failures.encode(
    Failure(type="PayloadLost", message="The job's payload was missing in Redis; only its id was left.")
)[:-1]


class Held(NamedTuple):
    """A delivery as settling scripts know it: the job's id and the stream entry that is its lease."""

    id: str
    entry: str


class Promoted(NamedTuple):
    """`wait_us`: 0 = call again, -1 = nothing waits, -2 = stream full, -3 = paused, else microseconds to the next.

    `owed` is how much the outbox holds for other places.
    """

    moved: int
    lost: int
    wait_us: int
    owed: int = 0


def promote(scope: Scope, limit: int = PAGE) -> Call[Promoted]:
    """Append what is due to the stream."""
    args: list[Argument] = [scope.now, limit, scope.options.high_water, scope.queue, LOST]
    return call("promote", scope, args, lambda reply: Promoted(*(int(n) for n in reply)))


class Acked(NamedTuple):
    """One finished delivery: how long to keep it (ms), its result as JSON ('' = none), and how it ran (`core/ran`)."""

    held: Held
    retention_ms: int = 0
    result: bytes = b""
    ran: bytes = b""


class Released(NamedTuple):
    """One delivery to try again in `delay_ms`, with its new envelope and failure (b'' = unchanged)."""

    held: Held
    delay_ms: int
    envelope: bytes = b""
    failure: bytes = b""


class Failed(NamedTuple):
    """One delivery given up, with its new envelope (b'' = unchanged) and failure."""

    held: Held
    envelope: bytes
    failure: bytes


ALONE = "alone"
UNHELD = "unheld"


def ack(scope: Scope, done: Sequence[Acked], *, alone: bool = False) -> Call[list[bool]]:
    """Settle finished deliveries; True for each that was still ours.

    `alone`: the caller has read the envelopes, and nothing follows any of these jobs. Otherwise the script looks, and
    leaves what follows for a relay. The same holds for `done` and `fail`.
    """
    args: list[Argument] = [scope.now]
    for job, retention_ms, result, ran in done:
        args += (job.id, job.entry, b"%d %b" % (retention_ms, ran) if ran else retention_ms, result)
    if alone:
        args.append(ALONE)
    return call("ack", scope, args, _truths)


def done(scope: Scope, ids: Sequence[str], entries: Sequence[str], *, alone: bool = False) -> Call[list[bool]]:
    """As `ack`, for deliveries, by their ids and entry ids, of which nothing is kept."""
    args = [msgspec.msgpack.encode((ids, entries)), "1" if alone else "0"]
    return call("done", scope, args, partial(_but_for, len(ids)))


def release(scope: Scope, back: Sequence[Released]) -> Call[list[bool]]:
    """Settle deliveries that shall be tried again."""
    args: list[Argument] = [scope.now, scope.queue, scope.wake]
    for job, delay_ms, envelope, failure in back:
        args += (job.id, job.entry, delay_ms, envelope, failure)
    return call("release", scope, args, _truths)


def fail(scope: Scope, failed: Sequence[Failed], *, alone: bool = False) -> Call[list[bool]]:
    """Settle deliveries that are given up. `alone` as in `ack`."""
    args: list[Argument] = [scope.now]
    for job, envelope, failure in failed:
        args += (job.id, job.entry, envelope, failure)
    if alone:
        args.append(ALONE)
    return call("fail", scope, args, _truths)


def bury(scope: Scope, garbage: Sequence[tuple[str, bytes]]) -> Call[list[str]]:
    """Dead-letter entries that are no jobs, (entry id, failure) each: buried, dropped, adopted or left.

    A shorter answer than asked means: call again with the rest.
    """
    args: list[Argument] = [scope.now]
    for entry, failure in garbage:
        args += (entry, failure)
    return call("bury", scope, args, _words)


def hand_back(scope: Scope, held: Sequence[Held], *, unheld: bool = False) -> Call[list[bool]]:
    """Deliver again, uncounted. A shorter answer than asked means: call again with the rest.

    `unheld`: no worker holds these deliveries, so the queue's counter of deliveries handed back does not count them.
    """
    args: list[Argument] = [scope.now, *chain.from_iterable(held)]
    if unheld:
        args.append(UNHELD)
    return call("hand_back", scope, args, _truths)


def _but_for(count: int, fenced: list[int]) -> list[bool]:
    settled = [True] * count
    for place in fenced:
        settled[place - 1] = False
    return settled


def _truths(reply: list[int]) -> list[bool]:
    return [value == 1 for value in reply]


def _words(reply: list[bytes]) -> list[str]:
    return [text(word) for word in reply]


class Renewed(NamedTuple):
    """`pending` is what Redis holds for the consumer; more than it knows of means that a reply was lost."""

    lease_ms: int
    pending: int
    lost: tuple[str, ...]
    asked_to_stop: tuple[str, ...]


def renew(scope: Scope, consumer: str, held: Sequence[Held]) -> Call[Renewed]:
    """Start the leases of these deliveries anew. Called with none before the first read, it records the consumer."""
    return call("renew", scope, [consumer, *chain.from_iterable(held)], _renewed)


def _renewed(reply: list[Any]) -> Renewed:
    lease, pending, lost, asked = reply
    return Renewed(int(lease), int(pending), tuple(map(text, lost)), tuple(map(text, asked)))


class Reclaimed(NamedTuple):
    """`hold_ms` > 0: nothing is taken back for that long, because leases cannot be trusted just now."""

    back: int
    failed: int
    hold_ms: int
    lease_ms: int
    more: bool


def reclaim(scope: Scope, limit: int = TAKE_BACK) -> Call[Reclaimed]:
    """Take back what vanished workers hold."""
    most = scope.options.max_recoveries
    return call("reclaim", scope, [scope.now, limit, most, _vanished(most), scope.queue, scope.wake], _reclaimed)


def _vanished(most: int) -> bytes:
    """The failure of a job whose worker vanished too often, without its closing brace: the script adds to it."""
    message = f"Its worker vanished {most + 1} times while running it; most likely the job kills its process."
    return failures.encode(Failure(type="WorkerVanished", message=message))[:-1]


def _reclaimed(reply: list[Any]) -> Reclaimed:
    back, failed, hold, lease, more = (number(value) or 0 for value in reply)
    return Reclaimed(back, failed, hold, lease, more == 1)


class Recovered(NamedTuple):
    """How many of `looked` deliveries are in the stream again, and how many failed; the rest were fenced."""

    looked: int
    back: int
    failed: int


def recover(scope: Scope, held: Sequence[Held]) -> Call[Recovered]:
    """Take back deliveries whose process is known to be dead. Fewer looked at than asked: call again with the rest."""
    most = scope.options.max_recoveries
    args: list[Argument] = [scope.now, most, _vanished(most), scope.queue, scope.wake, *chain.from_iterable(held)]
    return call("recover", scope, args, _recovered)


def _recovered(reply: list[int]) -> Recovered:
    return Recovered(len(reply), reply.count(1), reply.count(2))


class Sums(NamedTuple):
    """The counts of rule 1, and of both halves of the locks, taken at one instant.

    `counted`: all counters of the queue together; the same number again means that nothing has happened. `whole`: this
    is no shard of a queue that was ever spread, as far as it knows. `new`: nothing was known of the queue before.
    """

    lease_ms: int
    stream: int
    entries: int
    scheduled: int
    failed: int
    completed: int
    jobs: int
    unique: int
    locks: int
    regrouped: bool
    counted: int = 0
    whole: bool = True
    new: bool = False

    @property
    def agree(self) -> bool:
        """Whether both sums hold and no lock lost its other half. When not, somebody damaged the data."""
        placed = self.scheduled + self.entries + self.failed + self.completed
        return self.stream == self.entries and placed == self.jobs and self.locks <= self.unique


def tidy(scope: Scope) -> Call[Sums]:
    """Look after stream, group and meta, and take the sums."""
    return call("tidy", scope, [scope.options.lease_ms], _sums)


def _sums(reply: list[Any]) -> Sums:
    *counts, regrouped, counted, whole, new = (int(value) for value in reply)
    lease, stream, entries, scheduled, failed, completed, jobs, unique, locks = counts
    sums = (lease, stream, entries, scheduled, failed, completed, jobs, unique, locks)
    return Sums(*sums, regrouped == 1, counted, whole == 1, new == 1)


class Unsettled(NamedTuple):
    """One delivered entry that is no longer pending; `verdict` is acked, again or garbage."""

    entry: str
    id: str
    verdict: str


class UnsettledPage(NamedTuple):
    """`after` is '' at the end of the pass; `marks` goes back with every further page of the same pass."""

    after: str
    marks: str
    entries: tuple[Unsettled, ...]


def unsettled(scope: Scope, after: str, marks: str, *, everything: bool) -> Call[UnsettledPage]:
    """One page of what is delivered and no longer pending (`everything`: also garbage beyond that)."""
    return call("unsettled", scope, [after, PAGE, marks, "all" if everything else "delivered"], _unsettled)


def _unsettled(reply: list[bytes]) -> UnsettledPage:
    rows = [Unsettled(*map(text, reply[n : n + 3])) for n in range(2, len(reply), 3)]
    return UnsettledPage(text(reply[0]), text(reply[1]), tuple(rows))


def mend(scope: Scope, job_ids: Sequence[str]) -> Call[list[str]]:
    """Make rule 1 true again for some ids. A shorter answer than asked means: call again with the rest."""
    return call("mend", scope, [scope.now, scope.queue, LOST, *job_ids], _words)


class Pruned(NamedTuple):
    """How many completed and failed jobs were forgotten."""

    completed: int
    failed: int


def prune(scope: Scope, keep_failed_ms: int, limit: int = PAGE) -> Call[Pruned]:
    """Forget what was kept long enough."""
    return call("prune", scope, [scope.now, keep_failed_ms, limit], lambda reply: Pruned(*(int(n) for n in reply)))


def retire(scope: Scope, consumer: str, idle_ms: int) -> Call[bool]:
    """Take a consumer off the group's list, if it holds nothing and was idle that long."""
    return call("retire", scope, [consumer, idle_ms], lambda reply: bool(reply == 1))
