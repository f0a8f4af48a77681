"""The scripts, driven by hand: each call goes to a real server, and rule 1 is checked after every one.

    engine.run(call)            the answer; fails the test when the queue is not sound afterwards
    engine.changes(call)        the answer, and which keys changed
    engine.unchanged(call)      the answer; fails the test when any key changed

Time is virtual: the scripts are told `engine.now`, which only a test moves. Idle times in the group are the server's
own; `rest` sets them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.envelope import Envelope
from delayq.core.options import Options
from delayq.core.spec import Prepared
from delayq.core.states import Answer, OnConflict, State
from delayq.redis.calls import deliver, produce
from delayq.redis.calls.call import Call, Scope
from delayq.redis.calls.deliver import Held
from delayq.redis.keys import GROUP, Keys
from delayq.redis.send import send
from tests.support.rule_one import broken
from tests.support.snapshot import changed, snapshot, word

T = TypeVar("T")

START = 1_800_000_000_000
QUEUE = "orders"
OURS = "dq:host:7:a1"
PLAIN = "plain"
HOUR = 3_600_000


class Engine:
    """One queue on one server."""

    def __init__(self, client: Any, options: Options | None = None, queue: str = QUEUE) -> None:
        self.client = client
        self.options = options or Options()
        self.queue = queue
        self.now = START
        self.sound = True
        self._tokens = 0

    @property
    def keys(self) -> Keys:
        return Keys(self.options.prefix, self.queue)

    @property
    def scope(self) -> Scope:
        return Scope(self.options, self.queue, self.now)

    def with_options(self, **options: Any) -> Engine:
        """The same queue seen by a client with other options."""
        other = Engine(self.client, replace(self.options, **options), self.queue)
        other.now, other.sound = self.now, self.sound
        return other

    # -- calls -------------------------------------------------------------------------------------------------------

    def run(self, call: Call[T]) -> T:
        """Send a call; what must always be true is checked afterwards, unless the test damaged the queue."""
        answer = send(self.client, call)
        if self.sound:
            assert broken(self.client, self.keys) == [], f"after {call.script.name}"
        return answer

    def changes(self, call: Call[T]) -> tuple[T, set[str]]:
        """Send a call; also the keys that it changed, by their names in the contract."""
        before = snapshot(self.client)
        answer = self.run(call)
        head = self.keys.of("")
        return answer, {name.removeprefix(head) for name in changed(before, snapshot(self.client))}

    def unchanged(self, call: Call[T]) -> T:
        """Send a call that must change nothing at all."""
        answer, names = self.changes(call)
        assert names == set(), f"{call.script.name} changed {names}"
        return answer

    @contextmanager
    def damaged(self) -> Iterator[None]:
        """Inside, rule 1 is not expected to hold."""
        self.sound = False
        yield
        self.sound = True
        assert broken(self.client, self.keys) == []

    @contextmanager
    def full(self) -> Iterator[None]:
        """Inside, the server is at its memory limit."""
        self.client.config_set("maxmemory", "1")
        try:
            yield
        finally:
            self.client.config_set("maxmemory", "0")

    # -- looking -----------------------------------------------------------------------------------------------------

    def key_names(self) -> set[str]:
        """All keys there are, by their names in the contract; the short-lived `once` keys are left out."""
        head = self.keys.of("")
        names = {name.decode().removeprefix(head) for name in self.client.scan_iter(count=1000)}
        return {name for name in names if not name.startswith("once:")}

    def rows(self, name: str) -> dict[str, str]:
        """A hash."""
        return {word(field): word(value) for field, value in self.client.hgetall(self.keys.of(name)).items()}

    def scores(self, name: str) -> dict[str, int]:
        """A sorted set, in its order."""
        rows = self.client.zrange(self.keys.of(name), 0, -1, withscores=True)
        return {word(member): int(score) for member, score in rows}

    def entries(self) -> list[tuple[str, dict[str, str]]]:
        """The stream: entry ids with their fields."""
        rows = self.client.xrange(self.keys.stream)
        return [(word(entry), {word(k): word(v) for k, v in fields.items()}) for entry, fields in rows]

    def in_stream(self) -> list[str]:
        """The ids of the jobs in the stream, in order."""
        return [fields.get("id", "") for _, fields in self.entries()]

    def pending(self) -> dict[str, str]:
        """Entry ids that are pending, each with its consumer."""
        rows = self.client.xpending_range(self.keys.stream, GROUP, "-", "+", 10_000)
        return {word(row["message_id"]): word(row["consumer"]) for row in rows}

    def held(self, job_id: str) -> Held:
        """A job's delivery, as the entries hash has it."""
        return Held(job_id, self.rows("entries")[job_id])

    def last_delivered(self) -> str:
        """Of the group."""
        return word(self.client.xinfo_groups(self.keys.stream)[0]["last-delivered-id"])

    def state(self, job_id: str) -> State:
        """Where a job is, by the keys alone."""
        for state in (State.SCHEDULED, State.FAILED, State.COMPLETED):
            if job_id in self.scores(state.value):
                return state
        entry = self.rows("entries").get(job_id)
        if entry is None:
            return State.ABSENT
        return State.RESERVED if _parts(entry) <= _parts(self.last_delivered()) else State.READY

    # -- doing -------------------------------------------------------------------------------------------------------

    def job(self, job_id: str, when: str = f"+{HOUR}", *, digest: str = "", data: bytes = b"{}") -> Prepared:
        """A job as a producer sends it."""
        raw = envelope(job_id, self.queue, data=data, unique=digest or None)
        return Prepared(job_id, raw, when, digest, "order.close", self.queue, True)

    def schedule(
        self, jobs: Sequence[Prepared], on_conflict: OnConflict = OnConflict.KEEP, *, token: str = ""
    ) -> list[Answer]:
        """Schedule; each call has a token of its own unless one is given."""
        return [Answer(ref.outcome) for ref in self.run(self.scheduling(jobs, on_conflict, token=token)).refs]

    def scheduling(
        self, jobs: Sequence[Prepared], on_conflict: OnConflict = OnConflict.KEEP, *, token: str = ""
    ) -> Call[produce.Scheduled]:
        """The call that schedules."""
        self._tokens += 1
        return produce.schedule(self.scope, jobs, on_conflict, token or f"t{self._tokens}")

    def later(self, *ids: str, when: str = f"+{HOUR}") -> Call[produce.Scheduled]:
        """The call that schedules jobs for later, the short way."""
        call = produce.later(self.scope, [self.job(job_id, when) for job_id in ids], OnConflict.KEEP)
        assert call is not None, "the time is too near"
        return call

    def ready(self, *ids: str, digest: str = "", data: bytes = b"{}") -> None:
        """Jobs in the stream that nobody has read."""
        answers = self.schedule([self.job(job_id, "+0", digest=digest, data=data) for job_id in ids])
        assert answers == [Answer.CREATED] * len(ids)
        assert set(ids) <= set(self.in_stream())

    def read(self, consumer: str = OURS, count: int = 1_000) -> list[Held]:
        """Read as a consumer; what it was given. One of delayq's own says first that it is there."""
        if consumer.startswith("dq:"):
            self.run(deliver.renew(self.scope, consumer, []))
        reply = self.client.xreadgroup(GROUP, consumer, {self.keys.stream: ">"}, count=count)
        rows = _rows_of(reply)
        return [Held(word(fields.get(b"id", b"")), word(entry)) for entry, fields in rows]

    def reserved(self, *ids: str, consumer: str = OURS, digest: str = "", data: bytes = b"{}") -> list[Held]:
        """Jobs that a consumer holds. Nothing else may be waiting to be read."""
        self.ready(*ids, digest=digest, data=data)
        held = self.read(consumer)
        assert [delivery.id for delivery in held] == list(ids)
        return held

    def laden(self, job_id: str) -> Held:
        """A job that a consumer holds, with all that may lie beside: a lock, an error, a death, a wish to cancel."""
        (held,) = self.reserved(job_id, digest="d")
        self.run(deliver.release(self.scope, [deliver.Released(held, 0, b"", b"{}")]))
        self.run(deliver.promote(self.scope))
        (held,) = self.read()
        self.client.hset(self.keys.of("recoveries"), job_id, 1)
        self.run(produce.cancel(self.scope, job_id, running=True, token="t"))
        return held

    def ends_without_a_trace(self, settling: Call[list[bool]]) -> None:
        """The only job, a `laden` one, ends; nothing of it is left but the count."""
        settled, names = self.changes(settling)
        assert settled == [True]
        assert names == {"jobs", "entries", "stream", "errors", "recoveries", "cancel", "unique", "locks", "meta"}
        assert self.key_names() == {"stream", "meta"}
        assert (self.entries(), self.pending()) == ([], {})
        assert self.rows("meta")["acked_total"] == "1"

    def failed(self, *ids: str) -> None:
        """Jobs that were given up."""
        for held in self.reserved(*ids):
            assert self.run(deliver.fail(self.scope, [deliver.Failed(held, b"", b'{"type":"E","message":"m"}')])) == [
                True
            ]

    def completed(self, *ids: str, retention_ms: int = HOUR) -> None:
        """Jobs that are done and kept."""
        for held in self.reserved(*ids):
            assert self.run(deliver.ack(self.scope, [deliver.Acked(held, retention_ms, b'"ok"')])) == [True]

    def put(self, job_id: str, state: State) -> None:
        """A job in that state."""
        fill: dict[State, Callable[[], object]] = {
            State.ABSENT: lambda: None,
            State.SCHEDULED: lambda: self.schedule([self.job(job_id)]),
            State.READY: lambda: self.ready(job_id),
            State.RESERVED: lambda: self.reserved(job_id),
            State.FAILED: lambda: self.failed(job_id),
            State.COMPLETED: lambda: self.completed(job_id),
        }
        fill[state]()
        assert self.state(job_id) == state

    def rest(self, entries: Iterable[str], idle_ms: int) -> None:
        """Make these deliveries look as if nothing was heard of them for that long."""
        pending = self.pending()
        for entry in entries:
            self.client.xclaim(
                self.keys.stream, GROUP, pending[entry], 0, [entry], idle=idle_ms, retrycount=1, justid=True
            )

    def calm(self) -> None:
        """Let the janitor tick until it trusts leases again."""
        while self.run(deliver.reclaim(self.scope)).hold_ms > 0:
            self.now += self.options.lease_ms // 3


def envelope(job_id: str, queue: str = QUEUE, **members: Any) -> bytes:
    """An envelope's bytes."""
    known: dict[str, Any] = {"v": 1, "name": "order.close", "attempts": 0, "created_ms": START}
    data = msgspec.Raw(members.pop("data", b"{}"))
    return envelopes.encode(Envelope(**(known | members), id=job_id, queue=queue, data=data))


def _parts(entry: str) -> tuple[int, ...]:
    return tuple(int(part) for part in entry.split("-"))


def _rows_of(reply: Any) -> list[Any]:
    """RESP2 answers a list of streams, RESP3 a map of them."""
    streams = list(reply.values()) if isinstance(reply, dict) else [rows for _, rows in reply or []]
    return [row for rows in streams for row in (rows[0] if rows and isinstance(rows[0], list) else rows)]
