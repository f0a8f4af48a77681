"""The channel `webhook`: a signed HTTP POST of JSON.

    use_channel("webhook", WebhookChannel(secrets=["whsec_..."]))

Only https, only to addresses on the internet, no redirects, no proxies; `allow` opens single networks and plain http
to them. A receiver that answers 2xx has taken it. 410 and other answers that blame the request are final, 429 and 503
are tried again when they say, everything else as the job says.
"""

from __future__ import annotations

import http.client
import socket
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
from delayq.jobs.notifications.signature import keys_of, signed
from delayq.jobs.notifications.webhook_address import Address, Target, is_public, networks, resolve

_AGAIN: Final = frozenset({408, 409, 423, 425, 429})
"""Answers that blame the request and may change all the same."""
_LONGEST_WAIT_S: Final = 3600
_TOLD: Final = 200


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """What `to_webhook` may answer with, if the JSON alone is not enough."""

    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


class WebhookChannel:
    """Posts to the addresses of recipients. `timeout` is that of each step; `secrets` the keys it signs with, all of
    them. `allow` names networks that are not on the internet, `ca_file` who else may vouch for a host.
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
            address = resolve(target, self._allowed)
            if is_public(address) and not target.secure:
                raise InvalidInput(f"The webhook host {target.host} is on the internet.", hint="Use https.")
        except (InvalidInput, TypeError, ValueError, msgspec.MsgspecError) as error:
            raise Fail(error) from error
        headers = {
            "content-type": "application/json",
            "user-agent": "delayq",
            **{name.lower(): value for name, value in message.headers.items()},
            **signed(self._keys, f"{letter.id}.{letter.channel}", int(time.time()), body),
        }
        self._judge(target, *self._post(target, address, body, headers))

    def _post(self, target: Target, address: Address, body: bytes, headers: Mapping[str, str]) -> tuple[int, str, str]:
        """Status, the head `Retry-After`, and how the answer begins."""
        connection = _Pinned(target, address, self._timeout, self._context() if target.secure else None)
        try:
            connection.request("POST", target.path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("retry-after", ""), answer.read(_TOLD).decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise NotDelivered(f"The webhook to {target.host} did not arrive: {error!r}.") from error
        except ValueError as error:  # a header that cannot be sent; a bad certificate is an OSError as well
            raise Fail(error) from error
        finally:
            connection.close()

    def _judge(self, target: Target, status: int, wait: str, told: str) -> None:
        if 200 <= status < 300:
            return
        error = NotDelivered(f"The webhook to {target.host} was answered with {status}: {told!r}.")
        if status in (429, 503) and wait.isascii() and wait.isdecimal():
            raise Retry(timedelta(seconds=min(int(wait), _LONGEST_WAIT_S)), reason=str(error)) from error
        if 300 <= status < 500 and status not in _AGAIN:
            raise Fail(error)
        raise error

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._ca_file)


class _Pinned(http.client.HTTPConnection):
    """A connection to the address that was looked at; the certificate must still be the host's."""

    def __init__(self, target: Target, address: Address, timeout: float, context: ssl.SSLContext | None) -> None:
        super().__init__(target.host, target.port, timeout=timeout)
        self.default_port = 443 if target.secure else 80  # leaves the port out of the head `Host`, where it is usual
        self._address = address
        self._context = context
        self._patience = timeout

    def connect(self) -> None:
        """Connect, and greet if it is https."""
        sock = socket.create_connection((str(self._address), self.port), self._patience)
        try:
            self.sock = self._context.wrap_socket(sock, server_hostname=self.host) if self._context else sock
        except BaseException:
            sock.close()
            raise
