"""How a reservation ends: deleted, released, or put anew with what has changed.

A body cannot be changed where it lies. A retry, whose envelope counts one attempt more, is therefore put as a new job,
and then the old one is deleted: a crash between the two leaves both, never none.

When the connection breaks on the way, the same acts come again. What had ended by then is not somebody else's, and
neither is what may have: `Line.ended` remembers both until all have been answered.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import greenstalk

from delayq.core.durations import format_duration
from delayq.core.errors import BackendFull, BadEnvelope, InvalidInput, InvalidName, InvalidPayload
from delayq.drivers.base import Claim
from delayq.drivers.beanstalkd.line import Hold, Line, named
from delayq.drivers.beanstalkd.tubes import COUNTS, MAX_DELAY_MS, whole_seconds
from delayq.drivers.broker import Act, Again, Bury, Forget, Item

log = logging.getLogger("delayq.beanstalkd")


def settle(line: Line, acts: Sequence[Act]) -> list[bool]:
    """End reservations; False for one that is somebody else's by now."""
    answers = [_settle(line, act) for act in acts]
    line.ended.clear()
    return answers


def put(line: Line, items: Sequence[Item]) -> None:
    """Put jobs, in order. Raises `InvalidInput` before the first when one cannot be put."""
    fit(line, items)
    for item in items:
        priority = line.tubes.priority_of(item.name)
        body = line.tubes.bodies.write(item.envelope)
        put_one(line, item.queue, body, (priority, whole_seconds(item.delay_ms), line.tubes.ttr_s))


def put_one(line: Line, queue: str, body: bytes, numbers: tuple[int, int, int]) -> None:
    """Put one with its priority, delay and TTR, both in seconds."""
    line.session.use(line.tubes.tube(queue))
    priority, delay_s, ttr_s = numbers
    try:
        line.session.ask(lambda client: client.put(body, priority, delay_s, ttr_s), writes=True)
    except greenstalk.BuriedError as error:  # it has no memory to queue it, and has set it aside
        if error.id is not None:
            buried = error.id
            line.session.ask(lambda client: client.delete(buried))
        raise BackendFull("beanstalkd has no memory left to queue the job; it was not taken.") from error


def fit(line: Line, items: Sequence[Item]) -> None:
    """Raises `InvalidPayload` when one is larger than the server takes, `InvalidInput` when one is due too late."""
    limit = line.session.limit() - COUNTS if items else 0
    for item in items:
        line.tubes.bodies.check(item)
        if (length := len(line.tubes.bodies.write(item.envelope))) > limit:
            raise InvalidPayload(
                f"The job has {length:,} bytes as it travels; this beanstalkd takes {limit:,}.",
                hint="Store the payload elsewhere and send a reference, or start beanstalkd with a larger -z.",
            )
        if not 0 <= item.delay_ms <= MAX_DELAY_MS:
            most, given = format_duration(MAX_DELAY_MS), format_duration(item.delay_ms)
            raise InvalidInput(f"beanstalkd can hold a job for {most} at most, and this one is due in {given}.")


def _settle(line: Line, act: Act) -> bool:
    entry = act.claim.entry
    if line.ended.get(entry):
        return True
    hold = line.held.get(entry) if line.mine(act.claim) else _reserved_again(line, act.claim)
    if hold is None:
        line.held.pop(entry, None)
        return entry in line.ended and line.stats(named(act.claim)[0]) is None
    line.ended[entry] = ours = _again(line, act, hold) if isinstance(act, Again) else _forget(line, act, hold)
    line.held.pop(entry, None)
    return ours


def _forget(line: Line, act: Forget | Bury, hold: Hold) -> bool:
    """What follows first: sent twice is better than not at all."""
    put(line, act.then)
    return _delete(line, act.claim, hold)


def _again(line: Line, act: Again, hold: Hold) -> bool:
    delay_s = whole_seconds(act.delay_ms)
    body = line.tubes.bodies.write(act.envelope) if act.envelope else hold.job.body
    if body == hold.job.body:
        return line.release(hold, delay_s)
    if len(body) > line.session.limit():  # put by somebody else, without room for what is counted
        log.error("job %s: its next attempt would be larger than beanstalkd takes; it is buried", act.claim.id)
        line.bury(hold.job, hold.priority)
        return True
    put_one(line, act.claim.queue, body, (hold.priority, delay_s, hold.ttr_s))
    return _delete(line, act.claim, hold)


def _delete(line: Line, claim: Claim, hold: Hold) -> bool:
    line.ended[claim.entry] = False  # until the answer is there, it may have ended or not
    try:
        line.session.ask(lambda client: client.delete(hold.job))
    except greenstalk.NotFoundError:
        del line.ended[claim.entry]
        return False
    return True


def _reserved_again(line: Line, claim: Claim) -> Hold | None:
    """The reservation of a connection that is gone, taken up here.

    The server has made the job ready again. As long as nobody else has reserved it since, which its count tells, its
    outcome may still be written down: nobody has started it. None when it is somebody else's, or gone.
    """
    job_id, reserves = named(claim)
    before = line.stats(job_id)
    if before is None or before["state"] != "ready" or before["reserves"] != reserves:
        return None
    try:
        job = line.session.ask(lambda client: client.reserve_job(job_id))
    except greenstalk.NotFoundError:
        return None
    hold, after = Hold(job, line.session.serial, before["pri"], before["ttr"]), line.stats(job_id)
    if after is not None and after["reserves"] == reserves + 1 and _is(line, job.body, claim):
        return hold
    line.release(hold, before["delay"] if after is None else after["delay"])
    return None


def _is(line: Line, body: bytes, claim: Claim) -> bool:
    """A server that lost its memory numbers jobs from 1 again, so that the numbers alone prove nothing."""
    try:
        return line.tubes.bodies.read(body, claim.queue).id == claim.id
    except (BadEnvelope, InvalidName):
        return False
