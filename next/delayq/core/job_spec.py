"""The specification of a new job, checked and prepared for Redis. All that is wrong with it is found here, before
anything is sent.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from zlib import crc32

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.backoff import BackoffSpec, parse_backoff
from delayq.core.display import shown
from delayq.core.envelope import VERSION, Envelope
from delayq.core.errors import InvalidInput, UnreadableEnvelope
from delayq.core.ids import new_id
from delayq.core.names import check_id, check_job_name, check_queue
from delayq.core.options import Options
from delayq.core.times import Duration, Instant, duration_ms, instant_ms, is_instant

Limit = Duration | Instant
"""A duration, counted from when the job is due, or a point in time."""

MAX_TRIES: Final = 1_000_000
DUE_NOW: Final = "+0"


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One job to schedule; the items of `schedule_many`.

    `data` is anything that JSON can carry, or `bytes` that are JSON already. At most one of `delay` ('15m') and `at`
    (RFC 3339 text or datetime) is given; neither means now. `tz` and `fold` belong to an `at` without offset. `queue`
    None is the default queue. `tries` 0 means no limit, None what the handler declares; so do `backoff`, `timeout` (of
    one attempt; '0s' = none), `retention` and `max_exceptions`. `deadline` is when the job is no longer worth
    starting, `retry_until` when it is no longer tried again, which goes before `tries`.
    """

    name: str
    data: Any = None
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

    @property
    def needs_server_time(self) -> bool:
        """Whether it holds limits that are counted by the clock of the server."""
        return self.deadline is not None or self.retry_until is not None


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """One job, ready to be sent. `when` is '+delay_ms', counted by the server, or epoch ms. `lock`: of a unique key."""

    id: str
    name: str
    queue: str
    envelope: bytes
    when: str
    has_own_id: bool
    lock: str = ""


def prepare(spec: JobSpec, options: Options, now_ms: int) -> NewJob:
    """Check a spec and write its envelope; raises InvalidInput.

    `now_ms` bounds `at`. Limits are counted from it, so for a spec that needs the server's time it must be that.
    """
    name = check_job_name(spec.name)
    queue = check_queue(options.queue if spec.queue is None else spec.queue)
    job_id = new_id() if spec.id is None else check_id(spec.id)
    when = when_of(spec.delay, spec.at, tz=spec.tz, fold=spec.fold, now_ms=now_ms)
    envelope = Envelope(
        v=VERSION,
        id=job_id,
        name=name,
        queue=queue,
        data=envelopes.encode_data(spec.data, options.max_payload),
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
        headers=None if spec.headers is None else _check_headers(spec.headers),
        tags=None if spec.tags is None else check_tags(spec.tags),
    )
    return NewJob(job_id, name, queue, envelopes.encode(envelope), when, spec.id is not None)


def spread_out(jobs: Iterable[NewJob], spread_ms: int) -> list[NewJob]:
    """Return jobs with their due times scattered over so long. The id decides, so the same job gets the same time."""
    return [
        msgspec.structs.replace(job, when=_later(job.when, crc32(job.id.encode()) * spread_ms >> 32)) for job in jobs
    ]


def prepare_raw(raw: bytes, options: Options, *, queue: str | None, delay: Duration | None) -> NewJob:
    """Prepare an envelope that is made already; only another `queue` is written into it.

    Raises InvalidInput.
    """
    try:
        envelope = envelopes.decode(raw)
    except UnreadableEnvelope as error:
        raise InvalidInput(str(error), hint="Send an envelope such as `JobInfo.raw`.") from None
    envelopes.encode_data(bytes(envelope.data), options.max_payload)
    target = check_queue(envelope.queue if queue is None else queue)
    if target != envelope.queue:
        raw = envelopes.rewrite(raw, queue=target)
    when = when_of(delay, None, now_ms=0)
    return NewJob(check_id(envelope.id), check_job_name(envelope.name), target, raw, when, has_own_id=True)


def _later(when: str, ms: int) -> str:
    return f"+{int(when) + ms}" if when.startswith("+") else str(int(when) + ms)


def check_whole_number(field: str, value: object, *, least: int, most: int = MAX_TRIES) -> int:
    """Return a whole number between two bounds; raises InvalidInput."""
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
    """Return a due time as scripts read it. A delay is added by the server, to its own clock."""
    if at is not None:
        if delay is not None:
            raise InvalidInput("at= and delay= are both given.", hint="Drop one of them.", field="at")
        return str(instant_ms(at, now_ms=now_ms, tz=tz, fold=fold))
    if tz is not None or fold is not None:
        raise InvalidInput(
            "tz= and fold= belong to at=, which is not given.", hint="Drop them, or give at=.", field="tz"
        )
    return DUE_NOW if delay is None else f"+{duration_ms(delay)}"


def _limit_ms(field: str, limit: Limit, when: str, now_ms: int) -> int:
    """Return a limit as epoch ms. One before the job is due would fail the job without a start, and is refused."""
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
            f"The {field} {limit} lies before the job is due.",
            hint="Give a later one, or a duration, which counts from when the job is due.",
            field=field,
        )
    return limit_ms


def _check_headers(headers: object) -> dict[str, str] | None:
    if isinstance(headers, Mapping) and all(_is_text(part) for pair in headers.items() for part in pair):
        return dict(headers) or None
    raise InvalidInput(
        f"headers is {shown(headers)}, which does not map texts to texts.",
        hint='An example: headers={"trace": "1"}.',
        field="headers",
    )


def check_tags(tags: object) -> list[str] | None:
    """Return tags as a list, None for none; raises InvalidInput."""
    if isinstance(tags, Iterable) and not isinstance(tags, str | bytes):
        checked = list(tags)
        if all(_is_text(tag) for tag in checked):
            return checked or None
    raise InvalidInput(
        f"tags is {shown(tags)}, which is no list of texts.", hint='An example: tags=["urgent"].', field="tags"
    )


def _is_text(value: object) -> bool:
    """Whether a value is text that UTF-8 can carry."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)
