"""One attempt of a job: read the envelope, call the handler, decide what follows."""

import logging
from typing import Final

import msgspec

from delayq.backends.protocol import Acked, Delivery, Failed, Released, Settlement
from delayq.core import envelope as envelopes
from delayq.core.envelope import UnreadableEnvelope
from delayq.core.outcome import GiveUp, decide, describe
from delayq.jobs.function import Handler, Registry, UnknownJob

logger: Final = logging.getLogger("delayq.worker")

UNKNOWN_JOB_WAIT_MS: Final = 30_000


def attempt(delivery: Delivery, registry: Registry) -> Settlement:
    """Run a job once and return how it is to be settled. Never raises, whatever the handler does."""
    try:
        envelope = envelopes.decode(delivery.envelope)
    except UnreadableEnvelope as error:
        return Failed(delivery.queue, delivery.id, delivery.entry, delivery.envelope, describe(error))
    try:
        handler = registry.get(envelope.name)
    except UnknownJob as error:
        # During a deploy old workers meet new names. The job waits, at no cost, for a worker that knows it.
        failure = describe(error)
        return Released(delivery.queue, delivery.id, delivery.entry, UNKNOWN_JOB_WAIT_MS, delivery.envelope, failure)
    try:
        result = handler.call(envelope.data)
    except BaseException as error:
        return _after_error(delivery, envelope.attempts + 1, envelope.tries or handler.tries, handler, error)
    if not envelope.retention_ms:
        return Acked(delivery.queue, delivery.id, delivery.entry)
    written = _write_result(delivery, result)
    return Acked(delivery.queue, delivery.id, delivery.entry, envelope.retention_ms, written)


def _after_error(
    delivery: Delivery, attempts: int, tries: int, handler: Handler, error: BaseException
) -> Released | Failed:
    """Settle an attempt that raised: again after the backoff, or failed when the tries are used up."""
    outcome = decide(error, attempts=attempts, tries=tries, backoff=handler.backoff)
    rewritten = envelopes.with_attempts(delivery.envelope, attempts)
    if isinstance(outcome, GiveUp):
        logger.error("job %s of %s failed after %d attempts", delivery.id, delivery.queue, attempts, exc_info=error)
        return Failed(delivery.queue, delivery.id, delivery.entry, rewritten, outcome.failure)
    logger.warning("job %s of %s raised %r; tried again in %d ms", delivery.id, delivery.queue, error, outcome.delay_ms)
    return Released(delivery.queue, delivery.id, delivery.entry, outcome.delay_ms, rewritten, outcome.failure)


def _write_result(delivery: Delivery, result: object) -> bytes:
    """Encode a result as JSON. A result that JSON cannot hold is dropped; the job still counts as done."""
    try:
        return msgspec.json.encode(result)
    except (TypeError, ValueError) as error:
        logger.warning("the result of job %s is not kept: %s", delivery.id, error)
        return b"null"
