"""What a receiver may do to whoever posts to it: nothing holds a post longer than its time, nothing fills memory."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from ipaddress import ip_address

import pytest

from delayq.jobs.notifications.webhook_address import Target
from delayq.jobs.notifications.webhook_post import MOST_ANSWER, Reply, post
from tests.support.posts import receiving
from tests.support.rude import Manners, rude, says

LOOPBACK = (ip_address("127.0.0.1"),)
SHORT_S = 0.3
LONG_S = 20.0


def waits(peer: socket.socket, over: threading.Event) -> None:
    over.wait()


def posted(port: int, timeout_s: float, body: bytes = b"{}", host: str = "127.0.0.1") -> Reply:
    target = Target(f"http://{host}:{port}/hook", http=True)
    return post(target, LOOPBACK, body, {}, timeout_s=timeout_s, context=None)


@pytest.mark.parametrize(
    "manners",
    [
        says(),
        says(for_ever=b"H", every_s=0.01),
        says(b"HTTP/1.1 200 OK\r\n", for_ever=b"x: y\r\n", every_s=0.02),
        says(for_ever=b"HTTP/1.1 100 Continue\r\n\r\n", every_s=0.01),
    ],
    ids=["hangs up or is silent", "a byte now and then", "a head now and then", "please go on"],
)
def test_slow_answers_end_with_the_time(manners: Manners) -> None:
    """Each step is far shorter than the time; all of them together are not."""
    with rude(manners) as port:
        began = time.monotonic()
        with pytest.raises((TimeoutError, http.client.HTTPException, ConnectionError)):
            posted(port, SHORT_S)
        assert time.monotonic() - began < LONG_S


def test_a_reader_that_takes_nothing_ends_with_the_time() -> None:
    with rude(waits, reads=False) as port, pytest.raises(TimeoutError):
        posted(port, SHORT_S, body=b"x" * (32 * 1024 * 1024))


@pytest.mark.parametrize(
    "manners",
    [
        says(b"HTTP/1.1 200 OK\r\n", for_ever=b"x: " + b"y" * 4000 + b"\r\n"),
        says(for_ever=b"x" * 65536),
        says(for_ever=b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    ],
    ids=["heads without end", "a line without end", "going on without end"],
)
def test_huge_heads_are_not_read_to_the_end(manners: Manners) -> None:
    with rude(manners) as port, pytest.raises((http.client.HTTPException, ConnectionError)):
        posted(port, LONG_S)


def test_a_huge_answer_is_an_answer_and_is_not_read() -> None:
    head = b"HTTP/1.1 %d X\r\ncontent-length: 1099511627776\r\n\r\n"
    with rude(says(head % 200, for_ever=b"x" * 65536)) as port:
        assert posted(port, LONG_S) == Reply(200, "", "")
    with rude(says(head % 500, for_ever=b"x" * 65536)) as port:
        assert posted(port, LONG_S) == Reply(500, "", "x" * 200)


def test_the_status_counts_when_the_words_behind_it_never_come() -> None:
    with rude(says(b"HTTP/1.1 410 Gone\r\ncontent-length: 10\r\n\r\nno", for_ever=b"", every_s=0.0)) as port:
        assert posted(port, LONG_S) == Reply(410, "", "no")
    chunked = b"HTTP/1.1 422 X\r\ntransfer-encoding: chunked\r\n\r\nnonsense\r\n"
    with rude(says(chunked)) as port:
        assert posted(port, LONG_S).status == 422


@pytest.mark.parametrize(
    "answer", [b"", b"hello\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"\x16\x03\x01\x00", b"HTTP/1.1 200"]
)
def test_what_is_no_answer(answer: bytes) -> None:
    with rude(says(answer)) as port:
        try:
            assert posted(port, LONG_S).status == 200  # a bare status line is one, if a poor one
            assert answer == b"HTTP/1.1 200"
        except (http.client.HTTPException, ConnectionError):
            assert answer != b"HTTP/1.1 200"


def test_the_next_address_is_tried_when_one_takes_no_connection() -> None:
    with receiving() as receiver:
        target = Target(f"http://localhost:{receiver.port}/", http=True)
        addresses = (ip_address("::1"), ip_address("127.0.0.2"), ip_address("127.0.0.1"))
        assert post(target, addresses, b"{}", {}, timeout_s=LONG_S, context=None).status == 204
        assert len(receiver.posts) == 1


def test_bounds_are_small() -> None:
    assert MOST_ANSWER <= 128 * 1024
