"""What becomes of an attempt whose process could not end it itself. No code of the user's runs here."""

from __future__ import annotations

import random
from dataclasses import replace

from delayq.core import envelope as envelopes
from delayq.core.backoff import DEFAULT, Computed
from delayq.core.errors import BadEnvelope, UnknownJob
from delayq.core.interrupts import JobTimedOut
from delayq.core.outcome import GiveUp, Outcome, decide
from delayq.core.when import format_duration
from delayq.jobs.registry import Registry
from delayq.worker.policies import Policies


def of_a_killed(registry: Registry, policies: Policies, raw: bytes, error: BaseException, now_ms: int) -> Outcome:
    """What `error` makes of the job with the envelope `raw`.

    A backoff that is a function of the user's counts as the default one.
    """
    try:
        envelope = envelopes.decode(raw)
    except BadEnvelope as bad:
        return GiveUp(0, 0, bad)
    try:
        policy = policies.of(envelope, registry.find(envelope.name, envelope.queue))
    except UnknownJob:
        policy = policies.of(envelope, None)
    if isinstance(policy.backoff, Computed):
        policy = replace(policy, backoff=DEFAULT)
    return decide(envelope, policy, error, now_ms, random.random)


def timed_out(ran_s: float, limit_s: float) -> JobTimedOut:
    """The error of a job that was allowed `limit_s` seconds and still ran after `ran_s`."""
    ran, limit = (format_duration(round(seconds * 1000)) for seconds in (ran_s, limit_s))
    return JobTimedOut(f"It was still running after {ran}; its timeout or deadline allowed it {limit}.")
