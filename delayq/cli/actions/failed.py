"""failed list, show, retry, forget, flush, prune."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

from msgspec import UNSET

from delayq.cli.actions.chosen import Chosen
from delayq.cli.actions.look import cut, find, local_ms, print_job
from delayq.cli.actions.produce import checkable
from delayq.cli.headway import Headway
from delayq.cli.payload import read_data
from delayq.cli.session import Session
from delayq.cli.words import count, distance
from delayq.core import shapes
from delayq.core.errors import FoundElsewhere, InvalidInput, InvalidName, JobNotFailed, JobNotFound
from delayq.core.failure import Failure
from delayq.core.failure_groups import FailureGroup
from delayq.core.rate import Pace, parse_rate
from delayq.core.sealing import hide
from delayq.core.states import Answer, State
from delayq.core.views import JobInfo, Retried
from delayq.drivers.serving.desk import BrokerDesk
from delayq.drivers.serving.failed_desk import FailedDesk
from delayq.redis.client import Client

BATCH: Final = 500


NO_MATCH: Final = "No failed job matches."


def list_failed(session: Session, chosen: Chosen, limit: int, *, as_json: bool) -> None:
    """Failed jobs with their last error and their first, which are asked for one by one."""
    with session.failed() as client:
        found = chain.from_iterable(client.iter_failed(queue, **chosen.which) for queue in chosen.among(client))
        first = list(islice(found, 1))
        jobs = (_in_full(client, info) for info in islice(chain(first, found), limit))
        if as_json:
            for info in jobs:
                session.out.json(shapes.job_in_full(hide(info)))
        else:
            now_ms = local_ms()
            session.out.table(("id", "name", "queue", "failed", "error"), [_row(info, now_ms) for info in jobs])
        if not first:
            session.out.note(NO_MATCH)
        elif next(found, None) is not None:
            session.out.note(f"There are more than {limit}; --limit shows them.")
        if isinstance(client, FailedDesk):
            tell_buried(session, client.buried(), chosen.queues)


def groups(session: Session, chosen: Chosen, queue: str | None, looks: int, *, as_json: bool) -> None:
    """Failed jobs by job name and error, the largest group first."""
    with session.failed() as client:
        found = client.failed_groups(queue, looks=looks, **chosen.which)
    if as_json:
        for group in found.groups:
            session.out.json(shapes.failure_group(group))
    else:
        now_ms = local_ms()
        rows = [_group_row(group, now_ms) for group in found.groups]
        session.out.table(("signature", "count", "name", "first", "last", "error"), rows, numbers=("count",))
    if found.others:
        session.out.note(f"{count(found.others, 'more job')} failed in other ways; --name or --since narrows the list.")
    if found.cursor:
        session.out.note(f"Only {count(found.looked, 'failed job')} were looked at; --looks raises that.")


def _group_row(group: FailureGroup, now_ms: int) -> tuple[str, ...]:
    first, last = distance(group.first_ms, now_ms), distance(group.last_ms, now_ms)
    error = cut(f"{group.type}: {group.message}".encode()[:200])
    return group.signature, str(group.count), group.name or "?", first, last, error


def _in_full(client: Client | FailedDesk, info: JobInfo) -> JobInfo:
    """With its errors. An id that no job can have, and somebody else wrote there, cannot be asked for."""
    try:
        return client.get(info.id, queue=info.queue) or info
    except InvalidName:
        return info


def tell_buried(session: Session, buried: Mapping[str, int], only: Sequence[str]) -> None:
    """Name the queues that have buried jobs; `only` these when there are any."""
    for queue, number in buried.items():
        if not only or queue in only:
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


def show(session: Session, job_id: str, queues: Sequence[str], *, as_json: bool) -> None:
    """One failed job in full, of the queues named, else of any queue."""
    with session.failed() as client:
        found = _everywhere(client, job_id, queues)
    failed = [info for info in found if info.state is State.FAILED]
    if len(failed) > 1:
        where = ", ".join(info.queue for info in failed)
        raise InvalidInput(f"The job {job_id!r} has failed in several queues: {where}.", hint="Name one with --queue.")
    if not failed:
        raise JobNotFailed(
            f"The job {job_id!r} in queue {found[0].queue!r} is {found[0].state}, not failed.",
            hint=f"Use: delayq show {job_id} --queue {found[0].queue}",
        )
    print_job(session, failed[0], as_json=as_json)


def _everywhere(client: Client | FailedDesk, job_id: str, queues: Sequence[str]) -> list[JobInfo]:
    """The jobs with this id; raises `JobNotFound` when there is none."""
    if not queues:
        try:
            return [find(client, job_id, None)]
        except FoundElsewhere as error:
            if not error.queues:
                raise
            queues = error.queues
    found = [info for queue in queues if (info := client.get(job_id, queue=queue))]
    return found or [find(client, job_id, queues[0])]


def retry(session: Session, chosen: Chosen, rate: str | None, data: str | None, *, as_json: bool) -> int:
    """Try them again; the worst exit code. One that cannot be retried keeps no other from it."""
    chosen.check()
    if data is not None and len(chosen.ids) != 1:
        raise InvalidInput("--data is the payload of one job.", hint="Name one id: delayq failed retry ID --data JSON")
    code = 0
    done: dict[str, int] = {}
    pace = Pace(parse_rate(rate) if rate else None)
    with session.failed() as client:
        headway: Headway | None = None
        payload = UNSET if data is None else read_data(data, client.options.max_payload)
        if payload is not UNSET and isinstance(client, FailedDesk):
            raise InvalidInput("--data changes jobs on Redis only.", hint="Schedule a new job with the payload.")
        words = chosen.words if payload is UNSET else f"{chosen.words}, with another payload"
        for queue, ids in chosen.by_queue(client):
            headway = headway or Headway(session.out.note, _how_many(client, chosen))
            where = queue or client.options.queue
            session.record(client, "retry", where, words)
            for job_id, ref, error in _retried(client, ids, queue, pace, payload):
                headway.step()
                if error is not None:
                    session.out.error(error.message, error.hint)
                    code = max(code, error.exit_code)
                if ref is None:
                    continue
                done[where] = done.get(where, 0) + 1
                if as_json:
                    session.out.json(shapes.scheduled(ref))
                else:
                    session.out.line(job_id)
    if headway is None:
        session.out.note(NO_MATCH)
    else:
        spread = f": {_spread(done)}" if done else ""
        session.out.note(f"{count(sum(done.values()), 'job')} to be tried again{spread}.")
    return code


def _spread(counts: Mapping[str, int]) -> str:
    """'10 in orders, 2 in mail'."""
    return ", ".join(f"{number:,} in {queue}" for queue, number in counts.items())


def _retried(
    client: Client | FailedDesk, ids: Iterator[str], queue: str | None, pace: Pace, data: object
) -> Iterator[Retried]:
    """The answers, at the pace that was asked for."""
    for job_id in ids:
        time.sleep(pace.wait_s(time.monotonic()))
        with checkable(job_id, queue or client.options.queue):
            if isinstance(client, FailedDesk):
                answer = client.retry_one(job_id, queue=queue)
            else:
                answer = client.run(client.failed_verbs.retry(job_id, queue, data))
        yield answer


def _how_many(client: Client | FailedDesk, chosen: Chosen) -> int:
    """How many there will be, as far as that is known beforehand; 0 when it is not."""
    if chosen.ids or chosen.narrowed:
        return len(set(chosen.ids))
    return sum(chosen.counts(client).values())


def _may_drop(session: Session, client: Client | FailedDesk, chosen: Chosen, *, yes: bool) -> bool:
    """Ask before all that fit are dropped, with how many each queue has; False when there is none."""
    if yes:
        return True
    counts = chosen.counts(client)
    if not counts and session.out.can_ask:
        session.out.note(NO_MATCH)
        return False
    session.out.confirm(f"Drop every {chosen}: {_spread(counts) or 'none now'}?", yes=False)
    return True


def forget(session: Session, chosen: Chosen, *, yes: bool, as_json: bool) -> int:
    """Drop them for good; the worst exit code."""
    chosen.check()
    codes = {Answer.FORGOTTEN: 0, Answer.UNKNOWN: JobNotFound.exit_code, Answer.REFUSED: JobNotFailed.exit_code}
    code = 0
    with session.failed() as client:
        if not chosen.ids and not _may_drop(session, client, chosen, yes=yes):
            return 0
        nothing = True
        for queue, ids in chosen.by_queue(client):
            nothing = False
            where = queue or client.options.queue
            session.record(client, "forget", where, chosen.words)
            while batch := list(islice(ids, BATCH)):
                for job_id, answer in zip(batch, _forgotten(session, client, batch, queue), strict=True):
                    code = max(code, codes[answer])
                    if as_json:
                        session.out.json(shapes.answered(job_id, where, answer))
                    else:
                        session.out.line(f"{job_id} {answer}")
        if nothing:
            session.out.note(NO_MATCH)
    return code


def _forgotten(session: Session, client: Client | FailedDesk, ids: list[str], queue: str | None) -> Sequence[Answer]:
    """The answer for each id; where another queue has one of them, that is said."""
    try:
        return client.forget(ids, queue=queue)
    except FoundElsewhere as error:
        session.out.error(error.message, error.hint)
        return [Answer(str(answer)) for answer in error.done]


def flush(session: Session, chosen: Chosen, *, yes: bool, as_json: bool) -> None:
    """Drop all failed jobs of the queues that are meant."""
    with session.failed() as client:
        if _may_drop(session, client, chosen, yes=yes):
            _drop(session, client, chosen, ("flush failed", "", "0s"), as_json=as_json)


def prune(session: Session, chosen: Chosen, older: str, *, as_json: bool) -> None:
    """Drop what failed long ago."""
    with session.failed() as client:
        _drop(session, client, chosen, ("prune failed", f"older than {older}", older), as_json=as_json)


def _drop(
    session: Session, client: Client | FailedDesk, chosen: Chosen, deed: tuple[str, str, str], *, as_json: bool
) -> None:
    """Drop queue by queue. `deed`: the action and the detail for the audit log, and the least age of the jobs."""
    what, detail, older = deed
    dropped: dict[str, int] = {}
    holding = chosen.counts(client)
    for queue in chosen.among(client):
        if queue in holding:
            session.record(client, what, queue, detail)
            dropped[queue] = client.prune_failed(queue, older=older)
        if as_json:
            session.out.json({"queue": queue, "dropped": dropped.get(queue, 0)})
    if isinstance(client, FailedDesk):
        client.prune_leftovers()  # of queues without a failed job, too
    total = sum(dropped.values())
    if not as_json:
        session.out.line(str(total))
    session.out.note(f"{count(total, 'job')} dropped: {_spread(dropped)}." if total else NO_MATCH)
