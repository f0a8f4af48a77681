"""A queue on a real server, in few words. Every method is one call of a script, at an explicit time."""

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec
import redis

from delayq.backends.values import Acked, Delivery, DeliveryRef, Failed, Promoted, Reclaimed, Released, Renewed, Stopped
from delayq.core import failure as failures
from delayq.core.failure import Failure
from delayq.core.job_spec import NewJob
from delayq.core.states import Answer, State
from delayq.core.views import Control, JobInfo, Page, QueueStats
from delayq.redis.calls import delivery, inspect, queues, upkeep
from delayq.redis.calls import jobs as producer
from delayq.redis.calls.call import Call, queue_call
from delayq.redis.calls.jobs import Placed, Rescheduled, RetryAnswer
from delayq.redis.calls.queues import Configured, Holds, Switch
from delayq.redis.calls.upkeep import Outbox, OutsideAcks, Pruned, Tidied
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.url import Address
from delayq.redis.keys import GROUP, Keys
from tests.support.stored import StoredQueue

T = TypeVar("T")
Job = Delivery | DeliveryRef
Now = int | Literal[""]
"""An epoch in ms; '' = the clock of the server."""

NOW = 1_800_000_000_000
"""The time of most calls, in epoch ms."""

SECOND = 1_000
HOUR = 3_600_000
LEASE = 30 * SECOND
HIGH_WATER = 100_000
MAX_RECOVERIES = 3
OURS = "dq:a:1:x"
"""A consumer with a name of delayq's form."""
OTHER = "dq:b:2:y"
PLAIN = "plain"
"""A consumer of another program."""
FAILURE = b'{"type":"E","message":"m"}'


class QueueOnServer(StoredQueue):
    """The queue `orders`."""

    def __init__(self, url: str, server: redis.Redis, keys: Keys) -> None:
        super().__init__(server, keys)
        self.executor = _executor(url)

    def run(self, call: Call[T]) -> T:
        return drive(self.executor.run(call))

    def run_raw(self, call: Call[Any]) -> Any:
        """Run a call and return the answer of its script as it comes."""
        return self.run(msgspec.structs.replace(call, parse=lambda reply: reply))

    # --- producers

    def schedule(
        self,
        id: str,
        when: str = "+0",
        *,
        now: Now = NOW,
        token: str = "",
        taken: Literal["kept", "conflict"] = "kept",
        lock: str = "",
        envelope: bytes = b"",
        shards: int = 1,
    ) -> Placed:
        job = new_job(id, when, lock=lock, envelope=envelope)
        return self.schedule_all(job, now=now, token=token, taken=taken, shards=shards)[0]

    def schedule_all(
        self,
        *jobs: NewJob,
        now: Now = NOW,
        token: str = "",
        taken: Literal["kept", "conflict"] = "kept",
        high_water: int = HIGH_WATER,
        lease_ms: int = LEASE,
        shards: int = 1,
    ) -> list[Placed]:
        call = producer.schedule(
            self.keys,
            "orders",
            jobs,
            taken=taken,
            shards=shards,
            high_water=high_water,
            lease_ms=lease_ms,
            token=token,
            now_ms=str(now),
        )
        return self.run(call)

    def replace(
        self,
        id: str,
        when: str = "+0",
        *,
        word: Literal["replaced", "postponed"] = "replaced",
        envelope: bytes = b"",
        lock: str = "",
        token: str = "",
        now: Now = NOW,
    ) -> Placed:
        return self.replace_all(
            new_job(id, when, lock=lock, envelope=envelope), word=word, token=token or f"{id}-{when}-{now}", now=now
        )[0]

    def replace_all(
        self, *jobs: NewJob, word: Literal["replaced", "postponed"] = "replaced", token: str = "all", now: Now = NOW
    ) -> list[Placed]:
        call = producer.replace(self.keys, "orders", jobs, word=word, lease_ms=LEASE, token=token, now_ms=str(now))
        return self.run(call)

    def cancel(
        self, id: str, *, running: bool = False, token: str = "", failure: bytes = b"", now: Now = NOW
    ) -> Answer:
        call = producer.cancel(
            self.keys,
            "orders",
            id,
            running=running,
            failure=failure,
            token=token or f"cancel-{id}-{running}",
            now_ms=str(now),
        )
        return self.run(call)

    def archive(self, id: str, *, token: str = "", now: Now = NOW) -> Answer:
        return self.cancel(id, failure=b'{"type":"Archived","message":"by hand"', token=token or f"{id}-{now}", now=now)

    def reschedule(self, id: str, when: str, *, now: Now = NOW) -> Rescheduled:
        return self.run(producer.reschedule(self.keys, "orders", id, when, now_ms=str(now)))

    def run_now(self, id: str, *, high_water: int = HIGH_WATER, now: Now = NOW) -> Rescheduled:
        return self.run(producer.run_now(self.keys, "orders", id, high_water=high_water, now_ms=str(now)))

    def retry(self, id: str, *, digest: str = "", read: bytes = b"", now: Now = NOW) -> RetryAnswer:
        """Retry a job with the envelope that is stored, or that the caller has `read`."""
        raw = read or (self.server.hget(self.key("jobs"), id) or "").encode()
        fingerprint = hashlib.sha1(raw).hexdigest()
        call = producer.retry(
            self.keys,
            "orders",
            id,
            fingerprint=fingerprint,
            envelope=envelope_of(id),
            digest=digest,
            now_ms=str(now),
        )
        return self.run(call)

    def forget(self, *ids: str) -> list[Answer]:
        return self.run(producer.forget(self.keys, "orders", ids))

    def unlock(self, id: str, digest: str, *, entry: str = "") -> str:
        call = queue_call("unlock", self.keys, "orders", bytes.decode, id=id, entry=entry, digest=digest)
        return self.run(call)

    # --- movers and workers

    def promote(self, *, now: Now = NOW, limit: int = 500, high_water: int = HIGH_WATER) -> Promoted:
        return self.run(delivery.promote(self.keys, "orders", high_water=high_water, now_ms=str(now), limit=limit))

    def read(self, consumer: str = OURS, limit: int = 1000) -> list[Delivery]:
        return self.run(delivery.read_new(self.keys, "orders", consumer, limit))

    def ack(self, job: Job, *, retention_ms: int = 0, report: bytes = b"", now: Now = NOW) -> int:
        return self.ack_all(Acked("orders", job.id, job.entry, retention_ms, b'"result"', report), now=now)[0]

    def ack_all(self, *jobs: Acked, alone: bool = False, now: Now = NOW) -> list[int]:
        """Ack jobs whose envelopes the caller has not read, so something may follow them; or, `alone`, has read."""
        acked = [msgspec.structs.replace(job, is_followed=not alone) for job in jobs]
        return self.run(delivery.ack(self.keys, "orders", acked, now_ms=str(now)))

    def ack_stopped(self, *jobs: Job, now: Now = NOW) -> list[int]:
        stopped = [Stopped("orders", job.id, job.entry) for job in jobs]
        return self.run(delivery.ack_stopped(self.keys, "orders", stopped, now_ms=str(now)))

    def release(
        self, job: Job, delay_ms: int, *, envelope: bytes = b"again", failure: bytes = FAILURE, now: Now = NOW
    ) -> int:
        return self.release_all(Released("orders", job.id, job.entry, delay_ms, envelope, failure), now=now)[0]

    def release_all(self, *jobs: Released, now: Now = NOW) -> list[int]:
        return self.run(delivery.release(self.keys, "orders", jobs, now_ms=str(now)))

    def fail(self, job: Job, *, envelope: bytes = b"", failure: bytes = FAILURE, now: Now = NOW) -> int:
        return self.fail_all(Failed("orders", job.id, job.entry, envelope, failure), now=now)[0]

    def fail_all(self, *jobs: Failed, alone: bool = False, now: Now = NOW) -> list[int]:
        failed = [msgspec.structs.replace(job, is_followed=not alone) for job in jobs]
        return self.run(delivery.fail(self.keys, "orders", failed, now_ms=str(now)))

    def hand_back(self, job: Job, *, unheld: bool = False, now: Now = NOW) -> bool:
        return self.hand_back_all(job, unheld=unheld, now=now)[0]

    def hand_back_all(self, *held: Job, unheld: bool = False, now: Now = NOW) -> list[bool]:
        return self.run(delivery.hand_back(self.keys, "orders", _held(*held), unheld=unheld, now_ms=str(now)))

    def renew(self, *held: Job, consumer: str = OURS) -> Renewed:
        return self.run(delivery.renew(self.keys, "orders", consumer, _held(*held)))

    def reclaim(
        self, *, now: Now = NOW, max_recoveries: int = MAX_RECOVERIES, limit: int = delivery.RECLAIM_LIMIT
    ) -> Reclaimed:
        call = delivery.reclaim(self.keys, "orders", max_recoveries=max_recoveries, limit=limit, now_ms=str(now))
        return self.run(call)

    def recover(self, *held: Job, now: Now = NOW, max_recoveries: int = MAX_RECOVERIES) -> list[int]:
        call = delivery.recover(self.keys, "orders", _held(*held), max_recoveries=max_recoveries, now_ms=str(now))
        return self.run(call)

    def report_progress(self, *rows: tuple[str, str, bytes], now: Now = NOW) -> list[int]:
        """Report progress: rows of id, entry, and a JSON object without its closing brace."""
        return self.run(queue_call("progress", self.keys, "orders", list, now=str(now), rows=rows))

    # --- those who look

    def get(self, id: str) -> JobInfo | None:
        return self.run(inspect.get(self.keys, "orders", id))

    def page(self, state: State, cursor: str = "", *, limit: int = 500) -> Page:
        return self.run(inspect.list_jobs(self.keys, "orders", state, cursor=cursor, limit=limit))

    def stats(self, *, now: Now = NOW) -> QueueStats:
        return self.run(inspect.stats(self.keys, "orders", now_ms=str(now)))

    def count_due(self, *bounds_ms: int) -> list[int]:
        return [self.run(call) for call in inspect.count_due(self.keys, "orders", bounds_ms)]

    # --- operators

    def pause(self, for_ms: int = queues.UNTIL_ENDED, *, now: Now = NOW) -> int:
        return self.run(queues.pause(self.keys, "orders", for_ms=for_ms, lease_ms=LEASE, now_ms=str(now)))

    def resume(self, *, now: Now = NOW) -> int:
        return self.pause(queues.END, now=now)

    def control(self, what: Switch = "", for_ms: int = 0, reason: str = "", *, now: Now = NOW) -> Control:
        return self.run(queues.control(self.keys, what, for_ms=for_ms, reason=reason, now_ms=str(now)))

    def clear(self, *, limit: int = 500) -> int:
        return self.run(queues.clear(self.keys, "orders", limit=limit))

    def configure(self, lease_ms: int | None = None, *, shards: int | None = None) -> Configured:
        call = queues.configure(self.keys, "orders", default_lease_ms=LEASE, lease_ms=lease_ms, shards=shards)
        return self.run(call)

    def remove(self, *, look: bool = False) -> Holds:
        return self.run(queues.remove(self.keys, "orders", look=look))

    # --- the janitor and the relay

    def tidy(self, *, lease_ms: int = LEASE) -> Tidied:
        return self.run(upkeep.tidy(self.keys, "orders", lease_ms=lease_ms))

    def outside_acks(
        self, after: str = upkeep.FROM_START, marks: str = "", *, scope: Literal["delivered", "all"] = "delivered"
    ) -> OutsideAcks:
        return self.run(upkeep.outside_acks(self.keys, "orders", after=after, marks=marks, scope=scope))

    def mend(self, *ids: str, now: Now = NOW) -> list[str]:
        return self.run(upkeep.mend(self.keys, "orders", [id.encode() for id in ids], now_ms=str(now)))

    def bury(self, *entries: str, now: Now = NOW) -> list[str]:
        return self.run(upkeep.bury(self.keys, "orders", [(entry, FAILURE) for entry in entries], now_ms=str(now)))

    def prune(self, *, keep_failed_ms: int = 0, windows: Sequence[str] = (), now: Now = NOW) -> Pruned:
        names = [window.encode() for window in windows]
        call = upkeep.prune(self.keys, "orders", keep_failed_ms=keep_failed_ms, windows=names, now_ms=str(now))
        return self.run(call)

    def remove_consumer(self, consumer: str = OURS, *, idle_ms: int = 0) -> bool:
        return self.run(upkeep.remove_consumer(self.keys, "orders", consumer, idle_ms=idle_ms))

    def read_outbox(
        self, relay: str = "relay", *, after: str = upkeep.FROM_START, hold_ms: int = LEASE, now: Now = NOW
    ) -> Outbox:
        call = upkeep.read_outbox(self.keys, "orders", relay=relay, hold_ms=hold_ms, after=after, now_ms=str(now))
        return self.run(call)

    def ack_outbox(self, *entries: str) -> int:
        return self.run(upkeep.ack_outbox(self.keys, "orders", entries))

    def record_activity(self, *, now: Now = NOW) -> int:
        return self.run(upkeep.record_activity(self.keys, "orders", now_ms=str(now)))

    # --- several calls

    def put(self, id: str, state: State, *, lock: str = "") -> None:
        """Bring a job into a state. Nothing else may be due or ready."""
        if state == "scheduled":
            self.schedule(id, f"+{HOUR}", lock=lock)
        elif state != "absent":
            self.schedule(id, lock=lock)
        if state in ("reserved", "failed", "completed"):
            (job,) = self.read()
            if state == "failed":
                self.fail(job)
            elif state == "completed":
                self.ack(job, retention_ms=HOUR)

    def reserve(self, *ids: str, consumer: str = OURS, envelope: bytes = b"") -> list[Delivery]:
        """Schedule jobs and let a consumer read them. Nothing else may be due or ready."""
        self.schedule_all(*(new_job(id, envelope=envelope) for id in ids))
        found = self.read(consumer)
        assert [job.id for job in found] == [*ids]
        return found

    def held(self, id: str) -> DeliveryRef:
        return DeliveryRef("orders", id, str(self.server.hget(self.key("entries"), id)))

    def rest(self, *ids: str, idle_ms: int = LEASE) -> None:
        """Let so much time pass since the consumers of these jobs were last heard of."""
        entries = set(self.server.hmget(self.key("entries"), ids))
        held: dict[str, list[str]] = {}
        for entry, consumer in self.pending().items():
            if entry in entries:
                held.setdefault(consumer, []).append(entry)
        for consumer, its_own in held.items():
            self.server.xclaim(self.stream, GROUP, consumer, 0, its_own, idle=idle_ms, justid=True)

    def trust_leases(self, *, now: int = NOW) -> None:
        """Let the janitor have looked in time, so that reclaim holds nothing."""
        self.server.hset(self.key("meta"), "reclaim_tick", now)

    def failure_of(self, id: str) -> Failure:
        found = failures.decode(str(self.server.hget(self.key("errors"), id)).encode())
        assert found is not None
        return found


def _held(*jobs: Job) -> list[DeliveryRef]:
    return [DeliveryRef("orders", job.id, job.entry) for job in jobs]


def _as_text(reply: bytes) -> str:
    return reply.decode()


@cache
def _executor(url: str) -> Executor:
    return ServerExecutor(BlockingLeaf(Address(url)))


def new_job(id: str, when: str = "+0", *, lock: str = "", envelope: bytes = b"") -> NewJob:
    return NewJob(id, "name", "orders", envelope or envelope_of(id), when, True, lock)


def envelope_of(id: str, *, name: str = "name", extra: str = "") -> bytes:
    """Write an envelope as a producer of any language would; `extra` are more members, beginning with a comma."""
    text = f'{{"v":1,"id":"{id}","name":"{name}","queue":"orders","data":{{}},"attempts":0,"created_ms":0{extra}}}'
    return text.encode()


def large_envelope(size: int) -> bytes:
    """Write an envelope of so many bytes. No script decodes it."""
    return b'"' + b"x" * (size - 2) + b'"'
