"""One attempt of a job: read the envelope, ask whether it may start, call the handler, decide what follows."""

import logging
import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from delayq.backends.protocol import Acked, Delivery, Failed, Released, Settlement
from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core.envelope import Envelope
from delayq.core.errors import UnknownJob, UnreadableEnvelope
from delayq.core.failure import message_of
from delayq.core.outcome import Done, GiveUp, Outcome, Policy, RunAgain, before_start, decide, policy_of
from delayq.jobs.function import Handler, Registry

logger: Final = logging.getLogger("delayq.worker")


class Attempts:
    """Runs attempts with the jobs of a registry. `now_ms` is the time of the backend."""

    def __init__(
        self, registry: Registry, *, now_ms: Callable[[], int], rand: Callable[[], float] = random.random
    ) -> None:
        self._registry = registry
        self._now_ms = now_ms
        self._rand = rand

    def run(self, delivery: Delivery) -> Settlement:
        """Run a job once and return how it is to be settled. Never raises, whatever the handler does."""
        try:
            envelope = envelopes.decode(delivery.envelope)
            handler, policy = self._find(envelope)
        except UnreadableEnvelope as error:
            failure = failures.encode(failures.describe(error, at_ms=self._now_ms()))
            return Failed(delivery.queue, delivery.id, delivery.entry, b"", failure)
        if delivery.is_stopping:
            return Acked(delivery.queue, delivery.id, delivery.entry, is_followed=envelope.is_followed)
        refusal = before_start(envelope, policy, self._now_ms())
        if refusal is not None:
            return self._settlement(delivery, envelope, refusal)
        result: Any = None
        error_raised: BaseException | None = None
        try:
            if isinstance(handler, UnknownJob):
                raise handler
            result = handler.call(envelope.data)
        except BaseException as error:
            error_raised = error
        outcome = decide(envelope, policy, error_raised, now_ms=self._now_ms(), rand=self._rand)
        return self._settlement(delivery, envelope, outcome, result)

    def _find(self, envelope: Envelope) -> tuple[Handler | UnknownJob, Policy]:
        try:
            handler = self._registry.get(envelope.name)
        except UnknownJob as error:
            return error, policy_of(envelope, Policy())
        return handler, policy_of(envelope, handler.policy)

    def _settlement(self, delivery: Delivery, envelope: Envelope, outcome: Outcome, result: Any = None) -> Settlement:
        """Write an outcome down as what the backend is told."""
        queue, job_id, entry = delivery.queue, delivery.id, delivery.entry
        if isinstance(outcome, Done):
            kept = _write_result(delivery, result) if outcome.retention_ms else b""
            return Acked(queue, job_id, entry, outcome.retention_ms, kept, is_followed=envelope.is_followed)
        counts = {"attempts": outcome.attempts, "exceptions": outcome.exceptions}
        failure = b""
        if outcome.error is not None:
            described = failures.describe(outcome.error, at_ms=self._now_ms(), attempt=outcome.attempts)
            failure = failures.encode(described)
        if isinstance(outcome, GiveUp):
            _log(logging.ERROR, delivery, envelope, outcome.error, f"failed after {outcome.attempts} attempts")
            recounted = envelopes.recount(delivery.envelope, **counts)
            return Failed(queue, job_id, entry, recounted, failure, is_followed=envelope.is_followed)
        return self._release(delivery, envelope, outcome, failure)

    def _release(self, delivery: Delivery, envelope: Envelope, outcome: RunAgain, failure: bytes) -> Released:
        if outcome.error is not None:
            _log(logging.WARNING, delivery, envelope, outcome.error, f"is tried again in {outcome.delay_ms} ms")
        recounted = envelopes.recount(
            delivery.envelope,
            attempts=outcome.attempts,
            exceptions=outcome.exceptions,
            unknown_since_ms=outcome.unknown_since_ms,
        )
        return Released(delivery.queue, delivery.id, delivery.entry, outcome.delay_ms, recounted, failure)


def _log(level: int, delivery: Delivery, envelope: Envelope, error: BaseException, what: str) -> None:
    """Write one line for a retry, and one with the traceback for a failure."""
    logger.log(
        level,
        "job %s (%s, queue %s) %s: %s: %s",
        delivery.id,
        envelope.name,
        delivery.queue,
        what,
        type(error).__name__,
        message_of(error)[:1000],
        exc_info=error if level >= logging.ERROR else None,
    )


def _write_result(delivery: Delivery, result: object) -> bytes:
    """Encode a result as JSON. A result that JSON cannot hold is dropped; the job still counts as done."""
    try:
        return msgspec.json.encode(result)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        logger.warning("the result of job %s is not kept: %s", delivery.id, error)
        return b"null"
