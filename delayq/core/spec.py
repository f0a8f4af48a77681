"""What a producer asks for, and the pure step from there to an envelope and a due time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from delayq.core import envelope as envelopes
from delayq.core.backoff import BackoffSpec, parse_backoff, to_wire
from delayq.core.envelope import VERSION, Envelope
from delayq.core.errors import InvalidInput
from delayq.core.names import check_id, check_job_name, check_queue, new_id
from delayq.core.options import Options
from delayq.core.when import duration_ms, instant_ms

Delay = str | timedelta
Instant = str | datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One job to schedule; the items of `schedule_many`.

    `data` is anything JSON can carry, or `bytes` that are JSON already. Exactly one of `delay` ('15m') and `at`
    (RFC 3339 text or datetime) may be given; neither means now. `queue` None means: by the routes, else the default
    queue. `unique` names a key that at most one unfinished job may own.
    """

    name: str
    data: Any = None
    delay: Delay | None = None
    at: Instant | None = None
    tz: str | None = None
    fold: int | None = None
    id: str | None = None
    queue: str | None = None
    tries: int | None = None
    backoff: BackoffSpec | None = None
    retention: Delay | None = None
    unique: str | None = None
    headers: Mapping[str, str] | None = None
    tags: Sequence[str] | None = None


class Prepared(NamedTuple):
    """A job ready to be sent. `when` is '+delay_ms', counted by the server, or an epoch in milliseconds."""

    id: str
    name: str
    queue: str
    envelope: bytes
    when: str
    digest: str
    own_id: bool


def prepare(spec: JobSpec, options: Options, now_ms: int) -> Prepared:
    """Check a spec and build what is sent; everything wrong with it is found here, before anything is sent.

    `now_ms` only bounds `at` (10 years ahead at most); the due time of a delay is the server's business.
    """
    name = check_job_name(spec.name)
    queue = check_queue(options.queue_for(name) if spec.queue is None else spec.queue)
    job_id = new_id() if spec.id is None else check_id(spec.id)
    data = spec.data
    limit = options.max_payload
    raw = envelopes.check_data(data, limit) if isinstance(data, bytes) else envelopes.encode_data(data, limit)
    digest = "" if spec.unique is None else unique_digest(spec.unique)
    envelope = Envelope(
        v=VERSION,
        id=job_id,
        name=name,
        queue=queue,
        data=raw,
        attempts=0,
        created_ms=now_ms,
        tries=_check_tries(spec.tries),
        backoff=None if spec.backoff is None else to_wire(parse_backoff(spec.backoff)),
        retention_ms=_retention(spec, options),
        unique=digest or None,
        headers=dict(spec.headers) if spec.headers else None,
        tags=list(spec.tags) if spec.tags else None,
    )
    return Prepared(job_id, name, queue, envelopes.encode(envelope), when(spec, now_ms), digest, spec.id is not None)


def when(spec: JobSpec, now_ms: int) -> str:
    """The due time as it is sent: '+delay_ms' or epoch ms."""
    if spec.at is not None:
        if spec.delay is not None:
            raise InvalidInput("A job takes a delay or a time (at), not both.", hint="Drop one of them.")
        return str(instant_ms(spec.at, now_ms=now_ms, tz=spec.tz, fold=spec.fold))
    if spec.tz is not None or spec.fold is not None:
        raise InvalidInput("tz and fold belong to a time (at); a delay has no zone.", hint="Drop them or give at=.")
    if spec.delay is None:
        return "+0"
    return f"+{_delay_ms(spec.delay)}"


def unique_digest(key: str) -> str:
    """How a unique key is stored: short, and no longer readable in a list of keys."""
    if not key:
        raise InvalidInput("A unique key cannot be empty.", hint='An example: unique="invoice:42".')
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@lru_cache(maxsize=256)
def _cached_delay(value: str) -> int:
    return duration_ms(value)


def _delay_ms(value: Delay) -> int:
    return _cached_delay(value) if isinstance(value, str) else duration_ms(value)


def _retention(spec: JobSpec, options: Options) -> int | None:
    if spec.retention is not None:
        return _delay_ms(spec.retention)
    return options.retention_ms or None


def _check_tries(tries: object) -> int | None:
    if tries is None:
        return None
    if isinstance(tries, bool) or not isinstance(tries, int) or not 1 <= tries <= 1_000_000:
        raise InvalidInput(f"tries is {tries!r}; it must be a whole number from 1 to 1,000,000.")
    return tries
