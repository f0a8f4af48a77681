"""How a job is tried: its envelope's wishes over its handler's over the worker's."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import msgspec

from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope
from delayq.core.outcome import Policy, policy_of
from delayq.jobs.function import JobFunction

log = logging.getLogger("delayq.worker")


class Policies:
    """Lays the three over each other. `fallback` holds for jobs whose envelope and handler say nothing."""

    def __init__(self, fallback: Policy) -> None:
        self._fallback = fallback
        self._of_handlers: dict[str, Policy] = {}

    def of(self, envelope: Envelope, handler: JobFunction[..., Any] | None) -> Policy:
        """The policy of one delivery; `handler` None = nobody handles it."""
        policy = self._fallback if handler is None else self._of_handlers.get(handler.name) or self._laid_over(handler)
        try:
            return policy_of(envelope, policy)
        except BadEnvelope:  # a backoff this version cannot read: the rest of the envelope still counts
            log.warning("job %s: its backoff %r cannot be read; another is used", envelope.id, envelope.backoff)
            return policy_of(msgspec.structs.replace(envelope, backoff=None), policy)

    def _laid_over(self, handler: JobFunction[..., Any]) -> Policy:
        """Worked out once for each name."""
        wishes, base = handler.options, self._fallback
        policy = self._of_handlers[handler.name] = replace(
            base,
            tries=base.tries if wishes.tries is None else wishes.tries,
            backoff=base.backoff if wishes.backoff is None else wishes.backoff,
            retention_ms=base.retention_ms if wishes.retention_ms is None else wishes.retention_ms,
            timeout_ms=base.timeout_ms if wishes.timeout_ms is None else wishes.timeout_ms,
            on_timeout=base.on_timeout if wishes.on_timeout is None else wishes.on_timeout,
        )
        return policy
