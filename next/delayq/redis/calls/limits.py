"""Calls that take and free places and tokens of limits, and read limits."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delayq.core.limits import RateLimit
from delayq.redis.calls.call import Call, command, number, read, script_call, texts
from delayq.redis.keys import Keys
from delayq.redis.scripts import load

MAX_LISTED: Final = 1_000
"""Maximum number of keys that are read of one limit in one call."""


class Taken(msgspec.Struct, frozen=True, gc=False):
    """The answer to `acquire_place`.

    `expires_ms`: the end of the place, in epoch ms; None = no place is free. `held`: number of jobs that have a place;
    0 = not known.
    """

    expires_ms: int | None
    held: int = 0


def acquire_place(
    keys: Keys, name: str, *, limit: int, holder: str, key: str, expire_ms: int, now_ms: str = ""
) -> Call[Taken]:
    """Take a place of a concurrency limit for a job. `holder`: queue and id of the job, with a space in between.

    `key`: the key of the limit; '' = the limit has no keys. `expire_ms`: how long the place lasts if nobody frees it.
    If the call is sent again after a lost reply, the job still has one place.
    """
    roles = f"holders:{key}", "places", "counters"
    return script_call(
        load("place_acquire"),
        tuple(keys.of_limit(name, role) for role in roles),
        lambda reply: Taken(reply[1]) if reply[0] == 1 else Taken(None, reply[1]),
        repeatable=True,
        now=now_ms,
        limit=limit,
        holder=holder,
        key=key,
        expire_ms=expire_ms,
    )


def release_place(keys: Keys, name: str, *, holder: str, key: str, expires_ms: int) -> Call[bool]:
    """Free a place. `expires_ms`: the end of the place, as `acquire_place` returned it.

    The call returns False if a later attempt of the job has the place, or if the place has expired.
    """
    return script_call(
        load("place_release"),
        (keys.of_limit(name, f"holders:{key}"),),
        bool,
        repeatable=True,
        holder=holder,
        expires_ms=expires_ms,
    )


def acquire_rate(keys: Keys, name: str, rates: Sequence[RateLimit], *, key: str, now_ms: str = "") -> Call[bool]:
    """Take a token of each rate, or none. The call returns False if none was taken."""
    return script_call(
        load("rate_acquire"),
        (keys.of_limit(name, f"rates:{key}"), keys.of_limit(name, "counters")),
        bool,
        repeatable=False,
        rows=[(rate.most, rate.per_ms, rate.burst) for rate in rates],
        now=now_ms,
    )


def list_limit(keys: Keys, name: str) -> Call[int]:
    """Add a limit to the list of limits."""
    return command("SADD", keys.limits, name, parse=int)


def list_limits(keys: Keys) -> Call[list[str]]:
    """Read the names of all limits, sorted."""
    return read("SMEMBERS", keys.limits, parse=lambda names: sorted(texts(names)))


def is_listed(keys: Keys, name: str) -> Call[bool]:
    """Read whether a limit is on the list of limits."""
    return read("SISMEMBER", keys.limits, name, parse=bool)


def read_counters(keys: Keys, name: str) -> Call[list[int]]:
    """Read how many times a limit has granted, and how many times it has refused."""

    def parse(words: list[Any]) -> list[int]:
        return [number(word) or 0 for word in words]

    return read("HMGET", keys.of_limit(name, "counters"), "granted", "refused", parse=parse)


def keys_in_use(keys: Keys, name: str, *, after_ms: int) -> Call[list[str]]:
    """Read the keys of a limit that may have places which expire after `after_ms`, sorted by their last expiry.

    The key with the latest expiry comes first.
    """
    places = keys.of_limit(name, "places")
    words = ("+inf", f"({after_ms}", "LIMIT", 0, MAX_LISTED)
    return read("ZREVRANGEBYSCORE", places, *words, parse=texts)


def count_holders(keys: Keys, name: str, key: str, *, after_ms: int) -> Call[int]:
    """Count the places of one key that expire after a time."""
    return read("ZCOUNT", keys.of_limit(name, f"holders:{key}"), f"({after_ms}", "+inf", parse=int)


def read_holders(keys: Keys, name: str, key: str, *, after_ms: int) -> Call[list[str]]:
    """Read the holders of one key whose places expire after a time, each as `<queue> <job id>`."""
    holders = keys.of_limit(name, f"holders:{key}")
    return read("ZRANGEBYSCORE", holders, f"({after_ms}", "+inf", parse=texts)


def remove_holders(keys: Keys, name: str, key: str, holders: Sequence[str]) -> Call[int]:
    """Free the places of these holders, and return their number."""
    return command("ZREM", keys.of_limit(name, f"holders:{key}"), *holders, parse=int)
