"""What Redis holds of the queue `orders`, read with plain commands."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from delayq.core.states import State
from delayq.redis.keys import GROUP, Keys
from tests.support.dump import dump
from tests.support.listener import Listener

_SETS = ("scheduled", "failed", "completed")
_BESIDE: dict[str, set[str]] = {
    "recoveries": {"scheduled", "stream", "failed"},
    "errors": {"scheduled", "stream", "failed", "completed"},
    "results": {"completed"},
    "cancel": {"stream"},
    "progress": {"stream"},
    "locks": {"scheduled", "stream"},
}
"""The hashes beside a job, and the places of jobs that may have a row in them."""


class StoredQueue:
    """The keys of one queue."""

    def __init__(self, server: redis.Redis, keys: Keys) -> None:
        self.server: Any = server  # the types of redis-py make every answer `bytes | str`
        self.keys = keys

    def key(self, role: str) -> str:
        return self.keys.of_queue("orders", role)

    @property
    def stream(self) -> str:
        return self.key("stream")

    def rows(self, role: str) -> dict[str, str]:
        return dict(self.server.hgetall(self.key(role)))

    def times(self, role: str) -> dict[str, float]:
        """Return the ids in one of the sorted sets with their times, in its order."""
        return dict(self.server.zrange(self.key(role), 0, -1, withscores=True))

    def entries(self) -> list[dict[str, str]]:
        """Return the fields of the entries of the stream."""
        return [fields for _, fields in self.server.xrange(self.stream)]

    def outbox(self) -> list[dict[str, str]]:
        return [fields for _, fields in self.server.xrange(self.key("outbox"))]

    def in_stream(self) -> list[str]:
        """Return the ids of the jobs in the stream, in its order."""
        return [fields.get("id", "") for fields in self.entries()]

    def pending(self) -> dict[str, str]:
        """Return the entry ids that consumers hold, each with its consumer."""
        rows = self.server.xpending_range(self.stream, GROUP, "-", "+", 10_000)
        return {row["message_id"]: row["consumer"] for row in rows}

    def consumers(self) -> set[str]:
        rows = self.server.xinfo_consumers(self.stream, GROUP)
        return {row["name"] for row in rows}

    def last_delivered(self) -> str:
        (group,) = self.server.xinfo_groups(self.stream)
        return str(group["last-delivered-id"])

    def state_of(self, id: str) -> State:
        """Return the state of a job, which is its place."""
        place = self.place_of(id)
        if place == "stream":
            entry = str(self.server.hget(self.key("entries"), id))
            return "reserved" if parts(entry) <= parts(self.last_delivered()) else "ready"
        return "absent" if place == "nowhere" else place  # type: ignore[return-value]  # the sets are named like states

    def place_of(self, id: str) -> str:
        """Return the place of a job; ready and reserved jobs are both in the stream."""
        if self.server.hexists(self.key("entries"), id):
            return "stream"
        for place in _SETS:
            if self.server.zscore(self.key(place), id) is not None:
                return place
        return "nowhere"

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Check that the block writes nothing."""
        before = dump(self.server)
        yield
        assert dump(self.server) == before

    @contextmanager
    def full(self) -> Iterator[None]:
        """Let the server be at its memory limit."""
        self.server.config_set("maxmemory", 1)
        try:
            yield
        finally:
            self.server.config_set("maxmemory", 0)

    @contextmanager
    def listening(self, channel: str = "") -> Iterator[Listener]:
        """Listen on a channel, else on that of the wake-ups."""
        listener = Listener(self.server, channel or self.keys.wake)
        try:
            yield listener
        finally:
            listener.close()

    def check_whole(self) -> None:
        """Check that every job is in exactly one place, and that nothing is left of jobs that have gone."""
        with self.server.pipeline(transaction=False) as asked:
            for place in _SETS:
                asked.zrange(self.key(place), 0, -1)
            for role in ("entries", "jobs", *_BESIDE):
                asked.hkeys(self.key(role))
            asked.hgetall(self.key("unique"))
            asked.hgetall(self.key("locks"))
            asked.xlen(self.stream)
            *found, unique, locks, length = asked.execute()
        places = {place: set(ids) for place, ids in zip((*_SETS, "stream"), found, strict=False)}
        assert length == len(places["stream"])
        assert sorted(id for ids in places.values() for id in ids) == sorted(found[4])
        for (role, allowed), ids in zip(_BESIDE.items(), found[5:], strict=True):
            left = set(ids).difference(*(places[place] for place in allowed))
            assert left == set(), f"rows in {role}"
        owners = {digest: row for digest, row in unique.items() if " " not in row}
        assert owners == {digest: id for id, digest in locks.items()}


def parts(entry: str) -> tuple[int, int]:
    """Return an entry id as two numbers, which compare as Redis does."""
    ms, sequence = entry.split("-")
    return int(ms), int(sequence)
