"""How long the server was busy with a script, told apart from how long the machine was busy with others.

A call is too long when the server's own slow log says so *and* its main thread used that much processor time: on a
shared machine the first alone counts the neighbours, the second alone counts what the server does between two commands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from delayq.redis.calls.call import Call
from tests.support.engine import Engine

T = TypeVar("T")

LIMIT_US = 10_000


class Stopwatch:
    """Runs calls and remembers those that took longer than the limit."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.calls: dict[str, int] = defaultdict(int)
        self.too_long: dict[str, list[str]] = defaultdict(list)

    def run(self, call: Call[T]) -> T:
        """Send a call and look how long it took."""
        client = self._engine.client
        before = _processor_us(client)
        answer = self._engine.run(call)
        used = _processor_us(client) - before
        slow = [row for row in client.slowlog_get(10) if row["command"].startswith(b"EVAL")]
        if slow:
            client.slowlog_reset()
            if used > LIMIT_US:
                self.too_long[call.script.name].append(f"{slow[0]['duration']} us, {used} us of them at work")
        self.calls[call.script.name] += 1
        return answer

    def guilty(self) -> dict[str, list[str]]:
        """Scripts of which more than one call in twenty was too long, with those calls."""
        return {name: calls for name, calls in self.too_long.items() if 20 * len(calls) > self.calls[name]}


@contextmanager
def timing(engine: Engine) -> Iterator[Stopwatch]:
    """A stopwatch with the server's slow log set to the limit."""
    client = engine.client
    before = client.config_get("slowlog-log-slower-than")
    client.config_set("slowlog-log-slower-than", LIMIT_US)
    client.slowlog_reset()
    try:
        yield Stopwatch(engine)
    finally:
        client.config_set("slowlog-log-slower-than", before["slowlog-log-slower-than"])
        client.slowlog_reset()


def _processor_us(client: Any) -> int:
    used = client.info("cpu")
    return int((used["used_cpu_user_main_thread"] + used["used_cpu_sys_main_thread"]) * 1_000_000)
