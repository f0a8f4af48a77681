"""Rule 1 of the design, checked from outside: the two sums, and what else must be true of a queue at every instant.

Written against the wire contract, with plain commands in one round trip; no script and no call of delayq is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from delayq.redis.keys import Keys
from tests.support.snapshot import word

FEW = 1_000
SETS = ("scheduled", "failed", "completed")
HASHES = ("jobs", "recoveries", "errors", "results", "cancel", "progress")


@dataclass(frozen=True, slots=True)
class Queue:
    """What is in a queue, without the payloads."""

    length: int
    places: dict[str, set[str]]
    rows: dict[str, set[str]]
    entries: dict[str, str]
    locks: dict[str, str]
    unique: dict[str, str]

    @property
    def sums(self) -> dict[str, int]:
        """Both sums: what must be equal, side by side."""
        placed = len(self.entries) + sum(len(ids) for ids in self.places.values())
        return {
            "stream": self.length,
            "entries": len(self.entries),
            "placed": placed,
            "jobs": len(self.rows["jobs"]),
        }


def look(client: Any, keys: Keys) -> Queue:
    """Read a queue."""
    with client.pipeline(transaction=False) as pipe:
        pipe.xlen(keys.stream)
        for name in ("entries", "locks", "unique"):
            pipe.hgetall(keys.of(name))
        for name in SETS:
            pipe.zrange(keys.of(name), 0, -1)
        for name in HASHES:
            pipe.hkeys(keys.of(name))
        length, entries, locks, unique, *lists = pipe.execute()
    ids = [{word(member) for member in members} for members in lists]
    return Queue(
        length,
        dict(zip(SETS, ids[:3], strict=True)),
        dict(zip(HASHES, ids[3:], strict=True)),
        *({word(k): word(v) for k, v in rows.items()} for rows in (entries, locks, unique)),
    )


def broken(client: Any, keys: Keys) -> list[str]:
    """Everything that is wrong with a queue nobody damaged; [] when all is well."""
    queue = look(client, keys)
    sums, entries = queue.sums, queue.entries.keys()
    agree = sums["stream"] == sums["entries"] and sums["placed"] == sums["jobs"]
    found = [] if agree else [f"the sums differ: {sums}"]
    all_places = [*entries, *(job for ids in queue.places.values() for job in ids)]
    placed = set(all_places)
    if len(all_places) > len(placed):
        found += [f"{job} has two places" for job in placed if all_places.count(job) > 1]
    found += [f"{job} has a place and no payload" for job in placed - queue.rows["jobs"]]
    found += [f"{job} has a payload and no place" for job in queue.rows["jobs"] - placed]
    waits_or_runs = queue.places["scheduled"] | entries
    allowed = {
        "recoveries": waits_or_runs | queue.places["failed"],
        "errors": waits_or_runs | queue.places["failed"] | queue.places["completed"],
        "results": queue.places["completed"],
        "cancel": entries,
        "progress": entries,
    }
    for name, ids in allowed.items():
        found += [f"{job} has a row in {name}" for job in queue.rows[name] - ids]
    found += [f"{job} has a row in locks" for job in queue.locks.keys() - waits_or_runs]
    owners = {digest: job for digest, job in queue.unique.items() if " " not in job}  # a window is freed by time alone
    if owners != {digest: job for job, digest in queue.locks.items()}:
        found.append(f"unique and locks do not mirror each other: {queue.unique} and {queue.locks}")
    return found + _entry_trouble(client, keys, queue)


def _entry_trouble(client: Any, keys: Keys, queue: Queue) -> list[str]:
    """Every row of entries must lead to an entry that says whose it is. Looked at where they are few."""
    if not 0 < queue.length <= FEW:
        return []
    owners = {word(entry): word(fields.get(b"id", b"")) for entry, fields in client.xrange(keys.stream)}
    mine = {entry: job for job, entry in queue.entries.items()}
    return [] if mine == owners else [f"entries and stream disagree: {mine} and {owners}"]
