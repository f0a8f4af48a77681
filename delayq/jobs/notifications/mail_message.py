"""A mail, as a notification writes it, and as it travels to a mail server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email import policy
from email.message import EmailMessage
from email.utils import formatdate, getaddresses, parseaddr

from delayq.core.errors import InvalidInput
from delayq.core.shown import shown


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file. `kind` is its media type."""

    name: str
    content: bytes
    kind: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class MailMessage:
    """One mail. `text` or `html`, or both: then as alternatives. `sender` '' = the channel's own."""

    subject: str
    text: str = ""
    html: str = ""
    sender: str = ""
    reply_to: str = ""
    cc: Sequence[str] = ()
    bcc: Sequence[str] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    attachments: Sequence[Attachment] = ()


def written(message: MailMessage, *, to: str, sender: str, message_id: str) -> EmailMessage:
    """The mail with its headers; `bcc` is not among them. Raises `InvalidInput` for what cannot stand in a header."""
    if len(getaddresses([to])) != 1 or "@" not in parseaddr(to)[1]:
        raise InvalidInput(f"{shown(to)} is not the address of one recipient of mails.")
    mail = EmailMessage(policy.SMTP)
    heads = {
        "From": message.sender or sender,
        "To": to,
        "Cc": ", ".join(message.cc),
        "Reply-To": message.reply_to,
        "Subject": message.subject,
        "Date": formatdate(localtime=False),
        "Message-ID": message_id,
        **message.headers,
    }
    for name, value in heads.items():
        if value:
            try:
                mail[name] = value
            except ValueError as error:
                raise InvalidInput(f"The mail {message.subject!r} cannot have {name}: {value!r} ({error}).") from error
    mail.set_content(message.text)
    if message.html:
        mail.add_alternative(message.html, subtype="html") if message.text else mail.set_content(
            message.html, subtype="html"
        )
    for one in message.attachments:
        kind, _, subkind = one.kind.partition("/")
        mail.add_attachment(one.content, maintype=kind, subtype=subkind, filename=one.name)
    return mail
