"""What a worker and a producer ask of a queue that Laravel keeps in Redis. Pure calls, as everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from delayq.redis.calls.call import Argument, Call, Command, Nature, text
from delayq.redis.laravel_keys import LaravelKeys, pattern, queue_of
from delayq.redis.scripts import load
from delayq.redis.server_time import epoch_ms

T = TypeVar("T")

PAGE: Final = 500
MAX_BYTES: Final = 1_000_000
SCANNED: Final = 1_000
SERVER: Final = ""
"""The server's clock counts."""


class Pushed(NamedTuple):
    """One payload to put into a queue, now or in `delay_ms`."""

    delay_ms: int
    payload: bytes


class Released(NamedTuple):
    """A reservation to come again in `delay_ms`, with `attempts` made. b'' as `payload`: as it was reserved."""

    token: str
    delay_ms: int
    attempts: int
    payload: bytes


class Shown(NamedTuple):
    """A waiting payload, in the `list` or `delayed`."""

    role: str
    payload: bytes


class SetAside(NamedTuple):
    """A payload that was set aside: its lot, its number there, when it is due (None = at once)."""

    lot: str
    number: int
    due_ms: int | None
    payload: bytes

    @property
    def field(self) -> str:
        """Its place in the hash."""
        return f"{self.lot} {self.number}"


class Reserved(NamedTuple):
    """What a look brought: the server's time, when to look again (None = nothing waits), token and payload of each."""

    now_ms: int
    next_ms: int | None
    jobs: tuple[tuple[str, bytes], ...]


def push(keys: LaravelKeys, jobs: Sequence[Pushed]) -> Call[int]:
    """Put in; the epoch in ms by which times were counted. Never sent twice."""
    args: list[Argument] = [SERVER]
    for delay_ms, payload in jobs:
        args += (delay_ms, payload)
    return _call("push", keys, args, int, Nature.ONCE)


def reserve(keys: LaravelKeys, *, lease_ms: int, count: int, seed: str, heard: int = 0) -> Call[Reserved]:
    """Let in what is due, and reserve up to `count`."""
    return _call("reserve", keys, [SERVER, lease_ms, count, seed, heard], _reserved)


def forget(keys: LaravelKeys, tokens: Sequence[str]) -> Call[list[bool]]:
    """They are done; True for each that was still ours. Sent twice, the second answer would say that none was."""
    return _call("forget", keys, list(tokens), _truths, Nature.ONCE)


def release(keys: LaravelKeys, jobs: Sequence[Released]) -> Call[list[bool]]:
    """They come again. As `forget`."""
    args: list[Argument] = [SERVER]
    for job in jobs:
        args += job
    return _call("release", keys, args, _truths, Nature.ONCE)


def give_back(keys: LaravelKeys, tokens: Sequence[str], *, counted: bool) -> Call[list[bool]]:
    """They are ready at once; those that are not ours any more are left alone, also when this is sent twice."""
    return _call("give_back", keys, [int(counted), *tokens], _truths)


def renew(keys: LaravelKeys, tokens: Sequence[str], *, lease_ms: int) -> Call[list[bool]]:
    """Their leases start anew; True for each that is ours."""
    return _call("renew", keys, [SERVER, lease_ms, *tokens], _truths)


def remove(keys: LaravelKeys, jobs: Sequence[Shown]) -> Call[list[bool]]:
    """Take waiting payloads out; True for each that was there."""
    args: list[Argument] = []
    for role, payload in jobs:
        args += (role, payload)
    return _call("remove", keys, args, _truths, Nature.ONCE)


def clear(keys: LaravelKeys) -> Call[int]:
    """Take everything out that waits; how many."""
    return _call("clear", keys, [], int, Nature.ONCE)


def set_aside(keys: LaravelKeys, lot: str, jobs: Sequence[Shown]) -> Call[int]:
    """Take waiting payloads out for a migration; how many were still there. After a lost reply the lot tells."""
    args: list[Argument] = [lot]
    for role, payload in jobs:
        args += (role, payload)
    return _call("set_aside", keys, args, int, Nature.ONCE)


def put_back(keys: LaravelKeys, fields: Sequence[str]) -> Call[int]:
    """They wait again; how many."""
    return _call("put_back", keys, list(fields), int)


def aside(keys: LaravelKeys) -> Command[list[SetAside]]:
    """All that was set aside, lot by lot in its order: never more than a few lots."""
    return Command(("HGETALL", keys.of("aside")), _aside, reads=True)


def drop(keys: LaravelKeys, fields: Sequence[str]) -> Command[int]:
    """Forget these of what was set aside."""
    return Command(("HDEL", keys.of("aside"), *fields), int)


def held(keys: LaravelKeys, token: str) -> Command[bytes]:
    """The payload of a reservation; b'' when it is gone."""
    return Command(("HGET", keys.of("held"), token), _held, reads=True)


def split(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """What one call may carry at a time."""
    batch: list[T] = []
    bytes_ = 0
    for item in items:
        more = size(item)
        if batch and (len(batch) == PAGE or bytes_ + more > MAX_BYTES):
            yield batch
            batch, bytes_ = [], 0
        batch.append(item)
        bytes_ += more
    if batch:
        yield batch


def _call(
    name: str,
    keys: LaravelKeys,
    args: Sequence[Argument],
    parse: Callable[[Any], T],
    nature: Nature = Nature.SAFE,
) -> Call[T]:
    script = load(f"laravel/{name}")
    return Call(script, tuple(keys.of(role) for role in script.keys), tuple(args), parse, nature, keys.queue)


def _truths(reply: Sequence[int]) -> list[bool]:
    return [answer == 1 for answer in reply]


def _reserved(reply: Sequence[bytes]) -> Reserved:
    jobs = tuple((text(token), payload) for token, payload in zip(reply[2::2], reply[3::2], strict=True))
    return Reserved(int(reply[0]), int(reply[1]) if reply[1] else None, jobs)


def _aside(reply: Any) -> list[SetAside]:
    """Fields come as a map or flat."""
    rows = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
    found = []
    for field, row in rows:
        lot, _, number = text(field).partition(" ")
        due, _, payload = bytes(row).partition(b" ")
        found.append(SetAside(lot, int(number), int(float(due) * 1000) if due else None, payload))
    return sorted(found)


def _held(row: bytes | None) -> bytes:
    return b"" if row is None else row.split(b" ", 2)[2]


# -- looking ---------------------------------------------------------------------------------------------------------


def server_time() -> Command[int]:
    """The server's clock, epoch ms."""
    return Command(("TIME",), epoch_ms, reads=True)


def length(keys: LaravelKeys, role: str) -> Command[int]:
    """How many there are."""
    return Command(("LLEN" if role == "list" else "ZCARD", keys.of(role)), int, reads=True)


def ready(keys: LaravelKeys, first: int, count: int) -> Command[list[bytes]]:
    """Payloads of the list, from that place on."""
    return Command(("LRANGE", keys.of("list"), first, first + count - 1), list, reads=True)


def delayed(keys: LaravelKeys, since: str, skip: int, count: int) -> Command[list[tuple[bytes, float]]]:
    """Payloads and their due times in seconds, from a time on; `skip` of that very time were seen already."""
    words = ("ZRANGEBYSCORE", keys.of("delayed"), since, "+inf", "WITHSCORES", "LIMIT", skip, count)
    return Command(words, _scored, reads=True)


def scan(prefix: str, cursor: int) -> Command[tuple[int, list[str]]]:
    """Names of queues, some at a time; 0 as the next cursor ends it. The same name may come more than once."""
    words = ("SCAN", cursor, "MATCH", pattern(prefix), "COUNT", SCANNED)
    return Command(words, lambda reply: (int(reply[0]), [queue_of(prefix, text(key)) for key in reply[1]]), reads=True)


def _scored(reply: Sequence[Any]) -> list[tuple[bytes, float]]:
    """Pairs, flat or nested: versions of the protocol differ."""
    if reply and not isinstance(reply[0], bytes):
        return [(payload, float(score)) for payload, score in reply]
    return [(payload, float(score)) for payload, score in zip(reply[::2], reply[1::2], strict=True)]
