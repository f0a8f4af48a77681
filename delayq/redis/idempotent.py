"""Scheduling under a key of the caller's: whoever asks again within a day gets the answer he got first.

    SET once:<token> fingerprint NX PX 24h      is this the request of that key?
    schedule … once=<token>.<jobs>  24h         its answer, told again by the script that made the jobs

Nothing lies between the two that could be lost: a request that dies behind the first is simply sent again, and the
script answers two that come together one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from delayq.core.errors import KeyReused
from delayq.core.spec import JobSpec, Prepared, prepare
from delayq.core.states import OnConflict
from delayq.core.views import JobRef
from delayq.redis.calls import produce
from delayq.redis.calls.call import Command, Scope, text
from delayq.redis.keys import Keys
from delayq.redis.placing import Batch, Way, put, token_of
from delayq.redis.verbs import Flow, Verbs

KEPT_MS: Final = 86_400_000


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
    places: dict[str, list[int]] = {}
    for n, job in enumerate(jobs):
        places.setdefault(job.queue, []).append(n)
    found: dict[int, JobRef] = {}
    way = Way(verbs.durable)
    for queue, numbers in sorted(places.items()):
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
    return Once(ordered, again)


def named(specs: Iterable[JobSpec], key: Repeatable) -> Iterator[str]:
    """An id for each job that has none: the same whenever the request is made."""
    for n, spec in enumerate(specs):
        yield spec.id if spec.id is not None else f"{key.token}-{n}"


def _seen(verbs: Verbs, key: Repeatable) -> Flow[bool]:
    """Whether the key was used before; raises `KeyReused` when that was for something else.

    It is kept in the slot of the default queue, wherever the jobs go: the same key must meet itself.
    """
    where = Keys(verbs.options.prefix, verbs.options.queue).once(key.token)
    written: bool = yield Command(("SET", where, key.fingerprint, "NX", "PX", KEPT_MS), bool)
    if written:
        return False
    kept: str = yield Command(("GET", where), lambda reply: text(reply or b""), True)
    if kept not in ("", key.fingerprint):
        raise KeyReused("This Idempotency-Key stands for another request.", hint="Use a new key for a new request.")
    return True
