"""What a producer asks for, and the pure step from there to an envelope and a due time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.backoff import BackoffSpec, parse_backoff, to_wire
from delayq.core.debounce import Debounce, Quiet
from delayq.core.envelope import ABSENT, VERSION, Envelope
from delayq.core.errors import InvalidInput
from delayq.core.followups import Chain, encode_chain, encode_membership
from delayq.core.names import check_id, check_job_name, check_queue, new_id
from delayq.core.options import MOST_ENVELOPE, Options
from delayq.core.sealing import Members, Place, seal_data
from delayq.core.shown import shown
from delayq.core.states import OnConflict
from delayq.core.unique import Unique, refuse_changes, wire, word_of
from delayq.core.when import duration_ms, instant_ms

AT_ONCE: Final = "+0"
"""The due time of a job without one, as it is sent: no delay."""
Delay = str | timedelta
Instant = str | datetime
Limit = str | timedelta | datetime
"""'30m' or a timedelta: that long after the job is due. RFC 3339 text or a datetime: then."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One job to schedule; the items of `schedule_many`.

    `data` is anything JSON can carry, or `bytes` that are JSON already. Exactly one of `delay` ('15m') and `at`
    (RFC 3339 text or datetime) may be given; neither means now. `queue` None means: by the routes, else the default
    queue. `tries` 0 means no limit, None what the worker says. `unique` is a key that at most one unfinished job may
    own, or a `Unique`; `debounce` lets the last of many win. `deadline` is when the job is no longer worth starting,
    `retry_until` when it is no longer tried again, which then goes before `tries`; both are points in time, or
    durations counted from when the job is due. `timeout` limits one attempt ("0s" = no limit), `max_exceptions` how
    many attempts may end with an error. `encrypted` hides the payload from all who do not hold the key; None: as the
    settings say for jobs of that name. `chain` and `batch` are written by those who build these; `limits` by a dispatch
    whose job declares one, and does not travel: a connection that counts none refuses it.
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
    unique: str | Unique | None = None
    headers: Mapping[str, str] | None = None
    tags: Sequence[str] | None = None
    timeout: Delay | None = None
    deadline: Limit | None = None
    retry_until: Limit | None = None
    max_exceptions: int | None = None
    encrypted: bool | None = None
    chain: Chain | None = None
    batch: str | None = None
    debounce: Debounce | None = None
    limits: str | None = None

    @property
    def timed(self) -> bool:
        """Whether it holds limits that are counted by the server's clock."""
        return self.deadline is not None or self.retry_until is not None

    @property
    def plain(self) -> bool:
        """Whether it says nothing that nearly no job says; what that would be stands in `_rare`."""
        return (
            self.tries is None
            and self.backoff is None
            and self.headers is None
            and self.tags is None
            and self.timeout is None
            and self.max_exceptions is None
            and self.deadline is None
            and self.retry_until is None
            and self.chain is None
            and self.batch is None
        )


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A job ready to be sent.

    `when` is '+delay_ms', counted by the server, or an epoch in milliseconds.
    """

    id: str
    envelope: bytes
    when: str
    digest: str
    name: str
    queue: str
    own_id: bool
    quiet: Quiet | None = None
    """Only of a job that is debounced."""
    forwarded_from: str = ""
    """The queue that was asked for, if jobs for it are sent to `queue`; '' otherwise."""

    def in_queue(self, queue: str) -> Prepared:
        """The same job, as it is sent to another queue."""
        return msgspec.structs.replace(self, queue=queue, envelope=envelopes.rewrite(self.envelope, queue=queue))


def prepare(spec: JobSpec, options: Options, now_ms: int, on_conflict: OnConflict = OnConflict.KEEP) -> Prepared:
    """Check a spec and build what is sent; everything wrong with it is found here, before anything is sent.

    `now_ms` bounds `at` (10 years ahead at most), and limits counted from the due time are counted from it: for a
    spec that is `timed` it must be the server's. The due time of a delay is the server's business.
    """
    name = _job_name(spec.name) if type(spec.name) is str else check_job_name(spec.name)
    queue = options.queue_for(name) if spec.queue is None else spec.queue
    queue = _queue_name(queue) if type(queue) is str else check_queue(queue)
    before = ""
    if options.forwards:
        asked, queue = queue, options.sent_to(queue)
        before = asked if asked != queue else ""
    job_id = new_id() if spec.id is None else check_id(spec.id)
    data, limit = spec.data, options.max_payload
    raw = envelopes.check_data(data, limit) if isinstance(data, bytes) else envelopes.encode_data(data, limit)
    (unique, quiet), encrypted = _NO_LOCK, ABSENT
    if spec.unique is not None or spec.debounce is not None:
        unique, quiet = _lock(spec, name, raw, on_conflict)
    if (spec.encrypted is not None or options.encrypt) and options.encrypts(name, spec.encrypted):
        raw, encrypted = _sealed(raw, Place(job_id, name), options)
    due = when(spec, now_ms)
    envelope = Envelope(
        v=VERSION,
        id=job_id,
        name=name,
        queue=queue,
        data=raw,
        attempts=0,
        created_ms=now_ms,
        retention_ms=(options.retention_ms or None) if spec.retention is None else duration_ms(spec.retention),
        unique=unique,
        encrypted=encrypted,
    )
    if not spec.plain:
        envelope = msgspec.structs.replace(envelope, **_rare(spec, due, now_ms))
    sent = envelopes.encode(envelope)
    if len(sent) > MOST_ENVELOPE:  # which no limit is below
        envelopes.within(sent, options.max_envelope, "The job, with its chain and headers,")
    digest = word_of(unique) if unique else ""
    return Prepared(job_id, sent, due, digest, name, queue, spec.id is not None, quiet, before)


def _rare(spec: JobSpec, due: str, now_ms: int) -> dict[str, Any]:
    """The members of an envelope that a plain job has not."""
    return {
        "tries": None if spec.tries is None else _check_tries(spec.tries),
        "backoff": None if spec.backoff is None else to_wire(parse_backoff(spec.backoff)),
        "headers": check_headers(spec.headers) or None if spec.headers is not None else None,
        "tags": check_tags(spec.tags) or None if spec.tags is not None else None,
        "timeout_ms": None if spec.timeout is None else duration_ms(spec.timeout),
        "max_exceptions": None if spec.max_exceptions is None else _check_max_exceptions(spec.max_exceptions),
        "deadline_ms": _limit_ms("deadline", spec.deadline, due, now_ms),
        "retry_until_ms": _limit_ms("retry_until", spec.retry_until, due, now_ms),
        "chain": ABSENT if spec.chain is None else encode_chain(spec.chain),
        "batch": ABSENT if spec.batch is None else encode_membership(spec.batch),
    }


def prepare_raw(raw: bytes, options: Options, queue: str | None = None, delay: Delay | None = None) -> Prepared:
    """An envelope that is made already, as it is; only another `queue` is written into it.

    Unless its name is among those that `options` say to encrypt: then a plain payload is sealed.

    Raises `BadEnvelope`, `InvalidInput`.
    """
    envelope = envelopes.decode(raw)
    check_id(envelope.id)
    envelopes.check_data(bytes(envelope.data), options.max_payload)
    asked = check_queue(envelope.queue if queue is None else queue)
    target = options.sent_to(asked)
    if target != envelope.queue:
        raw = envelopes.rewrite(raw, queue=target)
    if envelope.encrypted is ABSENT and options.encrypts(envelope.name, None):
        members = _sealed(envelope.data, Place(envelope.id, envelope.name), options)
        raw = envelopes.rewrite(raw, data=members.data, encrypted=members.encrypted)
    due = AT_ONCE if delay is None else f"+{duration_ms(delay)}"
    name, digest, before = check_job_name(envelope.name), word_of(envelope.unique), asked if asked != target else ""
    return Prepared(envelope.id, raw, due, digest, name, target, True, forwarded_from=before)


def _sealed(data: msgspec.Raw, place: Place, options: Options) -> Members:
    """An encrypted payload; the limit counts for what travels."""
    members = seal_data(options.keyring, place, data)
    envelopes.within(members.data, options.max_payload, "The encrypted payload")
    return members


def when(spec: JobSpec, now_ms: int) -> str:
    """The due time as it is sent: '+delay_ms' or epoch ms."""
    if spec.at is not None:
        if spec.delay is not None:
            raise InvalidInput("A job takes a delay or a time (at), not both.", hint="Drop one of them.")
        return str(instant_ms(spec.at, now_ms=now_ms, tz=spec.tz, fold=spec.fold))
    if spec.tz is not None or spec.fold is not None:
        raise InvalidInput("tz and fold belong to a time (at); a delay has no zone.", hint="Drop them or give at=.")
    if spec.delay is None:
        return AT_ONCE
    return _relative(spec.delay) if isinstance(spec.delay, str) else f"+{duration_ms(spec.delay)}"


def check_tags(tags: object) -> list[str]:
    """The tags of a job; raises `InvalidInput` unless each of them is text."""
    if isinstance(tags, str):
        raise InvalidInput(
            f"tags is the text {shown(tags)}, and they are a list.", hint=f"Give a list: tags=[{shown(tags)}]."
        )
    if not isinstance(tags, Iterable) or isinstance(tags, bytes | bytearray | memoryview):
        raise InvalidInput(f"tags is {shown(tags)}, and they are a list of texts.", hint='An example: tags=["urgent"].')
    checked = list(tags)
    for tag in checked:
        if not _is_text(tag):
            raise InvalidInput(f"The tag {shown(tag)} is no text.", hint="Write str(...) or f'order-{id}'.")
    return checked


def check_headers(headers: object) -> dict[str, str]:
    """The headers of a job; raises `InvalidInput` unless names and values are text."""
    if not isinstance(headers, Mapping):
        raise InvalidInput(
            f"headers is {shown(headers)}, and they are a mapping.", hint='An example: headers={"trace": "1"}.'
        )
    for name, value in headers.items():
        if not _is_text(name):
            raise InvalidInput(f"The name of a header is {shown(name)}, which is no text.", hint="Write it as a str.")
        if not _is_text(value):
            raise InvalidInput(f"The header {shown(name)} is {shown(value)}, which is no text.", hint="Write str(...).")
    return dict(headers)


def _is_text(value: object) -> bool:
    """Text that UTF-8 can carry: no half of a surrogate pair."""
    if not isinstance(value, str):
        return False
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


_NO_LOCK: Final[tuple[str | None, Quiet | None]] = (None, None)

# A program schedules few different names and delays, over and over. Only what is valid is remembered.
_job_name = lru_cache(maxsize=512)(check_job_name)
_queue_name = lru_cache(maxsize=512)(check_queue)


@lru_cache(maxsize=512)
def _relative(delay: str) -> str:
    return f"+{duration_ms(delay)}"


def _limit_ms(what: str, limit: Limit | None, due: str, now_ms: int) -> int | None:
    """A limit as epoch ms; one that lies before the job is due would fail it without a start."""
    if limit is None:
        return None
    due_ms = now_ms + int(due) if due[0] == "+" else max(now_ms, int(due))
    if isinstance(limit, timedelta) or (isinstance(limit, str) and "-" not in limit):
        return due_ms + duration_ms(limit)
    limit_ms = instant_ms(limit, now_ms=now_ms)
    if limit_ms < due_ms:
        raise InvalidInput(
            f"The {what} {limit} lies before the job is due.", hint="Give a later one, or a duration after it is due."
        )
    return limit_ms


def _lock(spec: JobSpec, name: str, raw: bytes, on_conflict: OnConflict) -> tuple[str | None, Quiet | None]:
    """The lock as the envelope carries it, and how long a job is to be quiet that is debounced."""
    if spec.debounce is None:
        unique = wire(spec.unique or "", name, raw)
        refuse_changes(word_of(unique), on_conflict)
        return unique, None
    own = {"unique": spec.unique, "delay": spec.delay, "at": spec.at}
    if wrong := next((word for word, said in own.items() if said is not None), ""):
        raise InvalidInput(
            f"The job {name!r} is debounced and has {wrong}= too.",
            hint="Each dispatch of it is another job, due when its wait is over; use one or the other.",
        )
    if on_conflict is not OnConflict.KEEP:
        raise InvalidInput(f"The job {name!r} is debounced, so on_conflict has nothing to say.", hint="Leave it out.")
    return spec.debounce.lock(name, raw), spec.debounce.quiet


def _check_max_exceptions(most: object) -> int:
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= 1_000_000:
        raise InvalidInput(f"max_exceptions is {most!r}; it must be a whole number from 1 to 1,000,000.")
    return most


def _check_tries(tries: object) -> int:
    if isinstance(tries, bool) or not isinstance(tries, int) or not 0 <= tries <= 1_000_000:
        raise InvalidInput(f"tries is {tries!r}; it must be a whole number from 0 (no limit) to 1,000,000.")
    return tries
