"""A station whose queue is pushed to a receiver on loopback."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from delayq.push.registering import register_pushes
from delayq.settings.pushes import read_push
from tests.support.posts import Receiver, receiving
from tests.support.station import QUEUE, Station

KEYS = (b"0123456789abcdef0123456789abcdef", b"another-key-of-32-bytes-in-length")
SECRETS = ["whsec_" + base64.b64encode(key).decode() for key in KEYS]
LOOPBACK = ["127.0.0.0/8", "::1/128"]

Push: TypeAlias = Callable[..., None]


@pytest.fixture
def station(redis_url: str) -> Iterator[Station]:
    with Station(redis_url) as station:
        yield station


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def push(station: Station, receiver: Receiver) -> Push:
    """Let the station's queue be pushed to the receiver; what is given goes before the usual settings."""

    def begin(**given: Any) -> None:
        usual = {"url": f"http://127.0.0.1:{receiver.port}/hook", "secrets": SECRETS, "allow": LOOPBACK}
        settings = {word: value for word, value in {**usual, **given}.items() if value is not None}
        register_pushes(station.registry, {QUEUE: read_push(QUEUE, settings)})

    return begin
