"""The channel `webhook`, against a server that really listens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from delayq import (
    Letter,
    Notification,
    Recipient,
    Retry,
    WebhookChannel,
    WebhookMessage,
    notify,
    use_channel,
)
from delayq.core.errors import ConfigError, InvalidInput, NotDelivered
from delayq.core.signals import Fail
from delayq.core.states import State
from tests.support.certificates import certificate
from tests.support.posts import receiving
from tests.support.station import Station

KEYS = [b"0123456789abcdef0123456789abcdef", b"another-key-of-32-bytes-in-length"]
SECRETS = ["whsec_" + base64.b64encode(key).decode() for key in KEYS]
LOOPBACK = ["127.0.0.0/8", "::1/128"]


def channel(**options: Any) -> WebhookChannel:
    return WebhookChannel(**{"secrets": SECRETS, "allow": LOOPBACK, "timeout": "5s", **options})


def letter(url: str, message: Any = None) -> Letter:
    return Letter("id-1", "paid", "webhook", url, "", {"invoice": 7} if message is None else message)


@pytest.mark.usefixtures("manager")
def test_a_notification_arrives_as_a_signed_post(station: Station) -> None:
    class Paid(Notification):
        invoice: int

        def via(self, to: Recipient) -> Sequence[str]:
            return ["webhook"]

        def to_webhook(self, to: Recipient) -> dict[str, int]:
            return {"invoice": self.invoice}

    with receiving() as receiver:
        use_channel("webhook", channel())
        url = f"http://localhost:{receiver.port}/hook?shop=1"
        [ref] = notify(Recipient({"webhook": url}), Paid(invoice=7), id="paid-7")
        before = int(time.time())
        station.drain()
        [post] = receiver.posts
    assert station.ends(ref.id) == ["done"]
    assert (post.path, json.loads(post.body)) == ("/hook?shop=1", {"invoice": 7})
    assert post.headers["content-type"] == "application/json"
    assert post.headers["host"] == f"localhost:{receiver.port}"
    assert post.headers["webhook-id"] == "paid-7.webhook"
    stamp = post.headers["webhook-timestamp"]
    assert before <= int(stamp) <= time.time()
    signatures = []
    for key in KEYS:
        digest = hmac.new(key, f"paid-7.webhook.{stamp}.".encode() + post.body, hashlib.sha256).digest()
        signatures.append("v1," + base64.b64encode(digest).decode())
    assert post.headers["webhook-signature"].split(" ") == signatures


def test_over_https_only_a_certificate_of_that_host_is_believed(tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    with receiving(pem) as receiver:
        url = f"https://localhost:{receiver.port}/"
        channel(ca_file=str(pem)).deliver(letter(url))
        with pytest.raises(NotDelivered, match="CERTIFICATE_VERIFY_FAILED"):
            channel().deliver(letter(url))
        with pytest.raises(NotDelivered, match="IP address mismatch"):
            channel(ca_file=str(pem)).deliver(letter(f"https://127.0.0.1:{receiver.port}/"))
        assert len(receiver.posts) == 1


def test_headers_of_the_message_are_added_and_cannot_replace_the_signature() -> None:
    with receiving() as receiver:
        headers = {"X-Shop": "one", "Content-Type": "application/cloudevents+json", "Webhook-Signature": "v1,forged"}
        channel().deliver(letter(f"http://localhost:{receiver.port}", WebhookMessage([1], headers)))
        [post] = receiver.posts
    assert (post.path, post.body, post.headers["x-shop"]) == ("/", b"[1]", "one")
    assert post.headers["content-type"] == "application/cloudevents+json"
    assert "forged" not in post.headers["webhook-signature"]


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 404, 410, 422])
def test_no_redirect_is_followed_and_refusals_are_final(status: int) -> None:
    with receiving() as receiver:
        receiver.answers = [(status, {"location": f"http://localhost:{receiver.port}/elsewhere"})]
        with pytest.raises(Fail, match=f"was answered with {status}"):
            channel().deliver(letter(f"http://localhost:{receiver.port}/hook"))
        assert [post.path for post in receiver.posts] == ["/hook"]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503])
def test_an_answer_that_may_change_is_tried_again(status: int) -> None:
    with receiving() as receiver:
        receiver.answers = [(status, {})]
        with pytest.raises(NotDelivered, match=f"was answered with {status}"):
            channel().deliver(letter(f"http://localhost:{receiver.port}/hook"))


@pytest.mark.parametrize(
    ("status", "wait", "delay_ms"),
    [(429, "120", 120_000), (503, "0", 0), (503, "999999", 3_600_000), (503, "Wed, 21 Oct 2015 07:28:00 GMT", None)],
)
def test_the_receiver_says_when(status: int, wait: str, delay_ms: int | None) -> None:
    with receiving() as receiver:
        receiver.answers = [(status, {"retry-after": wait})]
        with pytest.raises(NotDelivered if delay_ms is None else Retry) as caught:
            channel().deliver(letter(f"http://localhost:{receiver.port}/hook"))
    if isinstance(caught.value, Retry):
        assert caught.value.delay_ms == delay_ms


def test_a_receiver_that_does_not_answer_is_left() -> None:
    with receiving() as receiver:
        receiver.silent.set()
        with pytest.raises(NotDelivered, match="TimeoutError"):
            channel(timeout="100ms").deliver(letter(f"http://localhost:{receiver.port}/hook"))
        receiver.silent.clear()
    with pytest.raises(NotDelivered, match="did not arrive"):
        channel().deliver(letter("http://localhost:1/hook"))


@pytest.mark.parametrize("allow", [(), ("10.0.0.0/8",)])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0"])
def test_loopback_is_refused_unless_it_is_allowed(host: str, allow: Sequence[str]) -> None:
    with receiving() as receiver:
        with pytest.raises(Fail, match="which is not on the internet") as caught:
            channel(allow=allow).deliver(letter(f"https://{host}:{receiver.port}/hook"))
        assert receiver.posts == []
    assert isinstance(caught.value.cause, InvalidInput)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/hook",
        "ftp://example.org/hook",
        "https:///hook",
        "https://ann:secret@example.org/",
        "https://example.org/#part",
        "https://example.org/a b",
        "https://example.org/\r\nhost: other",
        "https://example.org:99999/",
        "https://[::1/",
        "",
    ],
)
def test_what_is_no_url_fails_for_good(url: str) -> None:
    with pytest.raises(Fail, match="is no URL for a webhook"):
        channel(allow=()).deliver(letter(url))


def test_plain_http_goes_to_allowed_networks_only() -> None:
    with pytest.raises(Fail, match="is on the internet"):
        channel().deliver(letter("http://93.184.215.14/hook"))


@pytest.mark.parametrize("message", [object(), WebhookMessage({1: object()}), WebhookMessage({}, {"x": "a\r\nb: c"})])
def test_what_cannot_be_posted_fails_for_good(message: Any) -> None:
    with receiving() as receiver:
        with pytest.raises(Fail):
            channel().deliver(letter(f"http://localhost:{receiver.port}/", message))
        assert receiver.posts == []


@pytest.mark.parametrize("secrets", ["whsec_", "whsec_c2hvcnQ=", "secret", ["whsec_!!"], ""])
def test_a_secret_that_is_none_is_refused_and_not_repeated(secrets: Any) -> None:
    with pytest.raises(ConfigError, match="secret cannot be used") as caught:
        WebhookChannel(secrets=secrets)
    assert "c2hvcnQ" not in str(caught.value)


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(ConfigError, match="allow has no networks"):
        channel(allow=["localhost"])


@pytest.mark.usefixtures("manager")
def test_an_attempt_more_brings_the_same_id(station: Station) -> None:
    class Paid(Notification, tries=3, backoff="1h"):
        def via(self, to: Recipient) -> Sequence[str]:
            return ["webhook"]

        def to_webhook(self, to: Recipient) -> dict[str, int]:
            return {}

    with receiving() as receiver:
        use_channel("webhook", channel())
        receiver.answers = [(500, {}), (200, {})]
        [ref] = notify(Recipient({"webhook": f"http://127.0.0.1:{receiver.port}"}), Paid(), id="paid-1")
        station.drain()
        assert station.state(ref.id) is State.SCHEDULED
        station.client.run_now(ref.id)
        station.drain()
        assert [post.headers["webhook-id"] for post in receiver.posts] == ["paid-1.webhook"] * 2
    assert station.ends(ref.id) == ["released", "done"]
