"""From outcomes to the calls that settle them: grouped by queue and script, bounded, envelopes rewritten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec

from delayq.core import ending as endings
from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core import follow, followups
from delayq.core import ran as ran_records
from delayq.core.errors import BadEnvelope
from delayq.core.failure import Failure
from delayq.core.followups import FollowUp, Send
from delayq.core.outcome import DONE, Ack, GiveUp, Release, stopped
from delayq.core.shards import queue_of
from delayq.redis.calls import deliver
from delayq.redis.calls.call import Call, Scope
from delayq.redis.calls.deliver import Acked, Failed, Held, Released
from delayq.redis.calls.follow import Finished, finish
from delayq.redis.calls.produce import CHUNK, MAX_BYTES
from delayq.redis.presence import Asked, Record

# Settling frees payloads, and Redis takes its time to free large ones: so many bytes freed count as one byte sent.
FREED_PER_SENT = 8


class Ending(msgspec.Struct, frozen=True):
    """One delivery as settling sees it: where it came from, and what becomes of it.

    `lost`: the row with its envelope is gone, so the script that settles it looks into its stream entry for what
    follows.
    """

    queue: str
    id: str
    entry: str
    raw: bytes
    outcome: Ack | Release | GiveUp
    lost: bool = False

    @property
    def held(self) -> Held:
        return Held(self.id, self.entry)


class Done(Protocol):
    """One delivery that was done, and of which nothing is kept."""

    @property
    def queue(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def entry(self) -> str: ...
    @property
    def raw(self) -> bytes: ...


class SettleCall(NamedTuple):
    """A call, its queue, and the numbers of the endings it settles, in the order of its answer."""

    call: Call[list[bool]]
    queue: str
    numbers: list[int]


class _Row(msgspec.Struct, frozen=True):
    """One ending on its way into a call: its number, what the call takes, and how many bytes that is."""

    number: int
    item: Any
    size: int


def _release(scope: Scope, items: Sequence[Released], *, alone: bool) -> Call[list[bool]]:
    """Nothing follows a job that is tried again."""
    return deliver.release(scope, items)


def _finish(scope: Scope, items: Sequence[Finished], *, alone: bool) -> Call[list[bool]]:
    """What follows is in the items."""
    return finish(scope, items)


_BUILDERS: Mapping[type, Callable[..., Call[list[bool]]]] = MappingProxyType(
    {
        Acked: deliver.ack,
        Released: _release,
        Failed: deliver.fail,
        Finished: _finish,
    }
)


def wants_record(ending: Ending) -> bool:
    """Whether what is on record counts: an earlier failure to be kept beside the new one, or a wish that it stop."""
    return ending.outcome is not DONE and not isinstance(ending.outcome, Ack)


def asked(ending: Ending) -> Asked:
    """Where what is on record of it stands."""
    try:
        part = follow.part_of(ending.raw)
    except BadEnvelope:
        part = None
    return Asked(ending.queue, ending.id, part.batch, part.spared) if part else Asked(ending.queue, ending.id)


def calls(
    scope: Callable[[str], Scope], given: Sequence[Ending], records: Mapping[int, Record], now_ms: int
) -> list[SettleCall]:
    """The calls that settle what is `given`. `records` has what is on record for those that `wants_record`."""
    groups: dict[tuple[str, type, bool], list[_Row]] = {}
    plain: dict[str, list[int]] = {}
    for n, ending in enumerate(given):
        if ending.outcome is DONE:
            plain.setdefault(ending.queue, []).append(n)
        else:
            item, size = _weighed(ending, records.get(n), now_ms)
            size += len(ending.raw) // FREED_PER_SENT
            groups.setdefault((ending.queue, type(item), ending.lost), []).append(_Row(n, item, size))
    return [
        *(one for queue, numbers in plain.items() for one in _forgetting(scope(queue), given, numbers)),
        *(
            SettleCall(
                _BUILDERS[kind](scope(queue), [row.item for row in chunk], alone=not lost),
                queue,
                [row.number for row in chunk],
            )
            for (queue, kind, lost), rows in groups.items()
            for chunk in _chunks(rows)
        ),
    ]


def done(scope: Callable[[str], Scope], given: Sequence[Done]) -> list[SettleCall]:
    """As `calls`, where all were done and nothing is kept of any: so it is nearly always."""
    plain: dict[str, list[int]] = {}
    for n, one in enumerate(given):
        queue = one.queue
        if queue in plain:
            plain[queue].append(n)
        else:
            plain[queue] = [n]
    return [one for queue, numbers in plain.items() for one in _forgetting(scope(queue), given, numbers)]


def _forgetting(scope: Scope, given: Sequence[Done], numbers: list[int]) -> Iterable[SettleCall]:
    """The calls for those of one queue of which nothing is kept."""
    freed = sum([len(given[n].raw) for n in numbers]) // FREED_PER_SENT
    if len(numbers) <= CHUNK and freed <= MAX_BYTES:
        lots = [numbers]
    else:
        rows = [_Row(n, None, len(given[n].raw) // FREED_PER_SENT) for n in numbers]
        lots = [[row.number for row in chunk] for chunk in _chunks(rows)]
    for lot in lots:
        ids, entries = [given[n].id for n in lot], [given[n].entry for n in lot]
        yield SettleCall(deliver.done(scope, ids, entries, alone=True), scope.queue, lot)


def _weighed(ending: Ending, record: Record | None, now_ms: int) -> tuple[Acked | Released | Failed | Finished, int]:
    """What a call takes for it, and how many bytes that is."""
    outcome = ending.outcome
    item: Acked | Released | Failed
    if isinstance(outcome, Ack):
        ran = ran_records.encode(outcome.ran, outcome.retention_ms)
        item, size = Acked(ending.held, outcome.retention_ms, outcome.result, ran), len(outcome.result) + len(ran)
    else:
        assert record is not None  # asked for, because it `wants_record`
        item, size = _unfinished(ending, outcome, record, now_ms)
    if isinstance(item, Released):
        return item, size
    followed = _followed(ending, item, now_ms)
    return followed, size + (sum(map(_weight, followed.todo)) if isinstance(followed, Finished) else 0)


def _followed(ending: Ending, item: Acked | Failed, now_ms: int) -> Acked | Failed | Finished:
    """As it was to be settled, and what follows, if anything does."""
    outcome = ending.outcome
    if isinstance(outcome, Release):  # it was asked to stop, or it would be tried again
        outcome = Ack(called_off=True)
    ended = endings.ending(ending.raw, ending.id, queue_of(ending.queue), outcome, now_ms)
    if ended is None:
        return item
    if isinstance(item, Failed):
        return Finished(item.held, ended.end, ended.todo, 0, item.envelope, item.failure)
    return Finished(item.held, ended.end, ended.todo, item.retention_ms, item.ran, item.result)


def _weight(follow_up: FollowUp) -> int:
    return len(bytes(follow_up.envelope)) if isinstance(follow_up, Send) else len(followups.encode_todo([follow_up]))


def _unfinished(
    ending: Ending, outcome: Release | GiveUp, record: Record, now_ms: int
) -> tuple[Acked | Released | Failed, int]:
    if record.asked_to_stop and isinstance(stopped(outcome), Ack):
        return Acked(ending.held), 0
    failure = _failure(outcome, failures.decode(record.failure), now_ms)
    if isinstance(outcome, Release):
        envelope = b"" if outcome.error is None else _rewritten(ending.raw, outcome)
        return Released(ending.held, outcome.delay_ms, envelope, failure), len(envelope) + len(failure)
    envelope = _rewritten(ending.raw, outcome)
    return Failed(ending.held, envelope, failure), len(envelope) + len(failure)


def _chunks(rows: Sequence[_Row]) -> Iterable[list[_Row]]:
    """Batches of at most 250 and 1 MB, but one at least."""
    batch: list[_Row] = []
    size = 0
    for row in rows:
        if batch and (len(batch) == CHUNK or size + row.size > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += row.size
    if batch:
        yield batch


def _failure(outcome: Release | GiveUp, previous: Failure | None, now_ms: int) -> bytes:
    if outcome.error is None:
        return b""
    failure = failures.describe(outcome.error, at_ms=now_ms, attempt=outcome.attempts or None, ran=outcome.ran)
    return failures.encode(failures.after(previous, failure))


def _rewritten(raw: bytes, outcome: Release | GiveUp) -> bytes:
    """The envelope with its new counts; b'' (unchanged) for bytes that are none."""
    try:
        since_ms = outcome.unknown_since_ms if isinstance(outcome, Release) else None
        return envelopes.recounted(
            raw, attempts=outcome.attempts, exceptions=outcome.exceptions, unknown_since_ms=since_ms
        )
    except BadEnvelope:
        return b""
