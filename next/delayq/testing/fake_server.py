"""Answers the calls of clients from memory: calls that send jobs, and calls that change or read recorded jobs."""

import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

import msgspec

from delayq.core import clock
from delayq.core.chain import BatchPlan, read_plan
from delayq.core.shards import queue_of
from delayq.redis.calls.call import Call
from delayq.redis.connection.executor import Executor, Started
from delayq.redis.keys import OF_BATCH
from delayq.redis.session import Session
from delayq.testing.fake_queue import FakeQueue
from delayq.testing.recorded import FakeJob

_PARTS: Final = {"BatchOperations": "batches.", "LimitOperations": "limits."}
"""The part of a client that has the methods of a class. Methods of all other classes are in the client itself."""

Space = tuple[str, str]
"""The server and the key prefix of a client. Clients with different spaces see different jobs."""


class StoredBatch(msgspec.Struct):
    """A batch, as Redis would store it. `members`: ids of members. `told`: duties that the client has fulfilled."""

    plan: BatchPlan
    raw: bytes
    created_ms: int
    members: dict[str, None] = {}
    told: set[bytes] = set()


class Arguments(msgspec.Struct, frozen=True):
    """The parts of a call.

    `of`: the text between the braces of the first key. `role`: the text after the braces. `named`: the arguments of a
    script by name. `rows`: the repeated arguments of a script, or the arguments of a command after its key.
    """

    space: Space
    of: str
    role: str
    named: dict[str, Any]
    rows: list[list[Any]]

    @property
    def queue(self) -> str:
        """The queue of the call."""
        return queue_of(self.of)


class FakeServer:
    """The memory of the fake: jobs and batches of all clients of this process. Threads may share it."""

    def __init__(self) -> None:
        self.jobs: list[FakeJob] = []
        self.batches: dict[tuple[Space, str], StoredBatch] = {}
        self._queues: dict[Space, dict[str, FakeQueue]] = {}
        self._lock = threading.RLock()
        self._scripts: Final[dict[str, Callable[[Arguments], Any]]] = {
            "schedule": self._schedule,
            "replace": self._replace,
            "cancel": self._cancel,
            "reschedule": self._reschedule,
            "run_now": self._run_now,
            "retry": self._retry,
            "forget": self._forget,
            "get": self._get,
            "batch_open": self._batch_open,
            "batch_note": self._batch_note,
        }
        self._commands: Final[dict[tuple[str, str], Callable[[Arguments], Any]]] = {
            ("SADD", "queues"): lambda _: 1,
            ("SMEMBERS", "queues"): lambda call: [name.encode() for name in self._queues.get(call.space, {})],
            ("HGET", "meta"): lambda _: None,
            ("HEXISTS", "jobs"): lambda call: int(self._queue(call).has(call.rows[0][0])),
            ("ZADD", "batches"): lambda _: 1,
            ("ZREMRANGEBYSCORE", "batches"): lambda _: 0,
            ("HEXISTS", "plan"): lambda _: 0,
            ("HMGET", "plan"): self._fields_of_batch,
            ("HLEN", "pending"): lambda call: len(self._members(call)),
            ("HLEN", "broken"): lambda _: 0,
            ("HLEN", "skipped"): lambda _: 0,
            ("SCARD", "succeeded"): lambda _: 0,
        }

    def answer(self, call: Call[Any], space: Space) -> Any:
        """Return the value of a call. Raises RuntimeError for a call that needs a server."""
        if call.words[0] == "TIME":
            return call.parse([b"%d" % (_now_ms() // 1000), b"%d" % (_now_ms() % 1000 * 1000)])
        arguments = _arguments(call, space)
        if call.script is not None:
            answer = self._scripts.get(call.script.name)
        else:
            answer = self._commands.get((str(call.words[0]), arguments.role))
        if answer is None or arguments.named.get("cancel") in (1, "1"):
            raise RuntimeError(
                f"delayq_fake records jobs and has no server, so it cannot answer the call "
                f"{(_method() or call.name)!r}: use the fixture delayq_travel for this test."
            )
        with self._lock:
            return call.parse(answer(arguments))

    def _queue(self, call: Arguments) -> FakeQueue:
        queues = self._queues.setdefault(call.space, {})
        if call.queue not in queues:
            queues[call.queue] = FakeQueue(call.queue, self.jobs)
        return queues[call.queue]

    def _schedule(self, call: Arguments) -> list[bytes]:
        taken = call.named["taken"]
        return _flat(self._queue(call).schedule(row, _now_ms(), taken) for row in call.rows)

    def _replace(self, call: Arguments) -> list[bytes]:
        word = call.named["word"]
        return _flat(self._queue(call).replace(row, _now_ms(), word) for row in call.rows)

    def _cancel(self, call: Arguments) -> list[bytes]:
        named = call.named
        return _bytes([self._queue(call).cancel(named["id"], _now_ms(), named["failure"])])

    def _reschedule(self, call: Arguments) -> list[bytes]:
        return _bytes(self._queue(call).reschedule(call.named["id"], call.named["when"], _now_ms()))

    def _run_now(self, call: Arguments) -> list[bytes]:
        return _bytes(self._queue(call).run_now(call.named["id"], _now_ms()))

    def _retry(self, call: Arguments) -> list[bytes]:
        named = call.named
        return _bytes(self._queue(call).retry(named["id"], named["envelope"], named["digest"], _now_ms()))

    def _forget(self, call: Arguments) -> list[bytes]:
        return _bytes(self._queue(call).forget(row[0]) for row in call.rows)

    def _get(self, call: Arguments) -> list[bytes]:
        job = self._queue(call).get(call.named["id"])
        if job is None:
            return [b"absent"]
        due = b"" if job.state == "failed" else b"%d" % job.due_ms
        at = b"%d" % _now_ms() if job.state == "failed" else b""
        return [job.state.encode(), due, at, job.raw, job.failure, b"", b"0", b"", b"", b"", b"", b""]

    def _batch_open(self, call: Arguments) -> list[bytes]:
        key = (call.space, call.of.removeprefix(OF_BATCH))
        raw = call.named["new_plan"]
        if key not in self.batches:
            if not raw:
                return [b"unknown", b"0", b"", *[b"0"] * len(call.rows)]
            self.batches[key] = StoredBatch(read_plan(raw), raw, _now_ms())
        members = self.batches[key].members
        members.update({row[0]: None for row in call.rows})
        return [b"opened", b"%d" % len(members), b"", *[b"1"] * len(call.rows)]

    def _batch_note(self, call: Arguments) -> list[Any]:
        batch = self.batches.get((call.space, call.of.removeprefix(OF_BATCH)))
        if batch is None:
            return [b"unknown"]
        batch.told.update(row[0].encode() for row in call.rows if row[1] == "told")
        due = [b"before"] if batch.plan.before and b"before" not in batch.told else []
        return [b"running", batch.raw, due, [1] * len(call.rows), b""]

    def _fields_of_batch(self, call: Arguments) -> list[bytes | None]:
        batch = self.batches.get((call.space, call.of.removeprefix(OF_BATCH)))
        if batch is None:
            return [None] * 6
        allow = b"1" if batch.plan.allow_failures else b"0"
        return [b"%d" % batch.created_ms, b"%d" % len(batch.members), allow, None, None, batch.raw]

    def _members(self, call: Arguments) -> dict[str, None]:
        batch = self.batches.get((call.space, call.of.removeprefix(OF_BATCH)))
        return {} if batch is None else batch.members


class FakeExecutor(Executor):
    """The executor of one client. It passes the calls to the FakeServer."""

    def __init__(self, server: FakeServer, session: Session) -> None:
        self._server = server
        self._session = session
        self._space = (session.executor.where, session.keys.prefix)

    @property
    def where(self) -> str:
        """The address of the server that the client would use."""
        return self._space[0]

    async def run_all(self, calls: Sequence[Call[Any]], *, block: float = 0.0) -> list[Any]:
        """Answer calls from memory."""
        return [self._server.answer(call, self._space) for call in calls]

    async def start(self, calls: Sequence[Call[Any]]) -> Started[Any]:
        """Keep calls until `finish`."""
        return Started(calls, None)

    async def finish(self, started: Started[Any], *, block: float = 0.0) -> list[Any]:
        """Answer started calls."""
        return await self.run_all(started.calls)

    async def servers(self) -> Sequence[Executor]:
        """Return this executor."""
        return [self]

    async def sleep(self, seconds: float) -> None:
        """Raise RuntimeError, because no job ends while a client waits."""
        raise RuntimeError(
            "delayq_fake records jobs and runs none, so it cannot wait for the end of a job: use the fixture "
            "delayq_travel for this test."
        )

    async def close(self) -> None:
        """Do nothing, because no connection is open."""


def _method() -> str:
    """Return the name of the client method that this thread calls, such as `limits.free`, or '' if none is found."""
    frame: FrameType | None = sys._getframe(1)
    found = ""
    while frame is not None and (module := frame.f_globals.get("__name__", "")).startswith("delayq."):
        name, class_name = frame.f_code.co_name, frame.f_code.co_qualname.partition(".")[0]
        if module.startswith("delayq.redis.operations.") and not name.startswith(("_", "<")):
            found = _PARTS.get(class_name, "") + name
        frame = frame.f_back
    return found


def _arguments(call: Call[Any], space: Space) -> Arguments:
    """Split the words of a call into their parts."""
    prefix = space[1]
    if call.script is None:
        key = str(call.words[1]) if len(call.words) > 1 else ""
        of, role = _parts(key, prefix)
        return Arguments(space, of, role, {}, [list(call.words[2:])])
    count = int(call.words[2])
    of, role = _parts(str(call.words[3]) if count else "", prefix)
    values = call.words[3 + count :]
    names, width = call.script.arguments, len(call.script.row)
    rest = list(values[len(names) :])
    rows = [rest[start : start + width] for start in range(0, len(rest), width)] if width else []
    return Arguments(space, of, role, dict(zip(names, values, strict=False)), rows)


def _parts(key: str, prefix: str) -> tuple[str, str]:
    """Return the text between the braces of a key, or '', and the role of the key."""
    rest = key.removeprefix(f"{prefix}:")
    of, brace, role = rest.removeprefix("{").rpartition("}:")
    return (of, role) if brace else ("", rest)


def _flat(answers: Any) -> list[bytes]:
    """Return the reply of `schedule` or `replace`. Its first word, 0, means that the queue was not new."""
    return [b"0", *_bytes(word for answer in answers for word in answer)]


def _bytes(words: Any) -> list[bytes]:
    return [str(word).encode() for word in words]


def _now_ms() -> int:
    return int(clock.time() * 1000)
