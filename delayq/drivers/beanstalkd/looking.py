"""What a beanstalkd holds, and removing it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import greenstalk

from delayq.drivers.beanstalkd.line import Line
from delayq.drivers.beanstalkd.session import Client, Job
from delayq.drivers.broker import Depth


def queues(line: Line) -> list[str]:
    """The queues whose tubes hold something that waits or runs."""
    tubes = line.session.ask(lambda client: client.tubes())
    named = {line.tubes.queue(tube): tube for tube in tubes}
    return sorted(queue for queue, tube in named.items() if queue is not None and any(_counts(line, tube)))


def depth(line: Line, queue: str) -> Depth:
    """How long a queue is; a tube that is not there is an empty one."""
    ready, delayed, reserved = _counts(line, line.tubes.tube(queue))
    return Depth(ready, delayed, reserved)


def clear(line: Line, queue: str) -> int:
    """Delete everything that waits; how many. What comes meanwhile may stay."""
    line.session.use(line.tubes.tube(queue))
    ready, delayed, _ = _counts(line, line.tubes.tube(queue))
    gone = _clear(line, ready, lambda client: client.peek_ready())
    return gone + _clear(line, delayed, lambda client: client.peek_delayed())


def buried(line: Line, queue: str) -> int:
    """How much is buried in a queue."""
    try:
        stats = line.session.ask(lambda client: client.stats_tube(line.tubes.tube(queue)))
    except greenstalk.NotFoundError:
        return 0
    return int(stats["current-jobs-buried"])


def all_buried(line: Line) -> dict[str, int]:
    """How much is buried, of each queue where anything is."""
    tubes = line.session.ask(lambda client: client.tubes())
    counted = {queue: buried(line, queue) for tube in tubes if (queue := line.tubes.queue(tube)) is not None}
    return {queue: found for queue, found in sorted(counted.items()) if found}


def kick(line: Line, queue: str, count: int) -> int:
    """Make buried jobs ready, one by one: the server's own kick takes delayed ones where none is buried."""
    line.session.use(line.tubes.tube(queue))
    kicked = 0
    for _ in range(count):
        try:
            job = line.session.ask(lambda client: client.peek_buried())
            line.session.ask(partial(_kick_job, job.id))
        except greenstalk.NotFoundError:  # none is left, or somebody else was faster
            break
        kicked += 1
    return kicked


def _kick_job(job_id: int, client: Client) -> None:
    client.kick_job(job_id)


def delete(line: Line, job_id: int) -> bool:
    """Delete a job that nobody has reserved; False when it is gone, or reserved."""
    try:
        line.session.ask(lambda client: client.delete(job_id))
    except greenstalk.NotFoundError:
        return False
    return True


def _clear(line: Line, most: int, peek: Callable[[Client], Job]) -> int:
    gone = 0
    for _ in range(most):
        try:
            job = line.session.ask(peek)
        except greenstalk.NotFoundError:
            break
        gone += delete(line, job.id)
    return gone


def _counts(line: Line, tube: str) -> tuple[int, int, int]:
    try:
        stats = line.session.ask(lambda client: client.stats_tube(tube))
    except greenstalk.NotFoundError:
        return 0, 0, 0
    return stats["current-jobs-ready"], stats["current-jobs-delayed"], stats["current-jobs-reserved"]
