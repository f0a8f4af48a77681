"""failed list, show, retry, forget, flush, prune."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Final

from delayq.cli.actions.chosen import Chosen
from delayq.cli.actions.look import cut, find, local_ms, print_job
from delayq.cli.actions.produce import checkable
from delayq.cli.actions.switch import print_dropped
from delayq.cli.headway import Headway
from delayq.cli.session import Session
from delayq.cli.words import count, distance
from delayq.core import shapes
from delayq.core.errors import InvalidInput, InvalidName, JobNotFailed, JobNotFound
from delayq.core.failure import Failure
from delayq.core.rate import Pace, parse_rate
from delayq.core.sealing import hide
from delayq.core.states import Answer, State
from delayq.core.views import JobInfo, Retried
from delayq.drivers.serving.desk import BrokerDesk
from delayq.drivers.serving.failed_desk import FailedDesk
from delayq.redis.client import Client

BATCH: Final = 500


def list_failed(session: Session, chosen: Chosen, limit: int, *, as_json: bool) -> None:
    """Failed jobs with their last error and their first, which are asked for one by one."""
    with session.failed() as client:
        queues = [chosen.queue] if chosen.queue else client.queues()
        found = chain.from_iterable(client.iter_failed(queue, **chosen.which) for queue in queues)
        jobs = (_in_full(client, info) for info in islice(found, limit))
        if as_json:
            for info in jobs:
                session.out.json(shapes.job_in_full(hide(info)))
        else:
            now_ms = local_ms()
            session.out.table(("id", "name", "queue", "failed", "error"), [_row(info, now_ms) for info in jobs])
        if next(found, None) is not None:
            session.out.note(f"There are more than {limit}; --limit shows them.")
        if isinstance(client, FailedDesk):
            tell_buried(session, client.buried(), chosen.queue)


def _in_full(client: Client | FailedDesk, info: JobInfo) -> JobInfo:
    """With its errors. An id that no job can have, and somebody else wrote there, cannot be asked for."""
    try:
        return client.get(info.id, queue=info.queue) or info
    except InvalidName:
        return info


def tell_buried(session: Session, buried: Mapping[str, int], only: str | None) -> None:
    """Name the queues that have buried jobs; `only` one of them when it is given."""
    for queue, number in buried.items():
        if only in (None, queue):
            kick = f"delayq failed kick --queue {queue}"
            session.out.note(f"{count(number, 'unreadable job')} of {queue} buried: {kick} gives back.")


def kick(session: Session, queue: str | None, limit: int, *, as_json: bool) -> None:
    """Give back what a backend has buried."""
    with session.desk() as desk:
        if not isinstance(desk, BrokerDesk):
            raise InvalidInput("Redis buries nothing: what is no job is among the failed there.")
        name = queue or desk.options.queue
        given, left = desk.kick(name, limit=limit), desk.buried(name)
    if as_json:
        session.out.json({"queue": name, "kicked": given, "buried": left})
        return
    session.out.line(f"{name}: {given} given back, {left} still buried")


def _row(info: JobInfo, now_ms: int) -> tuple[str, ...]:
    when = "" if info.failed_ms is None else distance(info.failed_ms, now_ms)
    return info.id, info.name or "?", info.queue, when, _errors(info.failure) if info.failure else ""


def _errors(failure: Failure) -> str:
    """The last error; and the first, when it was another: the last one often says only that there were too many."""
    first, shown = failure.first, _error(failure)
    same = (first.type, first.message) == (failure.type, failure.message)
    return shown if same else f"{shown}; first {_error(first)}"


def _error(failure: Failure) -> str:
    return cut(f"{failure.type}: {failure.message}".encode()[:200])


def show(session: Session, job_id: str, queue: str | None, *, as_json: bool) -> None:
    """One failed job in full."""
    with session.failed() as client:
        info = find(client, job_id, queue)
    if info.state is not State.FAILED:
        raise JobNotFailed(f"The job {job_id!r} is {info.state}, not failed.", hint=f"Use: delayq show {job_id}")
    print_job(session, info, as_json=as_json)


def retry(session: Session, chosen: Chosen, rate: str | None, *, as_json: bool) -> int:
    """Try them again; the worst exit code. One that cannot be retried keeps no other from it."""
    chosen.check()
    code = done = 0
    pace = Pace(parse_rate(rate) if rate else None)
    with session.failed() as client:
        ids = begun(chosen.find_ids(client))
        session.record(client, "retry", chosen.queue or client.options.queue, chosen.words)
        headway = Headway(session.out.note, _how_many(client, chosen))
        for job_id, ref, error in _retried(client, ids, chosen.queue or client.options.queue, pace):
            headway.step()
            if error is not None:
                session.out.error(error.message, error.hint)
                code = max(code, error.exit_code)
            if ref is None:
                continue
            done += 1
            if as_json:
                session.out.json(shapes.scheduled(ref))
            else:
                session.out.line(job_id)
        session.out.note(f"{count(done, 'job')} to be tried again in queue {chosen.queue or client.options.queue}.")
    return code


def begun(ids: Iterator[str]) -> Iterator[str]:
    """The same ids, the first one found: what cannot be asked for is refused here, before anything is written down."""
    return chain(list(islice(ids, 1)), ids)


def _retried(client: Client | FailedDesk, ids: Iterator[str], queue: str, pace: Pace) -> Iterator[Retried]:
    """The answers, at the pace that was asked for."""
    for job_id in ids:
        time.sleep(pace.wait_s(time.monotonic()))
        with checkable(job_id, queue):
            if isinstance(client, FailedDesk):
                answer = client.retry_one(job_id, queue=queue)
            else:
                answer = client.run(client.failed_verbs.retry(job_id, queue))
        yield answer


def _how_many(client: Client | FailedDesk, chosen: Chosen) -> int:
    """How many there will be, as far as that is known beforehand; 0 when it is not."""
    if chosen.ids or not chosen.every or chosen.name or chosen.since or chosen.until:
        return len(set(chosen.ids))
    if isinstance(client, FailedDesk):
        return client.count(chosen.queue)
    [stats] = client.stats(chosen.queue or client.options.queue)
    return stats.failed


def forget(session: Session, chosen: Chosen, *, yes: bool, as_json: bool) -> int:
    """Drop them for good; the worst exit code."""
    chosen.check()
    codes = {Answer.FORGOTTEN: 0, Answer.UNKNOWN: JobNotFound.exit_code, Answer.REFUSED: JobNotFailed.exit_code}
    code = 0
    with session.failed() as client:
        queue = chosen.queue or client.options.queue
        if not chosen.ids:
            session.out.confirm(f"Drop every {chosen} in queue {queue}?", yes=yes)
        ids = begun(chosen.find_ids(client))
        session.record(client, "forget", queue, chosen.words)
        while batch := list(islice(ids, BATCH)):
            for job_id, answer in zip(batch, client.forget(batch, queue=queue), strict=True):
                code = max(code, codes[answer])
                if as_json:
                    session.out.json(shapes.answered(job_id, queue, answer))
                else:
                    session.out.line(f"{job_id} {answer}")
    return code


def flush(session: Session, queue: str | None, *, yes: bool, as_json: bool) -> None:
    """Drop all failed jobs of a queue."""
    with session.failed() as client:
        name = queue or client.options.queue
        session.out.confirm(f"Drop every failed job in queue {name}?", yes=yes)
        session.record(client, "flush failed", name)
        dropped = client.prune_failed(name, older="0s")
    print_dropped(session, name, dropped, as_json=as_json)


def prune(session: Session, queue: str | None, older: str, *, as_json: bool) -> None:
    """Drop what failed long ago."""
    with session.failed() as client:
        name = queue or client.options.queue
        session.record(client, "prune failed", name, f"older than {older}")
        dropped = client.prune_failed(name, older=older)
    print_dropped(session, name, dropped, as_json=as_json)
