"""The specification of a new job, checked and prepared for Redis before anything is sent."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from zlib import crc32

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.backoff import BackoffSpec, parse_backoff
from delayq.core.display import shown
from delayq.core.encryption import FORMAT, KeyRing, is_encrypted, longest_token, payload_of, seal
from delayq.core.envelope import ABSENT, VERSION, Envelope
from delayq.core.errors import InvalidInput, UnreadableEnvelope
from delayq.core.ids import new_id
from delayq.core.names import check_id, check_job_name, check_queue
from delayq.core.options import Options
from delayq.core.payload_checks import check_payload, checks
from delayq.core.times import Duration, Instant, duration_ms, instant_ms, is_instant
from delayq.core.unique import Unique, lock_of, to_take

Limit = Duration | Instant
"""A point in time, or a duration that is counted from the due time of the job."""

MAX_TRIES: Final = 1_000_000
DUE_NOW: Final = "+0"


class NameAndData(msgspec.Struct, frozen=True):
    """The members of a JobSpec that may be given by position."""

    name: str
    data: Any = None


class JobSpec(NameAndData, frozen=True, kw_only=True):
    """Describe one job for `schedule_many`. All members but `name` are optional.

    `name` and `data` may be given by position, all other members by name.

    The job and its due time:

    * `name`: the name of the job, 1 to 255 bytes of printable characters without white space.
    * `data`: the payload. Any value that JSON can carry, or `bytes` that are JSON already.
    * `delay`: the time until the job is due, such as "15m". Default: the delay that the job declares, or none.
    * `at`: the due time instead of a delay: RFC 3339 text or a datetime.
    * `tz`: the IANA time zone of an `at` without offset, such as "Europe/Berlin".
    * `fold`: 0 or 1, the earlier or later time if the local time `at` occurs twice.
    * `id`: the id of the job, 1 to 255 printable ASCII characters without spaces. Default: a new UUIDv7.
    * `queue`: the queue. Default: the queue that the job declares, or the queue of the client.
    * `unique`: a key, such as "invoice:42" or `Unique(key=["order_id"])`. While a job owns the key, no other job with
      this key is stored in the same queue. Default: the declared value, or no key.
    * `headers`, `tags`: a mapping of texts, and a list of texts, that travel with the job. Default: no headers, and the
      tags that the job declares.
    * `encrypted`: True = encrypt the payload and the kept result; False = do not encrypt. Default: the declared value,
      or else the setting `encrypt`.

    How the job runs. If a value is missing, the declared value of the job applies. If the job declares none, the
    setting of this name applies, if there is one.

    * `tries`: the number of attempts before the job fails; 0 = no limit.
    * `backoff`: the wait after a failed attempt, such as "10s", ["10s", "1m"] or `Exponential()`.
    * `timeout`: the longest time of one attempt, such as "30s"; "0s" = no limit.
    * `max_exceptions`: the job fails when this number of attempts have raised an exception. A `Retry` does not count.
    * `retention`: how long the completed job and its result are kept, such as "1d".
    * `deadline`: a job that has not started by this time fails, and a handler that still runs then is interrupted.
    * `retry_until`: the job is retried until this time, after any number of failed attempts. Replaces `tries`, as in
      Laravel.

    `deadline` and `retry_until` are points in time, or durations from the due time. `schedule_many` checks all members
    and raises InvalidInput before it sends anything.

        JobSpec("order.close", {"order_id": 42}, delay="15m", id="order-42", queue="orders")
    """

    delay: Duration | None = None
    at: Instant | None = None
    tz: str | None = None
    fold: int | None = None
    id: str | None = None
    queue: str | None = None
    tries: int | None = None
    backoff: BackoffSpec | None = None
    timeout: Duration | None = None
    deadline: Limit | None = None
    retry_until: Limit | None = None
    max_exceptions: int | None = None
    retention: Duration | None = None
    headers: Mapping[str, str] | None = None
    tags: Sequence[str] | None = None
    unique: str | Unique | None = None
    encrypted: bool | None = None

    @property
    def needs_server_time(self) -> bool:
        """True if the job has a deadline or `retry_until`, which must be computed with the clock of the server."""
        return self.deadline is not None or self.retry_until is not None


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """One job, ready to be sent.

    `when` is the due time: relative to the server's clock ('+ms'), or absolute epoch ms. `has_own_id` is True if the
    caller chose the id. `lock` is the lock of the unique key that the job takes (see `core/unique.py`), or ''.
    """

    id: str
    name: str
    queue: str
    envelope: bytes
    when: str
    has_own_id: bool
    lock: str = ""


def prepare(spec: JobSpec, options: Options, now_ms: int) -> NewJob:
    """Check a spec and write its envelope.

    Raises InvalidInput. If the job must be encrypted, also raises ConfigError if there are no keys, or if the package
    cryptography is not installed.

    `now_ms` limits `at` to the next ten years. For a spec with `needs_server_time`, pass the time of the server:
    `deadline` and `retry_until` are computed from it.
    """
    name = check_job_name(spec.name)
    queue = check_queue(options.queue if spec.queue is None else spec.queue)
    job_id = new_id() if spec.id is None else check_id(spec.id)
    when = when_of(spec.delay, spec.at, tz=spec.tz, fold=spec.fold, now_ms=now_ms)
    data = envelopes.encode_data(spec.data, options.max_payload)
    if checks:
        check_payload(name, data)
    unique = None if spec.unique is None else lock_of(spec.unique, name, data)
    hides = options.encrypt if spec.encrypted is None else check_bool("encrypted", spec.encrypted)
    envelope = Envelope(
        v=VERSION,
        id=job_id,
        name=name,
        queue=queue,
        data=seal(options.key_ring, "data", data, job_id=job_id, name=name) if hides else data,
        attempts=0,
        created_ms=now_ms,
        retention_ms=None if spec.retention is None else duration_ms(spec.retention, field="retention"),
        tries=None if spec.tries is None else check_whole_number("tries", spec.tries, least=0),
        backoff=None if spec.backoff is None else parse_backoff(spec.backoff).to_wire(),
        timeout_ms=None if spec.timeout is None else duration_ms(spec.timeout, field="timeout"),
        max_exceptions=None
        if spec.max_exceptions is None
        else check_whole_number("max_exceptions", spec.max_exceptions, least=1),
        deadline_ms=None if spec.deadline is None else _limit_ms("deadline", spec.deadline, when, now_ms),
        retry_until_ms=None if spec.retry_until is None else _limit_ms("retry_until", spec.retry_until, when, now_ms),
        unique=unique,
        headers=None if spec.headers is None else _check_headers(spec.headers),
        tags=None if spec.tags is None else check_tags(spec.tags),
        encrypted=FORMAT if hides else ABSENT,
    )
    lock = "" if unique is None else to_take(unique)
    return NewJob(job_id, name, queue, envelopes.encode(envelope), when, spec.id is not None, lock)


def spread_out(jobs: Iterable[NewJob], spread_ms: int) -> list[NewJob]:
    """Return the jobs with delays of up to `spread_ms` added to their due times.

    The added delay is computed from the id, so that a job that is sent again with the same id gets the same delay.
    """
    return [
        msgspec.structs.replace(job, when=_later(job.when, crc32(job.id.encode()) * spread_ms >> 32)) for job in jobs
    ]


def prepare_raw(raw: bytes, options: Options, *, queue: str | None, delay: Duration | None) -> NewJob:
    """Prepare an existing envelope for a new job. If `queue` is given, it replaces the queue of the envelope.

    `delay`: None = due now. Raises InvalidInput.
    """
    try:
        envelope = envelopes.decode(raw)
    except UnreadableEnvelope as error:
        raise InvalidInput(str(error), hint="Send an envelope such as `JobInfo.raw`.") from None
    limit = longest_token(options.max_payload) if is_encrypted(envelope) else options.max_payload
    envelopes.encode_data(bytes(envelope.data), limit)
    target = check_queue(envelope.queue if queue is None else queue)
    if target != envelope.queue:
        raw = envelopes.rewrite(raw, queue=target)
    when = when_of(delay, None, now_ms=0)
    name, lock = check_job_name(envelope.name), to_take(envelope.unique)
    return NewJob(check_id(envelope.id), name, target, raw, when, has_own_id=True, lock=lock)


def with_id(job: NewJob, job_id: str, key_ring: KeyRing | None) -> NewJob:
    """Return the job with another id. An encrypted payload is encrypted again, because it is bound to the id.

    Raises NotDecrypted, ConfigError and UnreadableEnvelope if the payload cannot be decrypted.
    """
    changes: dict[str, Any] = {"id": job_id}
    envelope = envelopes.decode(job.envelope)
    if is_encrypted(envelope):
        data = payload_of(envelope, key_ring)
        changes["data"] = seal(key_ring, "data", data, job_id=job_id, name=job.name)
    return msgspec.structs.replace(job, id=job_id, envelope=envelopes.rewrite(job.envelope, **changes))


def _later(when: str, ms: int) -> str:
    return f"+{int(when) + ms}" if when.startswith("+") else str(int(when) + ms)


def check_whole_number(field: str, value: object, *, least: int, most: int = MAX_TRIES) -> int:
    """Return `value` if it is a whole number from `least` to `most`; raises InvalidInput otherwise."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise InvalidInput(f"{field} is {shown(value)}.", hint=f"Use a whole number from {least} to {most:,}.", field=field)


def when_of(
    delay: Duration | None,
    at: Instant | None,
    *,
    tz: str | None = None,
    fold: int | None = None,
    now_ms: int,
) -> str:
    """Return a due time in the form that scripts read: relative to the server's clock ('+ms'), or absolute epoch ms.

    Raises InvalidInput.
    """
    if at is not None:
        if delay is not None:
            raise InvalidInput("at= and delay= are both given.", hint="Leave out one of them.", field="at")
        return str(instant_ms(at, now_ms=now_ms, tz=tz, fold=fold))
    if tz is not None or fold is not None:
        raise InvalidInput(
            "tz= and fold= need at=, which is not given.", hint="Leave them out, or give at=.", field="tz"
        )
    return DUE_NOW if delay is None else f"+{duration_ms(delay)}"


def _limit_ms(field: str, limit: Limit, when: str, now_ms: int) -> int:
    """Return a limit in epoch ms. A limit before the due time is refused, because the job could then never start."""
    due_ms = now_ms + int(when) if when.startswith("+") else max(now_ms, int(when))
    if not is_instant(limit):
        try:
            return due_ms + duration_ms(limit, field=field)
        except InvalidInput as error:
            hint = "Write 2h, for 2h after the job is due, or 2026-11-21T15:00:00Z."
            raise InvalidInput(error.message, hint=hint, field=field) from None
    limit_ms = instant_ms(limit, now_ms=now_ms, field=field)
    if limit_ms < due_ms:
        raise InvalidInput(
            f"The {field} {limit} is before the due time of the job.",
            hint="Give a later time, or a duration, which is counted from the due time.",
            field=field,
        )
    return limit_ms


def _check_headers(headers: object) -> dict[str, str] | None:
    if isinstance(headers, Mapping) and all(_is_text(part) for pair in headers.items() for part in pair):
        return dict(headers) or None
    raise InvalidInput(
        f"headers is {shown(headers)}, not a mapping of texts to texts.",
        hint='An example: headers={"trace": "1"}.',
        field="headers",
    )


def check_tags(tags: object) -> list[str] | None:
    """Return tags as a list, or None without any; raises InvalidInput."""
    if isinstance(tags, Iterable) and not isinstance(tags, str | bytes):
        checked = list(tags)
        if all(_is_text(tag) for tag in checked):
            return checked or None
    raise InvalidInput(
        f"tags is {shown(tags)}, not a list of texts.", hint='An example: tags=["urgent"].', field="tags"
    )


def check_bool(field: str, value: object) -> bool:
    """Return `value` if it is True or False; raises InvalidInput otherwise."""
    if isinstance(value, bool):
        return value
    raise InvalidInput(f"{field} is {shown(value)}.", hint="Use True or False.", field=field)


def _is_text(value: object) -> bool:
    """Return True for a text without surrogates, which UTF-8 cannot encode."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)
