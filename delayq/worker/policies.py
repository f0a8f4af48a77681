"""How each job is tried: its envelope's wishes over its handler's over the worker's."""

from __future__ import annotations

import logging
import random
from dataclasses import replace

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.backoff import DEFAULT, Computed
from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope, UnknownJob
from delayq.core.interrupts import JobTimedOut
from delayq.core.outcome import GiveUp, Outcome, Policy, decide, policy_of
from delayq.core.when import format_duration
from delayq.jobs.function import JobFunction
from delayq.jobs.registry import Registry

log = logging.getLogger("delayq.worker")


class Policies:
    """Works the policy of a name out once. `fallback` holds for what neither envelope nor handler say."""

    def __init__(self, registry: Registry, fallback: Policy) -> None:
        self._registry = registry
        self._fallback = fallback
        self._of_name: dict[str, Policy] = {}

    def of(self, envelope: Envelope, handler: JobFunction[..., object] | None) -> Policy:
        """The policy of one delivery; `handler` is None when there is none for its name."""
        base = self._fallback if handler is None else self._of_handler(handler)
        try:
            return policy_of(envelope, base)
        except BadEnvelope:  # a backoff this version cannot read: the rest of the envelope still counts
            log.warning("job %s: its backoff %r cannot be read; the default is used", envelope.id, envelope.backoff)
            return policy_of(msgspec.structs.replace(envelope, backoff=None), base)

    def of_a_killed(self, raw: bytes, error: BaseException, now_ms: int) -> Outcome:
        """What becomes of an attempt whose process had to be killed. Runs no code of the user's.

        So a backoff that is a function of the user's counts as the default one.
        """
        try:
            envelope = envelopes.decode(raw)
        except BadEnvelope as bad:
            return GiveUp(0, 0, bad)
        try:
            policy = self.of(envelope, self._registry.get(envelope.name))
        except UnknownJob:
            policy = self.of(envelope, None)
        if isinstance(policy.backoff, Computed):
            policy = replace(policy, backoff=DEFAULT)
        return decide(envelope, policy, error, now_ms, random.random)

    def _of_handler(self, handler: JobFunction[..., object]) -> Policy:
        policy = self._of_name.get(handler.name)
        if policy is None:
            wishes, base = handler.options, self._fallback
            policy = replace(
                base,
                tries=base.tries if wishes.tries is None else wishes.tries,
                backoff=base.backoff if wishes.backoff is None else wishes.backoff,
                retention_ms=base.retention_ms if wishes.retention_ms is None else wishes.retention_ms,
                timeout_ms=base.timeout_ms if wishes.timeout_ms is None else wishes.timeout_ms,
                on_timeout=base.on_timeout if wishes.on_timeout is None else wishes.on_timeout,
            )
            self._of_name[handler.name] = policy
        return policy


def timed_out(seconds: float) -> JobTimedOut:
    """The error of a job that was over its time after that long."""
    return JobTimedOut(f"It was still running after {format_duration(round(seconds * 1000))}, its time limit.")
