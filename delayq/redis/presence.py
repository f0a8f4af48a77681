"""What a worker says of itself, and the few things it reads beside its deliveries. Plain pipelines, each one trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from delayq.core.control import WorkerOrder
from delayq.core.durability import Durability, kept_durability
from delayq.core.shards import PLAIN, Layout, read_layout
from delayq.redis.called_off import holding, in_force
from delayq.redis.calls.call import text, whole
from delayq.redis.calls.operate import CONTROL_FIELDS, ORDER_KEPT_MS, read_order
from delayq.redis.direct import Words
from delayq.redis.faults import AGAIN, fault_of
from delayq.redis.keys import Globals, Keys
from delayq.redis.send import send_all

Time = tuple[int, int]


class Here(NamedTuple):
    """A worker's announcement: JSON about itself, good for `ttl_ms` from `now_ms` (server's time) on.

    `sweeps`: it also makes its queues known again, and takes workers off the list that are gone. `asks`: for the time.
    `obeys`: the worker whose order is in force and shall be kept; '' = none is.
    """

    name: str
    queues: Sequence[str]
    document: bytes
    now_ms: int
    ttl_ms: int
    sweeps: bool = True
    asks: bool = True
    obeys: str = ""


def announce(prefix: str, here: Here, client: Any) -> tuple[Time | None, Exception | None]:
    """Write the announcement; answers the server's time, if it was asked for, and what was refused, if anything.

    A full server refuses all of it and still tells the time.
    """
    names = Globals(prefix)
    pipe = client.pipeline(transaction=False)
    if here.asks:
        pipe.time()
    pipe.set(names.worker(here.name), here.document, px=here.ttl_ms)
    pipe.zadd(names.workers, {here.name: here.now_ms + here.ttl_ms})
    if here.obeys:
        pipe.pexpire(names.order(here.obeys), ORDER_KEPT_MS)
    if here.sweeps:
        pipe.zremrangebyscore(names.workers, "-inf", here.now_ms)
        pipe.sadd(names.queues, *here.queues)
    replies = pipe.execute(raise_on_error=False)
    time = replies.pop(0) if here.asks else None
    if isinstance(time, Exception):
        raise time
    refused = next((reply for reply in replies if isinstance(reply, Exception)), None)
    return None if time is None else (time[0], time[1]), refused


def leave(prefix: str, name: str, client: Any) -> None:
    """Take the announcement back."""
    names = Globals(prefix)
    pipe = client.pipeline(transaction=False)
    pipe.delete(names.worker(name))
    pipe.zrem(names.workers, name)
    pipe.execute()


def announced(prefix: str, client: Any) -> list[dict[str, Any]]:
    """The announcements of all workers that are here, by name."""
    names = Globals(prefix)
    workers = [text(name) for name in client.zrange(names.workers, 0, -1)]
    pipe = client.pipeline(transaction=False)
    for name in workers:
        pipe.get(names.worker(name))
    found: list[dict[str, Any]] = [msgspec.json.decode(document) for document in pipe.execute() if document]
    return sorted(found, key=lambda about: str(about.get("name")))


def server_time(client: Any) -> Time:
    """Redis TIME: seconds and microseconds."""
    seconds, micros = client.time()
    return seconds, micros


class Switch(NamedTuple):
    """Until when a queue is paused (epoch ms, 0 = until resumed, None = it is not), and how it is spread."""

    paused_ms: int | None
    layout: Layout


class Switches(NamedTuple):
    """What keeps a worker from fetching: for each queue, or shard of one, its switch, or the error met in asking; and
    the `CONTROL_FIELDS` of what holds for all workers, or the error.
    """

    marks: list[Switch | Exception]
    control: Any

    @property
    def calm(self) -> bool:
        """Whether nothing is paused, and no maintenance: then the same replies say the same at any time."""
        quiet = not isinstance(self.control, Exception) and not any(self.control[:2])
        return quiet and all(not isinstance(mark, Exception) and mark.paused_ms is None for mark in self.marks)


def switches(prefix: str, queues: Sequence[str], client: Any) -> Switches:
    """What keeps a worker from fetching, in one trip."""
    return read_switches(send_all(client, (), *switch_words(prefix, queues)))


def switch_words(prefix: str, queues: Sequence[str]) -> list[Words]:
    """The commands that ask for it, for who sends them with something else."""
    asked: list[Words] = [("HMGET", Keys(prefix, queue).meta, "paused_until_ms", "shards") for queue in queues]
    return [*asked, ("HMGET", Globals(prefix).control, *CONTROL_FIELDS)]


def read_switches(replies: Sequence[Any]) -> Switches:
    """Their replies, errors in the places of those that failed."""
    *marks, control = replies
    return Switches([mark if isinstance(mark, Exception) else _switch(*mark) for mark in marks], control)


def _switch(paused: bytes | None, layout: bytes | None) -> Switch:
    return Switch(whole(paused), PLAIN if layout in (None, b"1") else _layout(layout))


def _layout(value: object) -> Layout:
    return read_layout(text(value)) if isinstance(value, bytes) else PLAIN


class Frame(NamedTuple):
    """What `meta` of a shard says to whoever keeps what lies in it: its lease, and how its queue is spread.

    None: its server gave no answer; the layout also when the meta cannot be read. `words` are lease, layout and pause
    as they are written; None: no answer.
    """

    lease_ms: int | None
    layout: Layout | None
    words: object


def frames(prefix: str, shards: Sequence[str], default_ms: int, client: Any) -> list[Frame]:
    """The frames of these shards, in one trip. A lease is `default_ms` where there is none yet, or the meta cannot be
    read. Raises when no server answered."""
    pipe = client.pipeline(transaction=False)
    _ask_frames(pipe, prefix, shards)
    return [_frame(reply, default_ms) for reply in pipe.execute(raise_on_error=False)]


class Overlook(NamedTuple):
    """What a supervisor looks at now and then: the frames of its shards, the `CONTROL_FIELDS` of what holds for all
    workers as they are written (None: no answer), and the order its worker has (None: not asked, or no answer)."""

    frames: list[Frame]
    control: object
    order: WorkerOrder | None


def overlook(prefix: str, shards: Sequence[str], default_ms: int, worker: str, client: Any) -> Overlook:
    """All of it in one trip; the order of `worker`, '' = of none. Raises when no server answered."""
    pipe = client.pipeline(transaction=False)
    _ask_frames(pipe, prefix, shards)
    pipe.hmget(Globals(prefix).control, *CONTROL_FIELDS)
    if worker:
        pipe.get(Globals(prefix).order(worker))
    replies = pipe.execute(raise_on_error=False)
    order = replies.pop() if worker else None
    *replies, control = replies
    told = None if not worker or isinstance(order, Exception) else read_order(order)
    return Overlook([_frame(reply, default_ms) for reply in replies], _words(control), told)


def _ask_frames(pipe: Any, prefix: str, shards: Sequence[str]) -> None:
    for shard in shards:
        pipe.hmget(Keys(prefix, shard).meta, "lease_ms", "shards", "paused_until_ms")


def _frame(reply: Any, default_ms: int) -> Frame:
    if isinstance(reply, Exception):
        return Frame(None if fault_of(reply).kind in AGAIN else default_ms, None, _words(reply))
    lease, layout, _ = reply
    return Frame(whole(lease) or default_ms, _layout(layout), _words(reply))


def _words(reply: Any) -> object:
    """What can be compared with an earlier look."""
    if isinstance(reply, Exception):
        return None if fault_of(reply).kind in AGAIN else str(reply)
    return tuple(reply)


def shortest_lease_ms(prefix: str, shards: Sequence[str], default_ms: int, client: Any) -> int:
    """The shortest lease of the shards, as far as it can be told."""
    known = [frame.lease_ms for frame in frames(prefix, shards, default_ms, client) if frame.lease_ms is not None]
    return min(known, default=default_ms)


def durabilities(prefix: str, queues: Sequence[str], default: Durability, client: Any) -> dict[str, Durability]:
    """What is waited for on those queues where anything is: their own, else `default`."""
    pipe = client.pipeline(transaction=False)
    for queue in queues:
        pipe.hget(Keys(prefix, queue).meta, "durability")
    values = pipe.execute(raise_on_error=False)
    found = {
        queue: (kept_durability(value) if isinstance(value, bytes) else None) or default
        for queue, value in zip(queues, values, strict=True)
    }
    return {queue: wanted for queue, wanted in found.items() if wanted.waits}


class Record(NamedTuple):
    """What is on record of a job that is about to be settled: its last failure as JSON (b'' = none), and a wish."""

    failure: bytes = b""
    asked_to_stop: bool = False


class Asked(NamedTuple):
    """A job whose record is asked for, and the batch it is a member of."""

    queue: str
    id: str
    batch: str | None = None
    spared: int = 0


def records(prefix: str, jobs: Sequence[Asked], client: Any) -> list[Record]:
    """What is on record for each, in one trip. A batch that was cancelled wishes for its members what people may.

    A key that holds something else reads as empty here: settling itself then says what is wrong, queue by queue.
    """
    pipe = client.pipeline(transaction=False)
    for queue, job_id, batch, _ in jobs:
        keys = Keys(prefix, queue)
        pipe.hget(keys.of("errors"), job_id)
        pipe.hexists(keys.of("cancel"), job_id)
        if batch is not None:
            pipe.execute_command(*in_force(Keys(prefix, f"batch:{batch}")))
    replies, found = iter(pipe.execute(raise_on_error=False)), []
    for job in jobs:
        failure, stop = next(replies), next(replies) in (1, True)
        if job.batch is not None and isinstance(found_cancels := next(replies), list):
            stop = stop or holding(found_cancels, job.spared) is True
        found.append(Record(failure if isinstance(failure, bytes) else b"", stop))
    return found


def idle_consumers(stream: str, group: str, idle_ms: int, client: Any) -> list[str]:
    """Consumers that hold nothing and have been silent that long."""
    if not client.exists(stream):
        return []
    rows = client.xinfo_consumers(stream, group)
    return [text(row["name"]) for row in rows if row["pending"] == 0 and row["idle"] >= idle_ms]


def present(prefix: str, workers: Sequence[str], client: Any) -> frozenset[str]:
    """Which of these workers are announced."""
    pipe = client.pipeline(transaction=False)
    for name in workers:
        pipe.exists(Globals(prefix).worker(name))
    return frozenset(name for name, here in zip(workers, pipe.execute(), strict=True) if here)
