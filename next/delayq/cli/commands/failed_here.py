"""`failed retry --here` runs one failed job in this process, where a debugger can reach it.

An error of the handler ends the process, so `python -m pdb -m delayq failed retry --here …` stops where the error was
raised.
"""

from typing import Final

import msgspec
import typer

from delayq.cli.application import name_of_application, prepare_application
from delayq.cli.declared_jobs import check_declared
from delayq.cli.output import print_json, print_note, print_text
from delayq.cli.selection import Selection, named_queues, only_queue, print_refusal
from delayq.cli.session import CliSession
from delayq.client import DelayQ
from delayq.core import envelope as envelopes
from delayq.core.control_flow import JobSignal
from delayq.core.encryption import payload_of
from delayq.core.errors import Conflict, DelayqError, InvalidInput, JobNotFound
from delayq.core.exit_codes import ExitCode
from delayq.core.failed import no_payload
from delayq.core.json_shapes.answers import OutcomeShape
from delayq.core.outcome import Done, GiveUp
from delayq.core.states import Answer
from delayq.core.unique import to_take_again
from delayq.core.views import JobInfo
from delayq.jobs.application import load_application
from delayq.jobs.local_run import Ran, run
from delayq.redis.calls.inspect import owner_of_key
from delayq.redis.connection.leaf import drive
from delayq.redis.operations.jobs import key_is_taken

_READ_BY_COMMANDS: Final = (DelayqError, EOFError, BrokenPipeError)
"""Errors that the command line would handle as its own, without printing the traceback of the handler."""


def run_here(session: CliSession, chosen: Selection, *, payload: bytes | None, app: str | None, as_json: bool) -> None:
    """Run the job once, with another payload if one is given.

    After a success, the job is deleted. Otherwise the job stays unchanged. Raises the error of the handler, typer.Exit
    if the job asks to run again or to fail, and Conflict if another job owns the unique key of the job, or if another
    program has retried the job in the meantime.
    """
    of_all = session.with_given()
    name = name_of_application(app, of_all)
    load_application(name)
    settings = prepare_application(session, of_all)
    (job_id,) = chosen.ids
    session.tell_waiting()
    with DelayQ(settings=settings) as client, session.audited("failed retry --here", job_id) as deed:
        queues = named_queues(client, chosen.queue)
        try:
            job = client.find_failed(job_id, queues=queues)
        except (JobNotFound, Conflict) as error:
            if as_json:
                print_refusal(error, job_id, only_queue(queues))
            raise
        envelope = _envelope_of(job, payload, name)
        try:
            _check_key(client, job)
        except Conflict as error:
            if as_json:
                print_refusal(error, job.id, job.queue)
            raise
        ran = _run(envelope)
        if isinstance(ran.outcome, Done):
            _drop(client, job)
            deed.outcome = "done"
        else:
            deed.outcome = "failed again" if isinstance(ran.outcome, GiveUp) else "asked to run again"
            print_note(f"The job {job.id!r} {deed.outcome}{_reason(ran)}, and stays among the failed jobs.")
    if not isinstance(ran.outcome, Done):
        raise _end_of(ran)
    if as_json:
        print_json(OutcomeShape(job.id, job.queue, "done"))
    else:
        print_text(f"{job.id}  done in queue {job.queue}")


def _envelope_of(job: JobInfo, payload: bytes | None, app: str) -> bytes:
    """Return the envelope of a job with the payload in plain text, or with another payload."""
    if job.envelope is None or job.is_lost:
        raise no_payload(job, "run")
    if job.envelope.is_followed:
        raise InvalidInput(
            f"The job {job.id!r} belongs to a chain or a batch, which a run in this process would not continue.",
            hint="Leave out --here, so that a worker runs the job.",
            field="here",
        )
    data = payload_of(job.envelope, job.key_ring) if payload is None else msgspec.Raw(payload)
    check_declared(app, job.name, bytes(data))
    if payload is None and not job.is_encrypted:
        return job.raw
    return envelopes.rewrite(job.raw, data=data, encrypted=None)


def _check_key(client: DelayQ, job: JobInfo) -> None:
    """Raise Conflict if another job owns the unique key that a retry would take.

    The run does not take the key, because only a job that is scheduled, ready or reserved can own a key.
    """
    digest = to_take_again(job.envelope.unique) if job.envelope is not None else ""
    if not digest:
        return
    session = client._operations._session
    shard = session.shards.of_job(job.queue, job.id)
    owner_id = drive(session.executor.run(owner_of_key(session.keys, shard, digest)))
    if owner_id in ("", job.id):
        return
    owner = client.get(owner_id, queue=job.queue)
    if owner is not None and owner.state in ("scheduled", "ready", "reserved"):
        raise key_is_taken(owner_id, job.id)


def _run(raw: bytes) -> Ran:
    try:
        return run(raw)
    except SystemExit as end:
        raise RuntimeError(f"The handler ended the program: sys.exit({end.code!r}).") from end


def _reason(ran: Ran) -> str:
    """Return the reason of a Retry, Snooze or Fail in parentheses, because its traceback is not printed, or ''."""
    return f" ({ran.error})" if isinstance(ran.error, JobSignal) else ""


def _end_of(ran: Ran) -> BaseException:
    """Return the exception to raise: the error of the handler, or exit code 1 for a Retry, Snooze or Fail."""
    if not isinstance(ran.outcome, GiveUp) or isinstance(ran.outcome.error, JobSignal):
        return typer.Exit(ExitCode.FAILED)
    error = ran.outcome.error
    if isinstance(error, _READ_BY_COMMANDS):
        wrapped = RuntimeError("The handler raised the error above.")
        wrapped.__cause__ = error
        return wrapped
    return error


def _drop(client: DelayQ, job: JobInfo) -> None:
    """Delete the job that is done.

    Raises Conflict if another program has retried the job, even if the job has failed again.
    """
    try:
        latest = client.get(job.id, queue=job.queue)
        answer: Answer = "unknown"
        if latest is not None:
            is_same = (latest.state, latest.failed_ms) == (job.state, job.failed_ms)
            answer = client.forget(job.id, queue=job.queue)[0] if is_same else "refused"
    except DelayqError:
        print_note(f"The job {job.id!r} is done here. It is unknown whether the failed job was deleted.")
        raise
    if answer == "refused":
        raise Conflict(
            f"The job {job.id!r} is done here, but another program has retried it, so the job was not deleted.",
            hint=f"The job may run again. Check it: `delayq show {job.id} --queue {job.queue}`.",
        )
    if answer == "unknown":
        print_note(f"The job {job.id!r} is done here. Another program has already deleted the failed job.")
