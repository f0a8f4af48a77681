"""failed list, show, retry, forget, flush, prune."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import Final

from delayq.cli import shapes
from delayq.cli.actions.look import Wanted, cut, find, local_ms, matching, print_job
from delayq.cli.actions.produce import checkable
from delayq.cli.actions.switch import print_dropped
from delayq.cli.session import Session
from delayq.cli.words import count, distance
from delayq.core.errors import Conflict, InvalidInput, JobNotFailed, JobNotFound
from delayq.core.states import Answer, State
from delayq.core.views import JobInfo
from delayq.redis.client import Client

BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which failed jobs are meant: these ids, or every one (whose name fits the pattern)."""

    ids: tuple[str, ...]
    every: bool
    name: str | None
    queue: str | None

    def check(self) -> None:
        """Raises `InvalidInput` unless it is one or the other."""
        if self.ids and self.every:
            raise InvalidInput("Ids and --all exclude each other.", hint="Leave out one of the two.")
        if not self.ids and not self.every:
            raise InvalidInput("No job was named.", hint="Give ids, or --all for every failed job of the queue.")
        if self.name is not None and not self.every:
            raise InvalidInput("--name chooses among all failed jobs.", hint="Say --all as well, or leave it out.")

    def find(self, client: Client) -> Iterator[str]:
        """The ids. With `--all`: what has failed by now; a job that fails again meanwhile is not met twice."""
        if not self.every:
            yield from dict.fromkeys(self.ids)
            return
        [stats] = client.stats(self.queue or client.options.queue)
        for info in client.iter_jobs(State.FAILED, queue=self.queue):
            if (info.failed_ms or 0) > stats.now_ms:
                return
            if self.name is None or fnmatchcase(info.name, self.name):
                yield info.id


def list_failed(session: Session, queue: str | None, name: str | None, limit: int, *, as_json: bool) -> None:
    """Failed jobs with their last error, which is asked for one by one."""
    with session.client() as client:
        found = matching(client, (State.FAILED,), Wanted("failed", queue, name, limit))
        jobs = (client.get(info.id, queue=info.queue) or info for info in islice(found, limit))
        if as_json:
            for info in jobs:
                session.out.json(shapes.job_in_full(info))
        else:
            now_ms = local_ms()
            session.out.table(("id", "name", "queue", "failed", "error"), [_row(info, now_ms) for info in jobs])
        if next(found, None) is not None:
            session.out.note(f"There are more than {limit}; --limit shows them.")


def _row(info: JobInfo, now_ms: int) -> tuple[str, ...]:
    failure = info.failure
    error = cut(f"{failure.type}: {failure.message}".encode()[:200]) if failure else ""
    when = "" if info.failed_ms is None else distance(info.failed_ms, now_ms)
    return info.id, info.name or "?", info.queue, when, error


def show(session: Session, job_id: str, queue: str | None, *, as_json: bool) -> None:
    """One failed job in full."""
    with session.client() as client:
        info = find(client, job_id, queue)
    if info.state is not State.FAILED:
        raise JobNotFailed(f"The job {job_id!r} is {info.state}, not failed.", hint=f"Use: delayq show {job_id}")
    print_job(session, info, as_json=as_json)


def retry(session: Session, chosen: Chosen, *, as_json: bool) -> int:
    """Try them again; the worst exit code. One that cannot be retried keeps no other from it."""
    chosen.check()
    code = done = 0
    with session.client() as client:
        for job_id in chosen.find(client):
            try:
                with checkable(job_id, chosen.queue or client.options.queue):
                    ref = client.retry(job_id, queue=chosen.queue)
            except (JobNotFound, Conflict) as error:
                session.out.error(error.message, error.hint)
                code = max(code, error.exit_code)
                continue
            done += 1
            if as_json:
                session.out.json(shapes.scheduled(ref))
            else:
                session.out.line(ref.id)
        session.out.note(f"{count(done, 'job')} to be tried again in queue {chosen.queue or client.options.queue}.")
    return code


def forget(session: Session, chosen: Chosen, *, yes: bool, as_json: bool) -> int:
    """Drop them for good; the worst exit code."""
    chosen.check()
    codes = {Answer.FORGOTTEN: 0, Answer.UNKNOWN: JobNotFound.exit_code, Answer.REFUSED: JobNotFailed.exit_code}
    code = 0
    with session.client() as client:
        queue = chosen.queue or client.options.queue
        if chosen.every:
            which = f"failed job named {chosen.name}" if chosen.name else "failed job"
            session.out.confirm(f"Drop every {which} in queue {queue}?", yes=yes)
        ids = chosen.find(client)
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
    with session.client() as client:
        name = queue or client.options.queue
        session.out.confirm(f"Drop every failed job in queue {name}?", yes=yes)
        dropped = client.prune_failed(name, older="0s")
    print_dropped(session, name, dropped, as_json=as_json)


def prune(session: Session, queue: str | None, older: str, *, as_json: bool) -> None:
    """Drop what failed long ago."""
    with session.client() as client:
        name = queue or client.options.queue
        dropped = client.prune_failed(name, older=older)
    print_dropped(session, name, dropped, as_json=as_json)
