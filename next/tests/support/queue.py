"""A queue on a real server, in few words. Every method is one call of a script, at an explicit time."""

from typing import Literal, TypeVar

import redis

from delayq.backends.protocol import Acked, Delivery, Failed, Held, Promoted, Reclaimed, Released
from delayq.core.job_spec import NewJob
from delayq.core.states import Answer
from delayq.redis.commands import delivery
from delayq.redis.commands import jobs as producer
from delayq.redis.commands.call import Call
from delayq.redis.commands.jobs import Placed
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive
from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys

T = TypeVar("T")

NOW = 1_800_000_000_000
"""The time of most calls, in epoch ms."""

SECOND = 1_000
LEASE = 30 * SECOND
HIGH_WATER = 100_000
MAX_RECOVERIES = 3


class QueueOnServer:
    """The queue `orders`."""

    def __init__(self, url: str, server: redis.Redis, keys: Keys) -> None:
        self.server = server
        self.keys = keys
        self.executor = Executor(BlockingLeaf(Address(url)))

    def run(self, call: Call[T]) -> T:
        return drive(self.executor.run(call))

    def schedule(
        self,
        id: str,
        when: str = "+0",
        *,
        now: int = NOW,
        token: str = "",
        taken: Literal["kept", "conflict"] = "kept",
        lock: str = "",
        envelope: bytes = b"",
    ) -> Placed:
        job = NewJob(id, "name", "orders", envelope or envelope_of(id), when, True, lock)
        call = producer.schedule(
            self.keys,
            "orders",
            [job],
            taken=taken,
            high_water=HIGH_WATER,
            lease_ms=LEASE,
            token=token,
            now_ms=str(now),
        )
        return self.run(call)[0]

    def replace(
        self,
        id: str,
        when: str = "+0",
        *,
        word: Literal["replaced", "postponed"] = "replaced",
        envelope: bytes = b"",
        lock: str = "",
        token: str = "",
        now: int = NOW,
    ) -> Placed:
        job = NewJob(id, "name", "orders", envelope or envelope_of(id), when, True, lock)
        call = producer.replace(
            self.keys, "orders", [job], word=word, lease_ms=LEASE, token=token or f"{id}-{when}-{now}", now_ms=str(now)
        )
        return self.run(call)[0]

    def promote(self, *, now: int = NOW, limit: int = 500) -> Promoted:
        return self.run(delivery.promote(self.keys, "orders", high_water=HIGH_WATER, now_ms=str(now), limit=limit))

    def read(self, consumer: str = "dq:a:1:x") -> list[Delivery]:
        return self.run(delivery.read_new(self.keys, "orders", consumer, 10))

    def ack(self, job: Delivery, *, retention_ms: int = 0, now: int = NOW) -> bool:
        acked = Acked("orders", job.id, job.entry, retention_ms, b'"result"', is_followed=True)
        return self.run(delivery.ack(self.keys, "orders", [acked], now_ms=str(now)))[0]

    def release(self, job: Delivery, delay_ms: int, *, failure: bytes = b'{"type":"E"}', now: int = NOW) -> bool:
        released = Released("orders", job.id, job.entry, delay_ms, b"again", failure)
        return self.run(delivery.release(self.keys, "orders", [released], now_ms=str(now)))[0]

    def fail(self, job: Delivery, *, failure: bytes = b'{"type":"E"}', now: int = NOW) -> bool:
        failed = Failed("orders", job.id, job.entry, b"", failure, is_followed=True)
        return self.run(delivery.fail(self.keys, "orders", [failed], now_ms=str(now)))[0]

    def hand_back(self, job: Delivery) -> bool:
        return self.run(delivery.hand_back(self.keys, "orders", [job.held], now_ms=str(NOW)))[0]

    def reclaim(self, *, now: int = NOW) -> Reclaimed:
        return self.run(delivery.reclaim(self.keys, "orders", max_recoveries=MAX_RECOVERIES, now_ms=str(now)))

    def recover(self, *held: Held, now: int = NOW) -> list[int]:
        call = delivery.recover(self.keys, "orders", held, max_recoveries=MAX_RECOVERIES, now_ms=str(now))
        return self.run(call)

    def cancel(self, id: str, *, running: bool = False, token: str = "", failure: bytes = b"") -> Answer:
        call = producer.cancel(
            self.keys,
            "orders",
            id,
            running=running,
            failure=failure,
            token=token or f"cancel-{id}-{running}",
            now_ms=str(NOW),
        )
        return self.run(call)

    def key(self, role: str) -> str:
        return self.keys.of_queue("orders", role)

    def place_of(self, id: str) -> str:
        """Return the place of a job, which is its state."""
        if self.server.hexists(self.key("entries"), id):
            return "stream"
        for place in ("scheduled", "failed", "completed"):
            if self.server.zscore(self.key(place), id) is not None:
                return place
        return "nowhere"

    def check_sums(self) -> None:
        """Check that every job is in exactly one place."""
        in_stream = self.server.hlen(self.key("entries"))
        in_sets = sum(self.server.zcard(self.key(place)) for place in ("scheduled", "failed", "completed"))
        assert self.server.xlen(self.key("stream")) == in_stream
        assert in_sets + in_stream == self.server.hlen(self.key("jobs"))


def envelope_of(id: str, *, name: str = "name", extra: str = "") -> bytes:
    """Write an envelope as a producer of any language would; `extra` are more members, beginning with a comma."""
    text = f'{{"v":1,"id":"{id}","name":"{name}","queue":"orders","data":{{}},"attempts":0,"created_ms":0{extra}}}'
    return text.encode()
