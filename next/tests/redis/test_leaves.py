"""The two leaves: who may use a connection, and when it is closed."""

import asyncio
import os
import signal
import threading
import time
from types import FrameType
from typing import Any

import pytest
import redis

from delayq import AsyncDelayQ, DelayQ
from delayq.core.errors import BackendUnavailable, ConfigError
from delayq.redis.calls.call import Call, command, read
from delayq.redis.connection.asyncio import AsyncioLeaf
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.leaf import ConnectionLost, Leaf, WokenUp, drive
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.url import Address

BLOCK: Call[None] = command("BLPOP", "nothing", 5, parse=lambda _: None)
PING: Call[bytes] = command("PING", parse=bytes)


class Interrupted(BaseException):
    """What a signal handler may raise anywhere."""


def test_a_signal_handler_that_calls_gets_another_connection(url: str, server: redis.Redis) -> None:
    executor = ServerExecutor(BlockingLeaf(Address(url)))
    answers: list[bytes] = []

    def call(number: int, frame: FrameType | None) -> None:
        answers.append(drive(executor.run(PING)))

    before = signal.signal(signal.SIGUSR1, call)  # SIGALRM belongs to pytest-timeout
    here = threading.get_ident()
    timer = threading.Timer(0.05, lambda: signal.pthread_kill(here, signal.SIGUSR1))
    try:
        timer.start()
        late = command("BLPOP", "nothing", "0.2", parse=lambda reply: reply)
        assert drive(executor.run_all([late], block=0.2)) == [None]
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert answers == [b"PONG"]


@pytest.mark.parametrize("moment", ["connect", "send_packed_command", "read_response"])
def test_what_interrupts_a_call_closes_its_connection(
    url: str, server: redis.Redis, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise Interrupted

    address = Address(url)
    connection = address.blocking_connection()
    if moment != "connect":
        connection.connect()
    monkeypatch.setattr(address, "blocking_connection", lambda *_: connection)
    monkeypatch.setattr(connection, moment, interrupt)
    leaf = BlockingLeaf(address)
    with pytest.raises(Interrupted):
        drive(ServerExecutor(leaf).run(PING))
    assert connection._sock is None
    assert leaf._idle == []


def test_a_wake_up_ends_a_blocked_read(url: str, server: redis.Redis) -> None:
    wake_fd, signal_fd = os.pipe()
    leaf = BlockingLeaf(Address(url), wake_fd=wake_fd)
    started = time.monotonic()
    threading.Timer(0.05, os.write, (signal_fd, b"x")).start()
    with pytest.raises(WokenUp):
        drive(ServerExecutor(leaf).run_all([BLOCK], block=5))
    assert time.monotonic() - started < 1
    assert drive(ServerExecutor(leaf).run(PING)) == b"PONG"


def test_a_server_that_does_not_answer_is_given_up(url: str, server: redis.Redis) -> None:
    leaf = BlockingLeaf(Address(url))
    connection = drive(leaf.send(b"*3\r\n$5\r\nBLPOP\r\n$7\r\nnothing\r\n$1\r\n5\r\n"))
    with pytest.raises(ConnectionLost, match="no reply came in time"):
        drive(leaf.receive(connection, 1))
    assert connection._sock is None


def test_a_shorter_time_limit_applies_to_one_question_only(url: str, server: redis.Redis) -> None:
    slow = read("BLPOP", "nothing", "0.9", parse=lambda reply: reply)
    connection_id = read("CLIENT", "ID", parse=lambda reply: reply)

    async def question(leaf: Leaf[Any]) -> None:
        executor = ServerExecutor(leaf)
        with pytest.raises(BackendUnavailable, match="no reply came in time"):
            await executor.ask(slow, within=0.1)
        first = await executor.ask(connection_id, within=0.5)
        assert await executor.run(slow) is None
        assert await executor.run(connection_id) == first  # the connection of the question, without its time limit
        await leaf.close()

    drive(question(BlockingLeaf(Address(url))))
    asyncio.run(question(AsyncioLeaf(Address(url))))


def test_an_answer_that_comes_too_late_is_given_to_no_other_call(url: str, server: redis.Redis) -> None:
    async def scene() -> None:
        leaf = AsyncioLeaf(Address(url))
        connection = await leaf.send(b"*3\r\n$5\r\nBLPOP\r\n$4\r\nlist\r\n$1\r\n9\r\n")
        with pytest.raises(ConnectionLost, match="no reply came in time"):
            await leaf.receive(connection, 1)
        assert not connection.is_connected
        server.rpush("list", "late")
        assert await ServerExecutor(leaf).run(PING) == b"PONG"
        await leaf.close()

    asyncio.run(scene())


def test_an_answer_may_be_held_back_by_order_of_the_call(url: str, server: redis.Redis) -> None:
    async def scene() -> None:
        leaf = AsyncioLeaf(Address(url))
        connection = await leaf.send(b"*3\r\n$5\r\nBLPOP\r\n$7\r\nnothing\r\n$3\r\n2.5\r\n")
        assert await leaf.receive(connection, 1, block=2.5) == [None]
        await leaf.close()

    asyncio.run(scene())


def test_a_database_that_does_not_exist_is_told_of(url: str, server: redis.Redis) -> None:
    for leaf in (BlockingLeaf(Address(f"{url}?db=77")), AsyncioLeaf(Address(f"{url}?db=77"))):
        with pytest.raises(ConfigError, match="DB index is out of range"):
            asyncio.run(ServerExecutor(leaf).run(PING))


def test_threads_that_share_a_client_get_their_own_answers(url: str, server: redis.Redis) -> None:
    with DelayQ(url) as client:
        ids: list[str] = []
        threads = [
            threading.Thread(target=lambda n=n: ids.append(client.schedule("n", id=f"job-{n}", delay="1h").id))
            for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ids) == sorted(f"job-{n}" for n in range(20))


@pytest.mark.filterwarnings("error")
def test_one_client_serves_one_event_loop_after_the_other(url: str, server: redis.Redis) -> None:
    before = len(server.client_list())
    client = AsyncDelayQ(url)
    for _ in range(50):
        assert asyncio.run(client.queues()) == []
    assert len(server.client_list()) <= before + 2


def test_a_cancelled_call_closes_its_connection(url: str, server: redis.Redis) -> None:
    leaf = AsyncioLeaf(Address(url))

    async def cancel_a_blocked_call() -> bytes:
        call = asyncio.create_task(ServerExecutor(leaf).run_all([BLOCK], block=5))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return await ServerExecutor(leaf).run(PING)

    assert asyncio.run(cancel_a_blocked_call()) == b"PONG"
