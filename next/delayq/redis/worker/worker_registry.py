"""The list of live workers, for operators.

At least every 10 s, each supervisor writes a description of each of its children. A description expires after 30 s.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from delayq.core.errors import BackendError
from delayq.core.outages import Outages
from delayq.core.views import WorkerInfo
from delayq.redis.calls.call import Call, command, read, texts
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive
from delayq.redis.keys import Keys

TTL_MS: Final = 30_000

UNLISTED: Final = "the list of workers cannot be updated"


class RedisWorkerRegistry:
    """Implements the protocol WorkerRegistry with Redis."""

    def __init__(self, executor: Executor, keys: Keys) -> None:
        self._executor = executor
        self._outages = Outages()
        self._keys = keys

    def announce(self, documents: Mapping[str, Mapping[str, Any]], now_ms: int) -> None:
        """Store descriptions of children under their names, in one request.

        A worker need not be on the list to work, so a refusal is only logged. A full server refuses to store the
        descriptions. Then only the expiry of the stored descriptions is renewed, which needs no memory.
        """
        calls: list[Call[Any]] = []
        for name, document in documents.items():
            written = msgspec.json.encode({"name": name, **document})
            calls.append(command("SET", self._keys.of_worker(name), written, "PX", TTL_MS, parse=_ignore))
            calls.append(command("ZADD", self._keys.workers, now_ms + TTL_MS, name, parse=_ignore))
        refused = [one for one in drive(self._executor.run_all(calls)) if isinstance(one, BackendError)]
        if refused:
            self._outages.tell(UNLISTED, refused[0])
            keep = [command("PEXPIRE", self._keys.of_worker(name), TTL_MS, parse=_ignore) for name in documents]
            drive(self._executor.run_all(keep))
        else:
            self._outages.is_over(UNLISTED)

    def leave(self, names: Sequence[str], now_ms: int) -> None:
        """Remove the named children from the list, and also all other children whose descriptions have expired."""
        calls = [command("DEL", self._keys.of_worker(name), parse=_ignore) for name in names]
        calls += [command("ZREM", self._keys.workers, name, parse=_ignore) for name in names]
        calls.append(command("ZREMRANGEBYSCORE", self._keys.workers, "-inf", now_ms, parse=_ignore))
        drive(self._executor.run_all(calls))


def list_names(keys: Keys) -> Call[list[str]]:
    """Make the call that reads the names on the list."""
    return read("ZRANGE", keys.workers, 0, -1, parse=texts)


def read_worker(keys: Keys, name: str) -> Call[WorkerInfo | None]:
    """Make the call that reads the description of a child.

    The call returns None if the description has expired or cannot be read.
    """

    def parse(reply: bytes | None) -> WorkerInfo | None:
        try:
            about: dict[str, Any] = msgspec.json.decode(reply or b"")
            return WorkerInfo(name=about.pop("name"), queues=about.pop("queues"), about=about)
        except (msgspec.MsgspecError, KeyError, AttributeError, TypeError):
            return None

    return read("GET", keys.of_worker(name), parse=parse)


def _ignore(reply: Any) -> None:
    """Ignore a reply."""
