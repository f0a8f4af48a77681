"""From outcomes to the calls that settle them: grouped by queue and script, bounded, envelopes rewritten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core.errors import BadEnvelope
from delayq.core.failure import Failure
from delayq.core.outcome import Ack, GiveUp, Release
from delayq.redis.calls import deliver
from delayq.redis.calls.call import Call, Scope
from delayq.redis.calls.deliver import Acked, Failed, Held, Released
from delayq.redis.calls.produce import MAX_BYTES, MAX_JOBS


class Ending(NamedTuple):
    """One delivery as settling sees it: where it came from, and what becomes of it."""

    queue: str
    held: Held
    raw: bytes
    outcome: Ack | Release | GiveUp


class SettleCall(NamedTuple):
    """A call and the numbers of the endings it settles, in the order of its answer."""

    call: Call[list[bool]]
    numbers: list[int]


def with_history(ending: Ending) -> bool:
    """Whether an earlier failure may be on record, to be kept beside the new one."""
    return not isinstance(ending.outcome, Ack) and ending.outcome.error is not None


def calls(
    scope: Callable[[str], Scope], endings: Sequence[Ending], previous: dict[int, Failure | None], now_ms: int
) -> list[SettleCall]:
    """The calls that settle these endings. `previous` holds the failure on record for those that `with_history`."""
    acks: dict[str, list[tuple[int, Acked]]] = {}
    others: dict[tuple[str, str], list[tuple[int, Any, int]]] = {}
    for n, (queue, held, raw, outcome) in enumerate(endings):
        if isinstance(outcome, Ack):
            acks.setdefault(queue, []).append((n, Acked(held, outcome.retention_ms, outcome.result)))
            continue
        failure = _failure(outcome, previous.get(n), now_ms)
        if isinstance(outcome, Release):
            envelope = b"" if outcome.error is None else _rewritten(raw, outcome)
            item: Any = Released(held, outcome.delay_ms, envelope, failure)
        else:
            envelope = _rewritten(raw, outcome)
            item = Failed(held, envelope, failure)
        others.setdefault((queue, type(item).__name__), []).append((n, item, len(envelope) + len(failure)))
    built = [_ack_call(scope(queue), some) for queue, items in acks.items() for some in _counted(items)]
    for (queue, kind), rows in others.items():
        build: Any = deliver.release if kind == "Released" else deliver.fail
        built += [
            SettleCall(build(scope(queue), [item for _, item, _ in chunk]), [n for n, _, _ in chunk])
            for chunk in _sized(rows)
        ]
    return built


def _ack_call(scope: Scope, items: Sequence[tuple[int, Acked]]) -> SettleCall:
    return SettleCall(deliver.ack(scope, [item for _, item in items]), [n for n, _ in items])


def _counted(items: list[tuple[int, Acked]]) -> Iterable[list[tuple[int, Acked]]]:
    return (items[start : start + MAX_JOBS] for start in range(0, len(items), MAX_JOBS))


def _sized(rows: list[tuple[int, Any, int]]) -> Iterable[list[tuple[int, Any, int]]]:
    """Batches of at most 500 and 1 MB, but one at least."""
    batch: list[tuple[int, Any, int]] = []
    size = 0
    for row in rows:
        if batch and (len(batch) == MAX_JOBS or size + row[2] > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += row[2]
    if batch:
        yield batch


def _failure(outcome: Release | GiveUp, previous: Failure | None, now_ms: int) -> bytes:
    if outcome.error is None:
        return b""
    failure = failures.describe(outcome.error, at_ms=now_ms, attempt=outcome.attempts)
    return failures.encode(failures.after(previous, failure))


def _rewritten(raw: bytes, outcome: Release | GiveUp) -> bytes:
    """The envelope with its new counts; b'' (unchanged) for bytes that are none."""
    try:
        return envelopes.rewrite(raw, attempts=outcome.attempts, exceptions=outcome.exceptions or None)
    except BadEnvelope:
        return b""
