"""The executor: what is sent again, and what is not."""

import time
from typing import Any

import pytest
import redis
from redis.exceptions import NoScriptError, ResponseError

from delayq import DelayQ
from delayq.core.errors import BackendUnavailable, CallRefused, ConfigError, OutcomeUnknown
from delayq.redis.commands.call import Call, command, script_call, value_of
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import ConnectionLost, drive
from delayq.redis.scripts import load

LOST_BEFORE = ConnectionLost("refused", sent=False)
LOST_AFTER = ConnectionLost("reset", sent=True)


class FakeLeaf:
    """Answers each exchange with the next of its answers; the last one stands for all that follow. Time is a number."""

    def __init__(self, *answers: list[Any] | ConnectionLost) -> None:
        self._answers = list(answers)
        self.requests: list[bytes] = []
        self.now = 0.0

    where = "redis://test"

    async def send(self, request: bytes) -> None:
        self.requests.append(request)

    async def receive(self, connection: None, replies: int, *, block: float = 0.0) -> list[Any]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, ConnectionLost):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def close(self) -> None:
        pass

    def run(self, *calls: Call[Any]) -> list[Any]:
        return [value_of(outcome) for outcome in self.outcomes(*calls)]

    def outcomes(self, *calls: Call[Any]) -> list[Any]:
        executor = Executor(self, clock=lambda: self.now)
        return drive(executor.run_all(calls))


READ = command("GET", "a", parse=bytes)
COUNT = command("INCR", "a", parse=int, repeatable=False)


def test_what_was_not_sent_is_sent_again() -> None:
    assert FakeLeaf(LOST_BEFORE, LOST_BEFORE, [7]).run(COUNT) == [7]


def test_what_was_sent_is_sent_again_when_that_does_no_harm() -> None:
    assert FakeLeaf(LOST_AFTER, [b"x"]).run(READ) == [b"x"]


def test_a_lost_answer_leaves_the_outcome_unknown() -> None:
    leaf = FakeLeaf(LOST_AFTER, [7])
    with pytest.raises(OutcomeUnknown):
        leaf.run(COUNT)
    assert len(leaf.requests) == 1


@pytest.mark.parametrize(("lost", "error"), [(LOST_BEFORE, BackendUnavailable), (LOST_AFTER, OutcomeUnknown)])
def test_patience_ends_after_five_seconds(lost: ConnectionLost, error: type[Exception]) -> None:
    leaf = FakeLeaf(lost)
    with pytest.raises(error):
        leaf.run(READ)
    assert 4.5 <= leaf.now <= 5.0


def test_a_script_that_the_server_lacks_is_sent_as_text() -> None:
    script = load("renew")
    call = script_call(script, ("a", "b", "c"), lambda reply: reply, repeatable=True, consumer="me")
    leaf = FakeLeaf([b"x", NoScriptError("NOSCRIPT")], [[0]])
    assert leaf.run(READ, call) == [b"x", [0]]
    assert leaf.requests[1].startswith(b"*7\r\n$4\r\nEVAL\r\n")


def test_a_call_that_is_refused_leaves_the_others_their_answers() -> None:
    first, refused, last = FakeLeaf([7, ResponseError("WRONGTYPE"), b"x"]).outcomes(COUNT, READ, READ)
    assert (first, last) == (7, b"x")
    assert isinstance(refused, CallRefused)


def test_a_script_text_that_is_lost_leaves_the_others_their_answers() -> None:
    call = script_call(load("renew"), ("a", "b", "c"), lambda reply: reply, repeatable=True, consumer="me")
    first, lost = FakeLeaf([7, NoScriptError("NOSCRIPT")], LOST_AFTER).outcomes(COUNT, call)
    assert first == 7
    assert isinstance(lost, OutcomeUnknown)


def test_a_wrong_password_is_told_at_once(url: str, server: redis.Redis) -> None:
    server.config_set("requirepass", "secret")
    try:
        started = time.monotonic()
        with pytest.raises(ConfigError, match="refused the log-in"):
            DelayQ(url.replace("unix://", "unix://:wrong@")).stats()
        assert time.monotonic() - started < 1
    finally:
        server.config_set("requirepass", "")
