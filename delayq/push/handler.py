"""The handler of a pushed queue: one POST for each job, whatever its name."""

from __future__ import annotations

import http.client
import logging
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.errors import ConfigError, DelayqError, InvalidInput, NotDelivered
from delayq.core.limit_names import limit_of_job
from delayq.core.rate_limit import RateLimit
from delayq.core.signals import Fail
from delayq.jobs.context import JobContext
from delayq.jobs.middleware.concurrency import Concurrency
from delayq.jobs.middleware.forms import Middleware
from delayq.jobs.middleware.rate_limited import RateLimited
from delayq.jobs.middleware.throttles_exceptions import ThrottlesExceptions
from delayq.jobs.notifications.signature import keys_of
from delayq.jobs.notifications.webhook_address import Address, Target, networks, resolve
from delayq.jobs.notifications.webhook_post import Reply, post
from delayq.jobs.opened import Opened
from delayq.jobs.options import HandlerOptions
from delayq.push.request import body_of, heads_of
from delayq.push.verdict import verdict
from delayq.settings.pushes import PushSettings

log = logging.getLogger("delayq.push")

GRACE_MS: Final = 30_000
"""On top of the request's own time, for what has no timeout of its own: looking up the host's name."""


class PushHandler:
    """A `Handler`. Limits and circuit are the host's: all queues that push there share them.

    Raises `ConfigError` and `InvalidInput` for settings that cannot be used.
    """

    is_async = False
    hears_failures = False
    brings_middleware = False
    payload = None

    def __init__(self, queue: str, settings: PushSettings) -> None:
        self.name = f"push {queue}"  # with a blank, which no job's name has
        self.place = f"push {queue} to {settings.url}"
        self._settings = settings
        self._allowed = networks(settings.allow)
        self._target = Target(settings.url, http=bool(self._allowed))
        self._keys = _keys(queue, settings)
        self._context = _context(queue, settings) if self._target.secure else None
        self.options = HandlerOptions(
            queue=queue,
            tries=settings.tries,
            backoff=settings.backoff,
            timeout_ms=settings.timeout_ms + GRACE_MS,
            middleware=_limits(self._target, settings),
        )

    def __repr__(self) -> str:
        return f"<{self.name} to {self._settings.place}>"

    def open(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Opened:
        """Nothing is read of the payload: it goes out as it came in."""
        return Opened({}, lambda: self.run(data, context))

    def run(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> dict[str, int]:
        """Post it; the status it was taken with. Raises as `verdict` says, and `NotDelivered` without an answer."""
        job = context()
        reply = self._post(job, data)
        log.debug("job %s was pushed to %s: %d", job.id, self._target.host, reply.status)
        if (outcome := verdict(self._target.host, reply, time.time())) is not None:
            raise outcome
        return {"status": reply.status}

    def failed(self, data: msgspec.Raw, error: BaseException) -> Any:
        """Nobody is told: what failed lies in the queue's failed jobs."""

    def _post(self, job: JobContext, data: msgspec.Raw) -> Reply:
        target, timeout_s = self._target, self._settings.timeout_ms / 1000
        envelope = envelopes.decode(job.raw)
        body = body_of(job.raw, envelope, data)
        if len(body) > self._settings.max_body:
            raise Fail(InvalidInput(f"The push has {len(body):,} bytes; max_body is {self._settings.max_body:,}."))
        addresses = self._addresses()
        heads = heads_of(job, envelope, body, self._keys, time.time())
        try:
            return post(target, addresses, body, heads, timeout_s=timeout_s, context=self._context)
        except (OSError, http.client.HTTPException) as error:
            raise NotDelivered(f"The push to {target.host} did not arrive: {error!r}.") from error

    def _addresses(self) -> tuple[Address, ...]:
        """Looked up and looked at before every attempt. A host inside fails: the next look may be a rebinding."""
        try:
            return resolve(self._target, self._allowed)
        except InvalidInput as refused:
            raise Fail(refused) from refused


def _limits(target: Target, settings: PushSettings) -> tuple[Middleware, ...]:
    """What stands before the request: is the host well, is there a place, is it time? In this order."""
    host = f"{target.host}:{target.port}"
    name = limit_of_job("push", host)
    limits: list[Middleware] = []
    if settings.failures:
        rest = f"{settings.rest_ms}ms"
        limits.append(ThrottlesExceptions(settings.failures, rest, key=name, shared=True))
    if settings.concurrency:
        limits.append(Concurrency(name, settings.concurrency))
    if settings.rate is not None:
        rate = settings.rate
        limits.append(RateLimited(name, RateLimit.bucket(rate.count, f"{rate.seconds}s", burst=_burst(rate.spacing_s))))
    return tuple(limits)


def _burst(spacing_s: float) -> int:
    """At once after a rest: a second's worth, and one at least."""
    return max(1, int(1 / spacing_s))


def _keys(queue: str, settings: PushSettings) -> tuple[bytes, ...]:
    secrets = list(settings.secrets)
    if settings.secret_file is not None:
        try:
            lines = settings.secret_file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise ConfigError(
                f"secret_file {settings.secret_file} of the push of {queue} cannot be read: {why}.",
                hint="It holds one whsec_… a line.",
            ) from None
        secrets += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if bool(secrets) is settings.unsigned:
        said = "a secret, and unsigned = true" if secrets else "no secret"
        raise ConfigError(
            f"The push of {queue} has {said}.",
            hint="Give it a secret_file with one whsec_… a line, or say unsigned (and let no stranger reach the host).",
        )
    return keys_of(secrets)


def _context(queue: str, settings: PushSettings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"ca_file {settings.ca_file} of the push of {queue} cannot be used: {why}.") from None


def checked(queue: str, settings: PushSettings) -> PushHandler:
    """The handler of a pushed queue; what is wrong with its settings is told with the queue's name."""
    try:
        return PushHandler(queue, settings)
    except ConfigError:
        raise
    except DelayqError as error:
        raise ConfigError(f"The push of {queue} cannot be used: {error.message}", hint=error.hint) from None
