"""The hands of the state machine: one queue on a real server, and scripts sent to it.

`variants` replaces the text of some scripts, so that a test can show that the machine finds a broken one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import redis
from redis.exceptions import NoScriptError

from delayq.core.options import Options
from delayq.core.shards import Layout
from delayq.redis.calls.call import Call, Scope
from tests.support.model_view import SNAPSHOT, View, read_view
from tests.support.waiting import wait_until

T = TypeVar("T")

PREFIX = "delayq"
QUEUE = "machine"
GROUP = "delayq"
LEASE_MS = 30_000
MAX_RECOVERIES = 2
HIGH_WATER = 3
OPTIONS = Options(prefix=PREFIX, lease_ms=LEASE_MS, max_recoveries=MAX_RECOVERIES, high_water=HIGH_WATER)
# Answers in the plain RESP2 shapes, whatever protocol and callbacks the client has.
_RAW = "return redis.call(unpack(ARGV))"


@cache
def _sha(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class Rig:
    """One queue on one server."""

    client: redis.Redis
    variants: Mapping[str, str] = field(default_factory=dict)

    def key(self, name: str) -> str:
        return f"{PREFIX}:{{{QUEUE}}}:{name}"

    def scope(self, now_ms: int, layout: Layout) -> Scope:
        return Scope(OPTIONS, QUEUE, now_ms, layout)

    def send(self, call: Call[T]) -> T:
        """Run a call as a shell does."""
        text = self.variants.get(call.script.name, call.script.text)
        return call.parse(self._run(text, len(call.keys), *call.keys, *call.args))

    def raw(self, *words: str | bytes | int) -> Any:
        """A command of the server's own, as an operator or a plain consumer sends it."""
        return self._run(_RAW, 0, *words)

    def view(self) -> View:
        """Everything in the queue, at one instant."""
        return read_view(self._run(SNAPSHOT, 0, self.key("")))

    def _run(self, text: str, *words: str | bytes | int) -> Any:
        """By its SHA, and with its text when the server does not know that."""
        client: Any = self.client  # execute_command has no types
        try:
            return client.execute_command("EVALSHA", _sha(text), *words)
        except NoScriptError:
            return client.execute_command("EVAL", text, *words)

    def answers(self) -> set[str]:
        """The keys of answers that are kept for a call that is sent again."""
        return {name.decode() for name in self.client.scan_iter(match=self.key("once:*"), count=1000)}

    def outlive(self, entry: str) -> None:
        """Wait until the server's clock is past an entry id: it gives none of these out again in a new stream."""
        last_ms = int(entry.partition("-")[0])

        def is_past() -> bool:
            seconds, micros = self.raw("TIME")
            return int(seconds) * 1000 + int(micros) // 1000 > last_ms

        wait_until(is_past, what="the server's clock is past the last entry")

    def clear(self) -> None:
        self.client.flushdb()

    def forget_scripts(self) -> None:
        self.client.script_flush()
