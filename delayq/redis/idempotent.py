"""Scheduling under a key of the caller's: whoever asks again within a day gets the answer he got first.

    SET once:<token> fingerprint NX PX 24h      is this the request of that key?
    schedule … once=<token>.<jobs>  24h         its answer, told again by the script that made the jobs
    SET once:<token>-told answer NX PX 24h      only where a job was kept: of that the script remembers nothing

Nothing lies between the first two that could be lost: a request that dies behind the first is simply sent again, and
the script answers two that come together one after the other. The third says what the first of them was told; one
that died before it was told nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from delayq.core.errors import KeyReused
from delayq.core.spec import JobSpec, Prepared, prepare
from delayq.core.states import Answer, OnConflict, State
from delayq.core.views import JobRef
from delayq.redis.calls import produce
from delayq.redis.calls.call import Command, Scope, text
from delayq.redis.keys import Keys
from delayq.redis.placing import Batch, Way, put, token_of
from delayq.redis.verbs import Flow, Verbs

KEPT_MS: Final = 86_400_000


class _Told(msgspec.Struct, frozen=True, array_like=True):
    """A `JobRef` as it is remembered; what a request schedules never ends in a `Fate`."""

    id: str
    queue: str
    state: State
    due_ms: int | None
    outcome: Answer
    name: str


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list[_Told]).decode


class Repeatable(NamedTuple):
    """A caller's key, as a token, and what tells his request from others. The token names jobs without an id."""

    token: str
    fingerprint: str


class Once(NamedTuple):
    """A reference for each job, and whether the request was seen before."""

    refs: list[JobRef]
    again: bool


def schedule_once(
    verbs: Verbs, specs: Sequence[JobSpec], on_conflict: OnConflict, durability: str | None, key: Repeatable
) -> Flow[Once]:
    """Schedule jobs of any queues under that key. Raises `KeyReused` for a key that stands for another request."""
    now_ms = yield from verbs.server_ms()
    jobs = [prepare(spec, verbs.options, now_ms, on_conflict) for spec in specs]
    again = yield from _seen(verbs, key)
    if again and (told := (yield from _told(verbs, key))):
        return Once(told, again)
    found: dict[int, JobRef] = {}
    way = Way(verbs.durable)
    for queue, numbers in produce.by_queue(jobs):
        yield from verbs.register(queue)
        way.wanted = yield from verbs.durable.wanted(verbs.shard(queue), durability)

        def make(scope: Scope, mine: Sequence[Prepared]) -> Iterator[Batch]:
            for some in produce.chunks(mine):
                token = token_of(key.token, some)
                yield Batch(produce.schedule(scope, some, on_conflict, token, once_ms=KEPT_MS), some)

        refs = yield from put(verbs, queue, [jobs[n] for n in numbers], make, way, strict=True)
        found.update(zip(numbers, refs, strict=True))
    ordered = [found[n] for n in range(len(jobs))]
    way.check(ordered)
    if any(ref.outcome is Answer.KEPT for ref in ordered):
        ordered = yield from _remember(verbs, key, ordered)
    return Once(ordered, again)


def named(specs: Iterable[JobSpec], key: Repeatable) -> Iterator[str]:
    """An id for each job that has none: the same whenever the request is made."""
    for n, spec in enumerate(specs):
        yield spec.id if spec.id is not None else f"{key.token}-{n}"


def _seen(verbs: Verbs, key: Repeatable) -> Flow[bool]:
    """Whether the key was used before; raises `KeyReused` when that was for something else.

    It is kept in the slot of the default queue, wherever the jobs go: the same key must meet itself.
    """
    where = _where(verbs, key.token)
    written: bool = yield Command(("SET", where, key.fingerprint, "NX", "PX", KEPT_MS), bool)
    if written:
        return False
    kept: str = yield Command(("GET", where), lambda reply: text(reply or b""), True)
    if kept not in ("", key.fingerprint):
        raise KeyReused("This Idempotency-Key stands for another request.", hint="Use a new key for a new request.")
    return True


def _where(verbs: Verbs, token: str) -> str:
    return Keys(verbs.options.prefix, verbs.options.queue).once(token)


def _told(verbs: Verbs, key: Repeatable) -> Flow[list[JobRef]]:
    """What the first request of that key was told; [] when the scripts know it, or nobody was told anything."""
    kept: bytes = yield Command(("GET", _where(verbs, f"{key.token}-told")), lambda reply: reply or b"[]", True)
    return [JobRef(one.id, one.queue, one.state, one.due_ms, one.outcome, one.name) for one in _decode(kept)]


def _remember(verbs: Verbs, key: Repeatable, refs: Sequence[JobRef]) -> Flow[list[JobRef]]:
    """Keep that answer, unless one came first: then that is the answer of both."""
    told = _encode([_Told(ref.id, ref.queue, ref.state, ref.due_ms, Answer(ref.outcome), ref.name) for ref in refs])
    where = _where(verbs, f"{key.token}-told")
    written: bool = yield Command(("SET", where, told, "NX", "PX", KEPT_MS), bool)
    return list(refs) if written else (yield from _told(verbs, key))
