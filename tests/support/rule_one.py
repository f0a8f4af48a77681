"""Rule 1 of the design, checked from outside: the two sums, and what else must be true of a queue at every instant.

Written against the wire contract, with plain commands; no script and no call of delayq is asked.
"""

from __future__ import annotations

from typing import Any

from delayq.redis.keys import Keys
from tests.support.snapshot import word


def sums(client: Any, keys: Keys) -> dict[str, int]:
    """Both sums: what must be equal, side by side."""
    of = keys.of
    placed = client.zcard(of("scheduled")) + client.hlen(of("entries"))
    placed += client.zcard(of("failed")) + client.zcard(of("completed"))
    return {
        "stream": client.xlen(of("stream")),
        "entries": client.hlen(of("entries")),
        "placed": placed,
        "jobs": client.hlen(of("jobs")),
    }


def sums_agree(client: Any, keys: Keys) -> bool:
    """Whether both hold."""
    found = sums(client, keys)
    return found["stream"] == found["entries"] and found["placed"] == found["jobs"]


def broken(client: Any, keys: Keys) -> list[str]:
    """Everything that is wrong with a queue nobody damaged; [] when all is well."""
    of = keys.of
    found = [] if sums_agree(client, keys) else [f"the sums differ: {sums(client, keys)}"]
    places = {name: _members(client, of(name)) for name in ("scheduled", "failed", "completed")}
    entries = _rows(client, of("entries"))
    all_places = [*places["scheduled"], *entries, *places["failed"], *places["completed"]]
    found += [f"{job} has two places" for job in set(all_places) if all_places.count(job) > 1]
    jobs = _names(client, of("jobs"))
    found += [f"{job} has a place and no payload" for job in set(all_places) - jobs]
    found += [f"{job} has a payload and no place" for job in jobs - set(all_places)]
    found += _entry_trouble(client, keys, entries)
    allowed = {
        "recoveries": places["scheduled"] | places["failed"] | entries.keys(),
        "errors": places["scheduled"] | places["failed"] | entries.keys(),
        "results": places["completed"],
        "cancel": set(entries),
        "locks": places["scheduled"] | entries.keys(),
    }
    for name, ids in allowed.items():
        found += [f"{job} has a row in {name}" for job in _names(client, of(name)) - ids]
    locks = _rows(client, of("locks"))
    unique = _rows(client, of("unique"))
    if unique != {digest: job for job, digest in locks.items()}:
        found.append(f"unique and locks do not mirror each other: {unique} and {locks}")
    return found


def _entry_trouble(client: Any, keys: Keys, entries: dict[str, str]) -> list[str]:
    """Every entry's row must lead to an entry that says whose it is. Asked one by one only where they are few."""
    stream = keys.stream
    if client.xlen(stream) > 1_000:
        return []
    owners = {word(entry): word(fields.get(b"id", b"")) for entry, fields in client.xrange(stream)}
    mine = {entry: job for job, entry in entries.items()}
    return [f"entries and stream disagree: {mine} and {owners}"] if mine != owners else []


def _members(client: Any, key: str) -> set[str]:
    return {word(member) for member in client.zrange(key, 0, -1)}


def _names(client: Any, key: str) -> set[str]:
    return {word(name) for name in client.hkeys(key)}


def _rows(client: Any, key: str) -> dict[str, str]:
    return {word(name): word(value) for name, value in client.hgetall(key).items()}
