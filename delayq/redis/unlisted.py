"""Queues that hold jobs or follow-ups and are not on the list of queues, found in the keys of all nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from redis.exceptions import NoPermissionError

from delayq.core.errors import BackendDamaged, ConfigError
from delayq.core.shards import names_a_shard
from delayq.redis.client import Client
from delayq.redis.direct import Direct
from delayq.redis.keys import Keys
from delayq.redis.server_state import LeaveOut, on_each

SCAN_COUNT: Final = 1_000
"""Keys of each node that one step looks at, about."""


class UnlistedWalk:
    """One walk through all keys, a page of each node at a time.

    `over`: whether it is at its end. `forbidden`: whether it ended because this user may not call `SCAN`.

    `leave_out` is told each node of a cluster that does not answer, which this walk then leaves out.
    """

    def __init__(self, client: Client, leave_out: LeaveOut) -> None:
        prefix = client.options.prefix
        self._client = client
        self._leave_out = leave_out
        self._match = re.sub(r"([\\*?\[\]])", r"\\\1", prefix) + ":{*}:[jo]*"
        self._key = re.compile(re.escape(prefix) + r":\{([^{}]+)\}:(jobs|outbox)")
        self._cursors: Mapping[str, int] = {}
        self.over = False
        self.forbidden = False

    def step(self) -> list[str]:
        """Look at the next page of each node; the queues found there, shard by shard, that the list lacks.

        The list is read after the keys, so a queue that is made meanwhile is not taken for an unlisted one.
        Raises `BackendError` or `ConfigError` when the server cannot be asked.
        """
        ask = partial(_pages, self._match, self._cursors, self._leave_out)
        try:
            pages = self._client.connector.call(ask, safe=True, reads=True)
        except ConfigError as error:
            if not isinstance(error.__cause__, NoPermissionError):
                raise
            self.over = self.forbidden = True
            return []
        self._cursors = {node: after for node, (after, _) in pages.items()}
        self.over = not any(self._cursors.values())
        keys = [key for _, names in pages.values() for name in names if (key := self._key.fullmatch(name))]
        held = {(key[1], key[2]) for key in keys if names_a_shard(key[1])}
        if not held:
            return []
        listed = set(self._client.run(self._client.verbs.shards()))
        return sorted({shard for shard, part in held if shard not in listed and (part == "jobs" or self._owes(shard))})

    def _owes(self, shard: str) -> bool:
        """Whether its outbox holds something: an empty one may be left of a shard that was given up."""
        outbox = Keys(self._client.options.prefix, shard).of("outbox")
        try:
            return self._client.connector.call(lambda redis: bool(redis.xlen(outbox)), safe=True, reads=True)
        except (BackendDamaged, ConfigError):  # a key of another type, or of a queue that this user may not read
            return False


def _pages(
    match: str, cursors: Mapping[str, int], leave_out: LeaveOut, client: Direct
) -> dict[str, tuple[int, list[str]]]:
    servers: Mapping[str, Any] = client.servers()

    def page(node: str) -> tuple[int, list[str]]:
        if cursors and not cursors.get(node):
            return 0, []
        after, names = servers[node].scan(cursor=cursors.get(node, 0), match=match, count=SCAN_COUNT)
        return int(after), [name.decode("utf-8", "backslashreplace") for name in names]

    return on_each(client, page, leave_out)
