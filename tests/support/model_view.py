"""What a queue looks like from outside: every key read in one step, with commands of the server alone.

The names of keys and fields are written out here a second time on purpose: they are the wire contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HASHES = ("jobs", "entries", "recoveries", "errors", "results", "unique", "locks", "cancel", "meta")
NEVER = 2**62
SETS = ("scheduled", "failed", "completed")
NOWHERE = "0-0"

# KEYS are not declared: this runs on a server of its own, never in a cluster.
SNAPSHOT = """
local base, hashes, sets, reply = ARGV[1], {HASHES}, {SETS}, {}
for _, name in ipairs(hashes) do reply[#reply + 1] = redis.call('HGETALL', base .. name) end
for _, name in ipairs(sets) do reply[#reply + 1] = redis.call('ZRANGE', base .. name, 0, -1, 'WITHSCORES') end
local stream = base .. 'stream'
local there = redis.call('EXISTS', stream) == 1
reply[#reply + 1] = there and redis.call('XRANGE', stream, '-', '+') or {}
local last, group = '', there and redis.call('XINFO', 'GROUPS', stream)[1]
for i = 1, group and #group or 0, 2 do if group[i] == 'last-delivered-id' then last = group[i + 1] end end
reply[#reply + 1] = { there and 1 or 0, last }
reply[#reply + 1] = group and redis.call('XPENDING', stream, 'delayq', '-', '+', 1000) or {}
local names = {}
for _, row in ipairs(group and redis.call('XINFO', 'CONSUMERS', stream, 'delayq') or {}) do
  for i = 1, #row, 2 do if row[i] == 'name' then names[#names + 1] = row[i + 1] end end
end
reply[#reply + 1] = names
return reply
""".replace("HASHES", ", ".join(f"'{name}'" for name in HASHES)).replace(
    "SETS", ", ".join(f"'{name}'" for name in SETS)
)


@dataclass(frozen=True, slots=True)
class View:
    """All of a queue. `last` is the group's last-delivered id, '' without a group; `pending` is entry to consumer."""

    jobs: Mapping[str, bytes]
    entries: Mapping[str, str]
    recoveries: Mapping[str, int]
    errors: Mapping[str, bytes]
    results: Mapping[str, bytes]
    unique: Mapping[str, str]
    locks: Mapping[str, str]
    cancel: Mapping[str, str]
    meta: Mapping[str, str]
    scheduled: Mapping[str, int]
    failed: Mapping[str, int]
    completed: Mapping[str, int]
    stream: Mapping[str, Mapping[str, bytes]]
    stream_exists: bool
    last: str
    pending: Mapping[str, str]
    consumers: frozenset[str]

    def id_in(self, entry: str) -> str:
        """The id a stream entry carries; '' for none."""
        fields = self.stream.get(entry, {})
        return fields["id"].decode("utf-8", "backslashreplace") if "id" in fields else ""

    def owned(self, entry: str) -> bool:
        """Whether an entry is the one that its job says it is in."""
        return self.entries.get(self.id_in(entry), "") == entry

    @property
    def strays(self) -> set[str]:
        """Entries in the stream that are no job's place."""
        return {entry for entry in self.stream if not self.owned(entry)}

    def places(self, job_id: str) -> int:
        return sum(job_id in place for place in (self.scheduled, self.entries, self.failed, self.completed))

    def sound(self, job_id: str) -> bool:
        """Whether nothing is wrong with one id: absent altogether, or in one place with all that belongs to it."""
        if job_id not in self.jobs:
            return self.places(job_id) == 0 and not self.side_rows(job_id)
        entry = self.entries.get(job_id)
        if entry is not None and (self.id_in(entry) != job_id or self.stream[entry].get("job") != self.jobs[job_id]):
            return False
        locked = job_id not in self.locks or self.unique.get(self.locks[job_id]) == job_id
        return self.places(job_id) == 1 and locked

    def side_rows(self, job_id: str) -> list[str]:
        """Hashes that hold a row for an id beside its envelope."""
        rows = {
            "recoveries": self.recoveries,
            "errors": self.errors,
            "results": self.results,
            "locks": self.locks,
            "cancel": self.cancel,
        }
        return [name for name, row in rows.items() if job_id in row]

    @property
    def ids(self) -> set[str]:
        """Every id that has a row anywhere."""
        rows: tuple[Mapping[str, object], ...] = (
            self.jobs, self.entries, self.recoveries, self.errors, self.results, self.locks, self.cancel,
            self.scheduled, self.failed, self.completed,
        )  # fmt: skip
        return {job_id for row in rows for job_id in row}


def before(left: str, right: str) -> bool:
    """Whether one entry id comes before another."""
    return order(left) < order(right)


def delivered(entry: str, last: str) -> bool:
    """Whether an entry lies at or below the group's last-delivered id; without a group everything does."""
    return not last or not before(last, entry)


def order(entry: str) -> tuple[int, int]:
    """By what entry ids are ordered."""
    ms, _, seq = entry.partition("-")
    return int(ms), int(seq)


def read_view(reply: list[Any]) -> View:
    hashes = [_pairs(row) for row in reply[: len(HASHES)]]
    jobs, entries, recoveries, errors, results, unique, locks, cancel, meta = hashes
    scheduled, failed, completed = (_pairs(row) for row in reply[len(HASHES) : len(HASHES) + len(SETS)])
    stream, (there, last), pending, names = reply[len(HASHES) + len(SETS) :]
    return View(
        jobs=jobs,
        entries=_texts(entries),
        recoveries={job_id: int(times) for job_id, times in recoveries.items()},
        errors=errors,
        results=results,
        unique=_texts(unique),
        locks=_texts(locks),
        cancel=_texts(cancel),
        meta=_texts(meta),
        scheduled=_scores(scheduled),
        failed=_scores(failed),
        completed=_scores(completed),
        stream={entry.decode(): _pairs(fields) for entry, fields in stream},
        stream_exists=there == 1,
        last=last.decode(),
        pending={row[0].decode(): row[1].decode() for row in pending},
        consumers=frozenset(name.decode() for name in names),
    )


def _pairs(flat: list[bytes]) -> dict[str, bytes]:
    names = (name.decode("utf-8", "backslashreplace") for name in flat[::2])
    return dict(zip(names, flat[1::2], strict=True))


def _texts(row: Mapping[str, bytes]) -> dict[str, str]:
    return {name: value.decode("utf-8", "backslashreplace") for name, value in row.items()}


def _scores(row: Mapping[str, bytes]) -> dict[str, int]:
    return {name: score(value) for name, value in row.items()}


def score(value: bytes) -> int:
    """A score as a number; an infinite one as one beyond all others."""
    return max(-NEVER, min(NEVER, int(float(value)) if b"inf" not in value else NEVER * (-1 if b"-" in value else 1)))
