"""A mail server on loopback that keeps what it gets."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope


# No slots: the server reads every attribute of what handles its mails, and up to Python 3.11.2 a slotted dataclass has
# one that cannot be read (`__weakref__`, left over from the class without slots).
@dataclass
class Mailbox:
    """`refuse` are answers by recipient; `data` is the answer to a whole mail."""

    port: int = 0
    envelopes: list[Envelope] = field(default_factory=list)
    refuse: dict[str, str] = field(default_factory=dict)
    data: str = "250 taken"
    logins: list[tuple[bytes, bytes]] = field(default_factory=list)

    async def handle_RCPT(self, server: Any, session: Any, envelope: Envelope, address: str, options: Any) -> str:  # noqa: N802
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:  # noqa: N802
        if self.data.startswith("250"):
            self.envelopes.append(envelope)
        return self.data

    def login(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        """Takes one password only."""
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"open sesame", handled=False)

    def mails(self) -> list[EmailMessage]:
        """What was taken, parsed."""
        return [_parsed(envelope.content) for envelope in self.envelopes]


@contextmanager
def mailbox(certificate: Path | None = None, *, tls: str = "none") -> Iterator[Mailbox]:
    """A server on a port of its own; `tls` as in `Smtp`, with a password unless it is none."""
    box = Mailbox()
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    options: dict[str, Any] = {}
    if tls != "none":
        options = {"authenticator": box.login, "auth_required": True, "auth_require_tls": tls == "starttls"}
    if tls == "starttls":
        options |= {"tls_context": context, "require_starttls": True}

    def server(loop: asyncio.AbstractEventLoop) -> asyncio.Protocol:
        protocol: asyncio.Protocol = SMTP(box, hostname="box", loop=loop, **options)
        return protocol

    with _serving(server, context if tls == "tls" else None) as box.port:
        yield box


@contextmanager
def _serving(
    factory: Callable[[asyncio.AbstractEventLoop], asyncio.Protocol], context: ssl.SSLContext | None
) -> Iterator[int]:
    """A server in a thread; its port. Raises what keeps the factory from making a protocol."""
    loop = asyncio.new_event_loop()
    made: list[Any] = []

    def make() -> asyncio.Protocol:
        made.append(factory(loop))
        protocol: asyncio.Protocol = made[-1]
        return protocol

    try:
        make()  # asyncio would swallow what fails in here, once a connection is there, and drop the connection
    except BaseException:
        loop.close()
        raise
    server = loop.run_until_complete(loop.create_server(make, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, name="mail-server", daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for protocol in made:
            if protocol.transport is not None:
                protocol.transport.abort()
        loop.run_until_complete(_ended())
        loop.close()


async def _ended() -> None:
    """What the server left is over."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)


def _parsed(content: bytes | str | None) -> EmailMessage:
    assert isinstance(content, bytes)
    mail = message_from_bytes(content, policy=policy.default)
    assert isinstance(mail, EmailMessage)
    return mail
