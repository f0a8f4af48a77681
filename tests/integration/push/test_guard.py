"""No push goes where it must not, however the address is written and whatever the name means a moment later."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from delayq.core.errors import InvalidInput, NotDelivered
from delayq.core.signals import Fail
from delayq.jobs.context import JobContext
from delayq.push.handler import PushHandler
from delayq.settings.pushes import read_push
from tests.integration.push.conftest import LOOPBACK, SECRETS
from tests.support.posts import Receiver, receiving

RAW = b'{"v":1,"id":"o-1","name":"order.close","queue":"orders","data":{"a":1},"attempts":0,"created_ms":7}'
JOB = JobContext(id="o-1", name="order.close", queue="orders", attempt=1, tries=3, recoveries=0, due_ms=0, token="1-0")


def pushed(url: str, *, allow: Sequence[str] = (), raw: bytes = RAW) -> Any:
    handler = PushHandler("orders", read_push("orders", {"url": url, "secrets": SECRETS, "allow": list(allow)}))
    return handler.run(msgspec.Raw(b'{"a":1}'), lambda: replace(JOB, raw=raw))


INSIDE = [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "017700000001", "0", "localhost", "[::1]", "[::]",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
]  # fmt: skip
METADATA = [
    "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "[::ffff:169.254.169.254]", "[fd00:ec2::254]",
    "100.100.100.200", "192.0.0.192", "168.63.129.16", "[64:ff9b::a9fe:a9fe]", "169.254.170.2",
]  # fmt: skip


@pytest.mark.parametrize("host", INSIDE)
def test_loopback_in_all_spellings(host: str) -> None:
    with receiving() as receiver:
        with pytest.raises(Fail, match="not on the internet") as caught:
            pushed(f"https://{host}:{receiver.port}/")
        assert receiver.posts == []
    assert isinstance(caught.value.cause, InvalidInput)


@pytest.mark.parametrize("host", METADATA)
def test_metadata_of_clouds(host: str) -> None:
    with pytest.raises(Fail, match="not on the internet"):
        pushed(f"https://{host}/latest/meta-data/")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What a name means, look by look; the list of looks grows as they are made."""
    real = socket.getaddrinfo

    def mean(*answers: Sequence[str]) -> list[str]:
        looks: list[str] = []

        def look(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
            if host != "hook.example":
                return real(host, port, *rest, **more)
            addresses = answers[min(len(looks), len(answers) - 1)]
            looks.append(host)
            return [row for address in addresses for row in real(address, port, *rest, **more)]

        monkeypatch.setattr(socket, "getaddrinfo", look)
        return looks

    return mean


def test_the_connection_goes_to_the_address_that_was_looked_at(names: Callable[..., list[str]]) -> None:
    """The second look would find another receiver; there is none."""
    with receiving() as receiver:
        looks = names(["127.0.0.1"], ["127.0.0.2"])
        url = f"http://hook.example:{receiver.port}/"
        assert pushed(url, allow=["127.0.0.1/32"]) == {"status": 204}
        assert looks == ["hook.example"]
        assert receiver.posts[0].headers["host"] == f"hook.example:{receiver.port}"
        with pytest.raises(Fail, match=r"127\.0\.0\.2, which is not on the internet"):
            pushed(url, allow=["127.0.0.1/32"])  # the next attempt looks anew
        assert len(receiver.posts) == 1


def test_one_address_inside_speaks_against_all(names: Callable[..., list[str]]) -> None:
    with receiving() as receiver:
        names(["127.0.0.1", "127.0.0.2"])
        with pytest.raises(Fail, match=r"127\.0\.0\.2"):
            pushed(f"http://hook.example:{receiver.port}/", allow=["127.0.0.1/32"])
        assert receiver.posts == []


def test_plain_http_never_leaves_for_the_internet(names: Callable[..., list[str]]) -> None:
    names(["93.184.215.14"])
    with pytest.raises(Fail, match="is on the internet"):
        pushed("http://hook.example/", allow=LOOPBACK)


def test_a_name_that_nobody_knows_may_be_known_later() -> None:
    with pytest.raises(NotDelivered, match="cannot be found"):
        pushed("https://nobody.invalid/")


def test_a_redirect_inside_is_not_followed(names: Callable[..., list[str]]) -> None:
    names(["127.0.0.1"])
    with receiving() as inside, receiving() as receiver:
        receiver.answers = [(307, {"location": f"http://127.0.0.1:{inside.port}/latest/meta-data"})]
        with pytest.raises(Fail, match="answered with 307"):
            pushed(f"http://hook.example:{receiver.port}/", allow=["127.0.0.1/32"])
        assert (inside.posts, len(receiver.posts)) == ([], 1)


@pytest.mark.parametrize(
    ("member", "value"), [("chain", {"id": "c", "next": [{"job": {"data": "secret"}}], "catch": None}), ("later", 1)]
)
def test_what_follows_a_job_is_not_sent_and_what_is_unknown_is(receiver: Receiver, member: str, value: Any) -> None:
    raw = json.dumps({**json.loads(RAW), member: value}).encode()
    pushed(f"http://127.0.0.1:{receiver.port}", allow=LOOPBACK, raw=raw)
    body = json.loads(receiver.posts[0].body)
    assert body["data"] == {"a": 1}
    assert body.get(member) == (None if member == "chain" else value)
