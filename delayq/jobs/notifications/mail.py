"""The channel `mail`: SMTP, with what Python brings.

use_channel("mail", MailChannel(Smtp("smtp.example.org", user="shop", password=secret), sender="shop@example.org"))
"""

from __future__ import annotations

import logging
import smtplib
import ssl
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import getaddresses, parseaddr
from typing import Final, Literal

from delayq.core.errors import ConfigError, InvalidInput, NotDelivered
from delayq.core.signals import Fail
from delayq.core.when import duration_ms
from delayq.jobs.notifications.channel import Letter
from delayq.jobs.notifications.mail_message import MailMessage, written

log = logging.getLogger("delayq.notifications")

Tls = Literal["starttls", "tls", "none"]
_FINAL: Final = 500
"""What a mail server answers from here on will not change by itself."""


@dataclass(frozen=True, slots=True)
class Smtp:
    """A mail server. `tls`: by STARTTLS, from the first byte, or not at all; then no password is sent.

    Certificates are checked, against `ca_file` if it is given. `timeout` is that of each step.
    """

    host: str
    port: int = 587
    tls: Tls = "starttls"
    user: str = ""
    password: str = field(default="", repr=False)
    timeout: str | timedelta = "10s"
    ca_file: str | None = None

    def __post_init__(self) -> None:
        duration_ms(self.timeout)
        if self.tls not in ("starttls", "tls", "none"):
            raise ConfigError(f"The mail server {self.host} has tls={self.tls!r}.", hint="Use starttls, tls or none.")
        if self.tls == "none" and self.password:
            raise ConfigError(
                f"The password for the mail server {self.host} would travel unencrypted.",
                hint='Use tls="starttls" or "tls".',
            )


class MailChannel:
    """Sends the `MailMessage`s of `to_mail`. A connection for each mail; it belongs to no thread.

    The Message-ID is made from the notification's id and is the same in every attempt: a mail that arrives twice,
    because an answer was lost, can be told from another one.
    """

    def __init__(self, server: Smtp, *, sender: str) -> None:
        self._server = server
        self._sender = sender
        if "@" not in parseaddr(sender)[1]:
            raise ConfigError(f"{sender!r} cannot be the sender of mails.", hint="Give an address: shop@example.org.")

    def deliver(self, letter: Letter) -> None:
        """Send one mail. `Fail`s when the server refuses the address or the mail for good; raises `NotDelivered`."""
        message = letter.message
        if not isinstance(message, MailMessage):
            raise Fail(
                ConfigError(f"to_mail of {letter.name!r} answered with {type(message).__name__}, no MailMessage.")
            )
        sender = parseaddr(message.sender or self._sender)[1]
        message_id = f"<{letter.id}.{letter.channel}@{sender.rpartition('@')[2]}>"
        try:
            mail = written(message, to=letter.address, sender=self._sender, message_id=message_id)
        except InvalidInput as error:
            raise Fail(error) from error
        everybody = [address for _, address in getaddresses([letter.address, *message.cc, *message.bcc])]
        try:
            with self._connected() as server:
                refused = server.send_message(mail, sender, everybody)
        except (OSError, smtplib.SMTPException) as error:
            self._explain(letter, error)
        else:
            for address, (code, _) in refused.items():
                log.warning("notification %s: %s was refused (%d), others were not", letter.id, address, code)

    def _connected(self) -> smtplib.SMTP:
        server, timeout = self._server, duration_ms(self._server.timeout) / 1000
        if server.tls == "tls":
            client: smtplib.SMTP = smtplib.SMTP_SSL(server.host, server.port, timeout=timeout, context=self._context())
        else:
            client = smtplib.SMTP(server.host, server.port, timeout=timeout)
        try:
            if server.tls == "starttls":
                client.starttls(context=self._context())
            if server.user:
                client.login(server.user, server.password)
        except BaseException:
            client.close()
            raise
        return client

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._server.ca_file)

    def _explain(self, letter: Letter, error: Exception) -> None:
        """Raise it as ours. What the server says of *this* mail for good is final; of the login or itself, never."""
        where = f"{self._server.host}:{self._server.port}"
        wrapped = NotDelivered(f"The mail server {where} did not take {letter.name!r} for {letter.address}: {error}.")
        wrapped.__cause__ = error
        match error:
            case smtplib.SMTPRecipientsRefused(recipients=refused):
                final = all(code >= _FINAL for code, _ in refused.values())
            case smtplib.SMTPSenderRefused(smtp_code=code) | smtplib.SMTPDataError(smtp_code=code):
                final = code >= _FINAL
            case _:
                final = False
        raise Fail(wrapped) if final else wrapped
