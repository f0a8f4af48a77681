"""The channel `mail`, against a mail server that really listens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from delayq import Attachment, Letter, MailChannel, MailMessage, Notification, Recipient, Smtp, notify, use_channel
from delayq.core.errors import ConfigError, InvalidDuration, InvalidInput, NotDelivered
from delayq.core.signals import Fail
from delayq.core.states import State
from tests.support.certificates import certificate
from tests.support.posting import mailbox
from tests.support.station import Station

SHOP = "The Shop <shop@example.org>"


def letter(message: Any, address: str = "ann@example.org") -> Letter:
    return Letter("id-1", "paid", "mail", address, "Ann", message)


def channel(port: int, **options: Any) -> MailChannel:
    given = {"tls": "none", "timeout": "5s", **options}
    return MailChannel(Smtp("localhost", port, **given), sender=SHOP)


@pytest.mark.usefixtures("manager")
def test_a_notification_arrives_as_a_mail(station: Station) -> None:
    class Paid(Notification):
        invoice: int

        def via(self, to: Recipient) -> Sequence[str]:
            return ["mail"]

        def to_mail(self, to: Recipient) -> MailMessage:
            return MailMessage(f"Invoice {self.invoice}", f"Thank you, {to.name}: 42 €.")

    with mailbox() as box:
        use_channel("mail", channel(box.port))
        [ref] = notify(Recipient({"mail": "Ann <ann@example.org>"}, "Ann"), Paid(invoice=7), id="paid-7")
        station.drain()
        [mail], [envelope] = box.mails(), box.envelopes
    assert station.ends(ref.id) == ["done"]
    assert (envelope.mail_from, envelope.rcpt_tos) == ("shop@example.org", ["ann@example.org"])
    assert (mail["From"], mail["To"], mail["Subject"]) == (SHOP, "Ann <ann@example.org>", "Invoice 7")
    assert mail["Message-ID"] == "<paid-7.mail@example.org>"
    assert mail.get_content().strip() == "Thank you, Ann: 42 €."


def test_everything_a_mail_may_have() -> None:
    message = MailMessage(
        "Größe",
        text="plain",
        html="<b>rich</b>",
        sender="other@example.net",
        reply_to="help@example.org",
        cc=["bob@example.org"],
        bcc=["eve@example.org"],
        headers={"X-Kind": "receipt"},
        attachments=[Attachment("bill.pdf", b"%PDF", "application/pdf")],
    )
    with mailbox() as box:
        channel(box.port).deliver(letter(message))
        [mail], [envelope] = box.mails(), box.envelopes
    assert envelope.mail_from == "other@example.net"
    assert envelope.rcpt_tos == ["ann@example.org", "bob@example.org", "eve@example.org"]
    heads = [mail[name] for name in ("Subject", "From", "Cc", "Bcc", "Reply-To", "X-Kind")]
    assert heads == ["Größe", "other@example.net", "bob@example.org", None, "help@example.org", "receipt"]
    parts = {part.get_content_type(): part for part in mail.walk() if not part.is_multipart()}
    assert parts["text/plain"].get_content().strip() == "plain"
    assert parts["text/html"].get_content().strip() == "<b>rich</b>"
    assert (parts["application/pdf"].get_filename(), parts["application/pdf"].get_content()) == ("bill.pdf", b"%PDF")


def test_html_alone() -> None:
    with mailbox() as box:
        channel(box.port).deliver(letter(MailMessage("x", html="<b>rich</b>")))
        [mail] = box.mails()
    assert mail.get_content_type() == "text/html"


# The server under test does not see that the connection is encrypted from the first byte.
@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_encrypted_and_with_a_password(tmp_path: Path, tls: str) -> None:
    pem = certificate(tmp_path)
    options: dict[str, Any] = {"tls": tls, "ca_file": str(pem), "user": "shop", "password": "open sesame"}
    with mailbox(pem, tls=tls) as box:
        channel(box.port, **options).deliver(letter(MailMessage("x", "y")))
        assert (len(box.mails()), box.logins) == (1, [(b"shop", b"open sesame")])
        with pytest.raises(NotDelivered, match="535"):
            channel(box.port, **{**options, "password": "wrong"}).deliver(letter(MailMessage("x", "y")))
        with pytest.raises(NotDelivered, match="CERTIFICATE_VERIFY_FAILED"):
            channel(box.port, **{**options, "ca_file": None}).deliver(letter(MailMessage("x", "y")))
        assert len(box.mails()) == 1
    assert "open sesame" not in repr(Smtp("localhost", password="open sesame"))


@pytest.mark.parametrize(
    ("answer", "final"), [("550 nobody of that name", True), ("450 try again later", False), ("552 too full", True)]
)
def test_a_refused_address_is_final_when_the_server_says_so(answer: str, final: bool) -> None:
    with mailbox() as box:
        box.refuse["ann@example.org"] = answer
        with pytest.raises(Fail if final else NotDelivered, match=answer[4:]) as caught:
            channel(box.port).deliver(letter(MailMessage("x", "y")))
    error = caught.value.cause if isinstance(caught.value, Fail) else caught.value
    assert isinstance(error, NotDelivered)


@pytest.mark.parametrize(("answer", "final"), [("554 spam", True), ("451 busy", False)])
def test_a_refused_mail_is_final_when_the_server_says_so(answer: str, final: bool) -> None:
    with mailbox() as box:
        box.data = answer
        with pytest.raises(Fail if final else NotDelivered, match=answer[4:]):
            channel(box.port).deliver(letter(MailMessage("x", "y")))


def test_a_refused_copy_does_not_send_the_mail_again(caplog: pytest.LogCaptureFixture) -> None:
    with mailbox() as box:
        box.refuse["bob@example.org"] = "550 nobody of that name"
        channel(box.port).deliver(letter(MailMessage("x", "y", cc=["bob@example.org"])))
        assert len(box.mails()) == 1
    assert "bob@example.org was refused (550)" in caplog.text


def test_a_server_that_is_away_is_tried_again() -> None:
    with pytest.raises(NotDelivered, match=r"localhost:1 did not take 'paid'"):
        channel(1).deliver(letter(MailMessage("x", "y")))


@pytest.mark.parametrize(
    ("message", "address"),
    [
        (MailMessage("one\ntwo", "y"), "ann@example.org"),
        (MailMessage("x", "y", headers={"X-Kind": "a\r\nBcc: eve@example.org"}), "ann@example.org"),
        (MailMessage("x", "y"), "ann@example.org\r\nBcc: eve@example.org"),
        (MailMessage("x", "y"), "ann@example.org, eve@example.org"),
        (MailMessage("x", "y"), "ann"),
        (MailMessage("x", "y"), ""),
        ("x", "ann@example.org"),
    ],
)
def test_what_is_no_mail_to_one_address_fails_for_good_and_is_not_sent(message: Any, address: str) -> None:
    with mailbox() as box:
        with pytest.raises(Fail) as caught:
            channel(box.port).deliver(letter(message, address))
        assert box.envelopes == []
    assert isinstance(caught.value.cause, InvalidInput | ConfigError)


def test_what_cannot_be_a_mail_server_is_refused() -> None:
    with pytest.raises(ConfigError, match="would travel unencrypted"):
        Smtp("localhost", tls="none", user="shop", password="secret")
    with pytest.raises(ConfigError, match="tls='maybe'"):
        Smtp("localhost", tls="maybe")  # type: ignore[arg-type]
    with pytest.raises(InvalidDuration):
        Smtp("localhost", timeout="10")
    with pytest.raises(ConfigError, match="cannot be the sender"):
        MailChannel(Smtp("localhost"), sender="shop")


@pytest.mark.usefixtures("manager")
def test_a_mail_that_fails_is_tried_again_and_keeps_its_message_id(station: Station) -> None:
    class Paid(Notification, tries=2, backoff="1h"):
        def via(self, to: Recipient) -> Sequence[str]:
            return ["mail"]

        def to_mail(self, to: Recipient) -> MailMessage:
            return MailMessage("x", "y")

    with mailbox() as box:
        use_channel("mail", channel(box.port))
        box.data = "451 busy"
        [ref] = notify(Recipient({"mail": "ann@example.org"}), Paid(), id="paid-1")
        station.drain()
        assert station.state(ref.id) is State.SCHEDULED
        box.data = "250 taken"
        station.client.run_now(ref.id)
        station.drain()
        assert [mail["Message-ID"] for mail in box.mails()] == ["<paid-1.mail@example.org>"]
