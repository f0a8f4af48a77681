"""show, list, upcoming, stats: what only looks. Without a queue, all of them are shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain, islice
from typing import Final, TypeAlias

import msgspec

from delayq.cli.session import Session
from delayq.cli.words import count, distance, moment, span
from delayq.core import shapes
from delayq.core.durations import format_duration
from delayq.core.errors import BackendError, JobNotFound
from delayq.core.progress import Progress
from delayq.core.sealing import HIDDEN, hide
from delayq.core.states import State
from delayq.core.views import JobInfo, QueueStats, Upcoming
from delayq.core.when import format_instant
from delayq.core.why import Weight
from delayq.drivers.serving.desk import BrokerDesk
from delayq.drivers.serving.failed_desk import FailedDesk
from delayq.redis.client import Client
from delayq.redis.reasons import OPEN, reasons

STATES: Final = (State.SCHEDULED, State.READY, State.RESERVED, State.FAILED, State.COMPLETED)
Desk: TypeAlias = "Client | BrokerDesk | FailedDesk"
"""What can be asked for one job."""
_SHOWN_DATA: Final = 2_000
_BAR: Final = 40
_NONE: Final = "No queue is known yet; the first `delayq schedule` makes one."
_EMPTY: Final = "No queue holds a job now, and none has failed; a queue of this backend is there while it holds one."


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs `list` shows; None = all."""

    state: str | None
    queue: str | None
    name: str | None
    limit: int


def local_ms() -> int:
    """This machine's clock, for "in 14m": what decides is the server's."""
    return time.time_ns() // 1_000_000


def show(session: Session, job_id: str, queue: str | None, *, as_json: bool) -> None:
    """Everything known about one job, and what keeps it from running."""
    with session.desk() as client:
        info = find(client, job_id, queue)
        told = _problems(client, info) if isinstance(client, Client) and not as_json else []
    print_job(session, info, as_json=as_json)
    session.out.record(told)


def _problems(client: Client, info: JobInfo) -> list[tuple[str, object]]:
    """What keeps a job that is not done from running, and what to do about it."""
    if info.state not in OPEN:
        return []
    found = [reason for reason in reasons(client, info) if reason.weight is Weight.PROBLEM]
    return [line for reason in found for line in (("problem", reason.what), ("next", reason.next))]


def why(session: Session, job_id: str, queue: str | None, *, as_json: bool) -> None:
    """Why a job has not run, the heaviest reason first."""
    with session.client() as client:
        info = find(client, job_id, queue)
        found = reasons(client, info)
    if as_json:
        session.out.json(shapes.why(info, found))
        return
    for reason in found:
        session.out.line(f"{reason.weight}: {reason.what} [{reason.code}]")
        if reason.next:
            session.out.line(f"  next: {reason.next}")


def find(client: Desk, job_id: str, queue: str | None) -> JobInfo:
    """The job; raises `JobNotFound`."""
    info = client.get(job_id, queue=queue)
    if info is None:
        raise JobNotFound(
            f"No job {job_id!r} is known in queue {queue or client.options.queue!r}.",
            hint="It may have been done already, or lie in another queue (--queue).",
        )
    return info


def print_job(session: Session, info: JobInfo, *, as_json: bool) -> None:
    """One job in full; of an encrypted one without what is encrypted."""
    info = hide(info)
    if as_json:
        session.out.json(shapes.job_in_full(info))
        return
    session.out.record(_fields(info, local_ms()))


def _fields(info: JobInfo, now_ms: int) -> Iterator[tuple[str, object]]:
    envelope = info.envelope
    yield "id", info.id
    yield "name", info.name or "(its envelope cannot be read)"
    yield "queue", info.queue
    yield "state", info.state
    yield "due", moment(info.due_ms, now_ms)
    yield "failed", moment(info.failed_ms, now_ms)
    yield "kept until", moment(info.forget_ms, now_ms)
    yield "created", moment(info.created_ms, now_ms)
    yield "attempts", "" if info.attempts is None else info.attempts
    yield "tries", envelope.tries if envelope else ""
    if envelope:
        yield "timeout", "" if envelope.timeout_ms is None else format_duration(envelope.timeout_ms)
        yield "deadline", moment(envelope.deadline_ms, now_ms)
        yield "unique", envelope.unique or ""
    yield "recoveries", info.recoveries or ""
    yield "worker", info.consumer
    yield "asked to stop", moment(info.cancel_asked_ms, now_ms)
    if info.progress is not None:
        yield from _told(info.progress, now_ms)
    yield "tags", ", ".join(envelope.tags or ()) if envelope else ""
    yield "data", HIDDEN if info.encrypted else cut(bytes(shapes.payload(info)) if envelope else info.raw)
    yield "result", "" if info.result is None else info.result
    if info.failure:
        yield "error", f"{info.failure.type}: {info.failure.message}"
        for earlier in info.failure.history:
            yield f"before (attempt {earlier.attempt or '?'})", f"{earlier.type}: {earlier.message}"
        yield "traceback", info.failure.traceback


def _told(progress: Progress, now_ms: int) -> Iterator[tuple[str, object]]:
    done, share = progress.done, progress.fraction
    of = "" if progress.total is None else f" of {progress.total:,}"
    yield "progress", "" if done is None else f"{done:,}{of}" + ("" if share is None else f" ({share:.0%})")
    yield "note", progress.note
    yield "partial result", "" if progress.partial is None else cut(msgspec.json.encode(progress.partial))
    yield "told", moment(progress.at_ms, now_ms)


def cut(raw: bytes) -> str:
    """A payload for people; a long one only begins."""
    text = raw[:_SHOWN_DATA].decode("utf-8", "replace")
    return text if len(raw) <= _SHOWN_DATA else f"{text} … ({len(raw):,} bytes; --json prints all)"


def list_jobs(session: Session, wanted: Wanted, *, as_json: bool) -> None:
    """Jobs, state by state; one more than shown is looked for, to say so."""
    states = (State(wanted.state),) if wanted.state else STATES
    with session.desk() as client:
        found = islice(matching(client, states, wanted), wanted.limit + 1)
        shown = islice(found, wanted.limit)
        if as_json:
            for info in shown:
                session.out.json(shapes.job(info))
        else:
            now_ms = local_ms()
            columns = ("id", "name", "queue", "state", "when", "attempts")
            session.out.table(columns, [_row(info, now_ms) for info in shown], numbers=("attempts",))
        if next(found, None) is not None:
            session.out.note(f"There are more than {wanted.limit}; --limit shows them.")


def matching(client: BrokerDesk | Client, states: tuple[State, ...], wanted: Wanted) -> Iterator[JobInfo]:
    """The jobs of these states, queue by queue, whose name fits the pattern."""
    queues = [wanted.queue] if wanted.queue else client.queues() or [client.options.queue]  # one that cannot, says so
    jobs = chain.from_iterable(client.iter_jobs(state, queue=queue) for queue in queues for state in states)
    return (info for info in jobs if wanted.name is None or fnmatchcase(info.name, wanted.name))


def _row(info: JobInfo, now_ms: int) -> tuple[object, ...]:
    at = next((ms for ms in (info.due_ms, info.failed_ms, info.forget_ms) if ms is not None), None)
    attempts = "" if info.attempts is None else info.attempts
    when = "" if at is None else distance(at, now_ms)
    return info.id, info.name or "?", info.queue, info.state, when, attempts


def upcoming(session: Session, queue: str | None, span_text: str, spans: int, *, as_json: bool) -> None:
    """When jobs fall due."""
    with session.client() as client:
        names = [queue] if queue else client.queues()
        histograms = [client.upcoming(name, span=span_text, spans=spans) for name in names]
    if as_json:
        for histogram in histograms:
            session.out.json(shapes.upcoming(histogram))
        return
    rows = [row for histogram in histograms for row in _spans(histogram)]
    session.out.table(("queue", "due", "from", "jobs", ""), rows, numbers=("jobs",))


def _spans(histogram: Upcoming) -> Iterator[tuple[object, ...]]:
    """A row for each span that holds something, with a bar in proportion to the fullest."""
    most = max(histogram.overdue, *histogram.counts, histogram.later)
    end_ms = histogram.now_ms + histogram.span_ms * len(histogram.counts)
    rows = [("overdue", histogram.now_ms, histogram.overdue)]
    for n, jobs in enumerate(histogram.counts):
        start_ms = histogram.now_ms + n * histogram.span_ms
        rows.append((distance(start_ms + histogram.span_ms, histogram.now_ms), start_ms, jobs))
    rows.append(("later", end_ms, histogram.later))
    for due, start_ms, jobs in rows:
        if jobs:
            start = "" if due == "overdue" else format_instant(start_ms)
            yield histogram.queue, due.replace("in ", "within "), start, f"{jobs:,}", "#" * -(-jobs * _BAR // most)


def stats(session: Session, queue: str | None, busy_above: int | None, *, as_json: bool) -> int:
    """How much is in which state; the exit code, which is 1 when a queue is busy."""
    with session.desk() as client:
        busy = [] if busy_above is None else client.busy(above=busy_above, queue=queue)
        (found, away), switches = _stats_of(client, queue), client.control()
        buried = client.all_buried() if isinstance(client, BrokerDesk) else {}
    held, code = switches.held_by(), 1 if busy else 0
    for one in busy:
        session.out.note(f"Queue {one.queue} is busy: {count(one.load, 'job')} to do, and {busy_above:,} are many.")
    if as_json:
        control = {"control": shapes.control(switches)} if held else {}
        watched = {} if busy_above is None else {"busy": [one.queue for one in busy]}
        session.out.json({"queues": [shapes.queue(one) for one in found], **watched, **control})
        return _unless_away(code, away)
    numbers = ("scheduled", "ready", "reserved", "failed", "completed", "overdue")
    session.out.table(("queue", *numbers, "paused"), map(_counts, found), numbers=numbers)
    if not found:
        session.out.note(_EMPTY if isinstance(client, BrokerDesk) else _NONE)
    for name, number in buried.items():
        kick = f"delayq failed kick --queue {name}"
        session.out.note(f"{count(number, 'unreadable job')} of {name} buried: {kick} gives back.")
    if held:
        session.out.note(f"Workers fetch nothing now ({held}); `delayq maintenance show` tells more.")
    return _unless_away(code, away)


def _stats_of(client: BrokerDesk | Client, queue: str | None) -> tuple[list[QueueStats], BackendError | None]:
    """Counts of one queue, or of all whose node of a cluster can be asked, and the error of the first other one."""
    if queue is not None or isinstance(client, BrokerDesk):
        return client.stats(queue), None
    found: list[QueueStats] = []
    away: BackendError | None = None
    for name in client.queues():
        try:
            found += client.stats(name)
        except BackendError as error:
            if not error.apart:
                raise
            away = away or error
    return found, away


def _unless_away(code: int, away: BackendError | None) -> int:
    """The exit code, when all queues are shown; else raises the error of a queue that is not."""
    if away is not None:
        raise away
    return code


def _counts(one: QueueStats) -> tuple[object, ...]:
    overdue = span(one.overdue_oldest_ms) if one.overdue_oldest_ms else ""
    until = one.paused_until_ms
    paused = "" if until is None else distance(until, one.now_ms).replace("in ", "for ") if until else "until resumed"
    places = (one.scheduled, one.ready, one.reserved, one.failed, one.completed)
    return one.queue, *(f"{number:,}" for number in places), overdue, paused
