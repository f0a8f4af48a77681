"""Flows of several clients, advanced command by command in an order that a seed draws, on one real server.

A flow yields what is to be sent, so whoever runs it decides when. Here every command of every client is a step, also
those that travel together: in a Cluster they go to different nodes. After each step the test's own check is called.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from random import Random
from typing import Any, TypeVar

from delayq.core.errors import DelayqError
from delayq.redis.calls.call import Call, Command
from delayq.redis.confirm import Confirm
from delayq.redis.send import send
from delayq.redis.verbs import Flow

T = TypeVar("T")
Then = Callable[[Any, BaseException | None], None]


class Loom:
    """Runs flows side by side. `client` is a plain one; `check` is called after each command."""

    def __init__(self, client: Any, rand: Random, check: Callable[[], None]) -> None:
        self._client = client
        self._rand = rand
        self._check = check
        self._threads: list[tuple[Iterator[None], str]] = []

    @property
    def busy(self) -> int:
        """How many flows have not ended."""
        return len(self._threads)

    def start(self, flow: Flow[Any], then: Then = lambda value, error: None, *, most: int = -1, name: str = "") -> None:
        """Let a flow run with the others; `then` is given what it returned, or raised.

        After `most` commands it is dropped as it stands: its process was killed. `then` is not called.
        """
        self._threads.append((self._run(flow, then, most), name))

    def run(self) -> None:
        """Until all flows have ended."""
        while self._threads:
            self.step()

    def step(self) -> None:
        """One command of one flow."""
        thread = self._rand.choice(self._threads)
        try:
            next(thread[0])
        except StopIteration:
            self._threads.remove(thread)
        self._check()

    def _run(self, flow: Flow[Any], then: Then, most: int) -> Iterator[None]:
        try:
            value = yield from commands(self._client, flow, most)
        except DelayqError as error:
            then(None, error)
        except Killed:
            return
        else:
            then(value, None)


class Killed(Exception):  # it is no error
    """The process of a flow is no more."""


def commands(client: Any, flow: Flow[T], most: int = -1) -> Generator[None, None, T]:
    """A flow that stops after each of its commands; what it returned, or raised. After `most` of them it is killed."""
    answer: Any = None
    sent = 0
    while True:
        try:
            wanted = flow.send(answer)
        except StopIteration as done:
            value: T = done.value
            return value
        assert not isinstance(wanted, Confirm), "nothing is waited for here"
        calls: tuple[Call[Any] | Command[Any], ...] = wanted if isinstance(wanted, tuple) else (wanted,)
        answers = []
        for call in calls:
            if sent == most:
                raise Killed
            answers.append(send(client, call))
            sent += 1
            yield
        answer = answers if isinstance(wanted, tuple) else answers[0]
