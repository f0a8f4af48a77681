"""How a job is tried: its envelope's wishes over its handler's over the worker's."""

from __future__ import annotations

import logging

import msgspec

from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope
from delayq.core.outcome import Policy, policy_of
from delayq.jobs.handler import Handler

log = logging.getLogger("delayq.worker")


class Policies:
    """Lays the three over each other. `fallback` holds for jobs whose envelope and handler say nothing."""

    def __init__(self, fallback: Policy) -> None:
        self._fallback = fallback
        self._of_handlers: dict[str, Policy] = {}

    def of(self, envelope: Envelope, handler: Handler | None) -> Policy:
        """The policy of one delivery; `handler` None = nobody handles it."""
        policy = self._fallback if handler is None else self._of_handlers.get(handler.name) or self._laid_over(handler)
        try:
            return policy_of(envelope, policy)
        except BadEnvelope:  # a backoff this version cannot read: the rest of the envelope still counts
            log.warning("job %s: its backoff %r cannot be read; another is used", envelope.id, envelope.backoff)
            return policy_of(msgspec.structs.replace(envelope, backoff=None), policy)

    def _laid_over(self, handler: Handler) -> Policy:
        """Worked out once for each name."""
        policy = self._of_handlers[handler.name] = handler.options.over(self._fallback)
        return policy
