"""The channel `webhook`: a signed HTTP POST of JSON.

    use_channel("webhook", WebhookChannel(secrets=["whsec_..."]))

Only https, only to addresses on the internet, no redirects, no proxies; `allow` opens single networks and plain http
to them. A receiver that answers 2xx has taken it. 410 and other answers that blame the request are final, 429 and 503
are tried again when they say, everything else as the job says.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import msgspec

from delayq.core.errors import InvalidInput, NotDelivered
from delayq.core.signals import Fail, Retry
from delayq.core.when import duration_ms
from delayq.jobs.notifications.channel import Letter
from delayq.jobs.notifications.retry_after import retry_after_s
from delayq.jobs.notifications.signature import keys_of, signed
from delayq.jobs.notifications.webhook_address import Address, Target, networks, resolve
from delayq.jobs.notifications.webhook_post import Reply, post

_AGAIN: Final = frozenset({408, 409, 423, 425, 429})
"""Answers that blame the request and may change all the same."""
_LONGEST_WAIT_S: Final = 3600


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """What `to_webhook` may answer with, if the JSON alone is not enough."""

    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


class WebhookChannel:
    """Posts to the addresses of recipients. `timeout` is for a whole post, from the connection to the answer; `secrets`
    the keys it signs with, all of them. `allow` names networks that are not on the internet, `ca_file` who else may
    vouch for a host.
    """

    def __init__(
        self,
        *,
        secrets: Sequence[str],
        timeout: str | timedelta = "10s",
        allow: Sequence[str] = (),
        ca_file: str | None = None,
    ) -> None:
        self._keys = keys_of([secrets] if isinstance(secrets, str) else secrets)
        self._timeout = duration_ms(timeout) / 1000
        self._allowed = networks(allow)
        self._ca_file = ca_file

    def deliver(self, letter: Letter) -> None:
        """Post one message. `Fail`s for what will never work; raises `NotDelivered`, or `Retry` when told how long."""
        message = letter.message if isinstance(letter.message, WebhookMessage) else WebhookMessage(letter.message)
        try:
            body = msgspec.json.encode(message.body)
            target = Target(letter.address, http=bool(self._allowed))
            addresses = resolve(target, self._allowed)
        except (InvalidInput, TypeError, ValueError, msgspec.MsgspecError) as error:
            raise Fail(error) from error
        headers = {
            "content-type": "application/json",
            "user-agent": "delayq",
            **{name.lower(): value for name, value in message.headers.items()},
            **signed(self._keys, f"{letter.id}.{letter.channel}", int(time.time()), body),
        }
        self._judge(target, self._post(target, addresses, body, headers))

    def _post(self, target: Target, addresses: Sequence[Address], body: bytes, headers: Mapping[str, str]) -> Reply:
        context = self._context() if target.secure else None
        try:
            return post(target, addresses, body, headers, timeout_s=self._timeout, context=context)
        except (OSError, http.client.HTTPException) as error:
            raise NotDelivered(f"The webhook to {target.host} did not arrive: {error!r}.") from error
        except ValueError as error:  # a header that cannot be sent; a bad certificate is an OSError as well
            raise Fail(error) from error

    def _judge(self, target: Target, reply: Reply) -> None:
        status = reply.status
        if 200 <= status < 300:
            return
        error = NotDelivered(f"The webhook to {target.host} was answered with {status}: {reply.told!r}.")
        wait_s = retry_after_s(reply.retry_after, time.time()) if status in (429, 503) else None
        if wait_s is not None:
            raise Retry(timedelta(seconds=min(wait_s, _LONGEST_WAIT_S)), reason=str(error)) from error
        if 300 <= status < 500 and status not in _AGAIN:
            raise Fail(error)
        raise error

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._ca_file)
