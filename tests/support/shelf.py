"""The smallest broker there is: one JSON file under a lock. For tests of what serves brokers, and as an example.

    manager.extend("shelf", shelf.backend);  [connections.it] driver = "shelf", folder = "/some/where"

Any number of processes may use one shelf. A reservation is a time until which a row is nobody else's.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.errors import BackendUnavailable
from delayq.core.options import Options
from delayq.core.states import Answer, OnConflict
from delayq.core.views import JobRef
from delayq.drivers.base import Claim, Delivery
from delayq.drivers.broker import Act, Again, Depth, Item, Waiting, WaitingPage
from delayq.drivers.capabilities import Capabilities, Keeper
from delayq.drivers.failed_store import EVERYTHING, FailedJob, FailedPage, FailedQuery
from delayq.drivers.serving.backend import Backend
from delayq.drivers.serving.given import Given
from delayq.drivers.serving.polling import poll
from delayq.settings.tables import ConnectionSettings

CAPABILITIES: Final = Capabilities(
    delay=True,
    max_delay_ms=3_600_000,
    cancel=True,
    reschedule=True,
    run_now=True,
    inspect=True,
    counts=True,
    clear=True,
    chains=True,
    max_bytes=100_000,
    recoveries=True,
    keeper=Keeper.STEWARD,
    prefetch=8,
)
POLL_S: Final = 0.02
Row = dict[str, Any]


class Book:
    """The file. `open()` gives its rows, and writes them when the block ends well."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / name

    @contextmanager
    def open(self) -> Iterator[list[Row]]:
        """Its rows, alone."""
        try:
            with self._path.open("a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                text = file.read()
                rows: list[Row] = json.loads(text) if text else []
                yield rows
                file.seek(0)
                file.truncate()
                json.dump(rows, file)
        except FileNotFoundError as error:
            raise BackendUnavailable(f"There is no shelf at {self._path.parent}.", hint="Make the folder.") from error


class ShelfBroker:
    """A `Broker`. Rows are in the order they were pushed in."""

    def __init__(self, folder: Path, lease_s: float) -> None:
        self._book = Book(folder, "shelf.json")
        self._lease_s = lease_s

    def push(self, items: Sequence[Item], on_conflict: OnConflict) -> list[JobRef]:
        with self._book.open() as rows:
            rows += [_row(item) for item in items]
        return [item.created() for item in items]

    def ready(self, queues: Sequence[str]) -> None:
        with self._book.open():
            """It can be opened."""

    def reserve(self, queue: str, count: int) -> list[Delivery]:
        now_ms, found = self.now_ms(), list[Delivery]()
        with self._book.open() as rows:
            for row in rows:
                if len(found) < count and row["queue"] == queue and max(row["due_ms"], row["until_ms"]) <= now_ms:
                    vanished, row["times"] = row["times"], row["times"] + 1
                    row["until_ms"], row["made"] = now_ms + int(self._lease_s * 1000), row["made"] + 1
                    raw = row["envelope"].encode()
                    found.append(Delivery(queue, row["id"], _entry(row), raw, row["due_ms"], vanished))
        return found

    def wait(self, queues: Sequence[str], seconds: float) -> list[Delivery]:
        return poll(self.reserve, queues, seconds, POLL_S)

    def settle(self, acts: Sequence[Act]) -> list[bool]:
        return self._each([act.claim for act in acts], [self._ending(act) for act in acts])

    def give_back(self, claims: Sequence[Claim], *, vanished: bool) -> None:
        def back(rows: list[Row], row: Row) -> None:
            row["until_ms"], row["times"] = 0, row["times"] - (not vanished)
            row["made"] += 1

        self._each(claims, [back] * len(claims))

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        def anew(rows: list[Row], row: Row) -> None:
            row["until_ms"] = self.now_ms() + int(self._lease_s * 1000)

        return self._each(claims, [anew] * len(claims))

    def envelope(self, claim: Claim) -> bytes:
        with self._book.open() as rows:
            row = _held(rows, claim)
            return row["envelope"].encode() if row else b""

    def dump(self, envelope: bytes) -> bytes:
        return envelope

    def load(self, payload: bytes) -> bytes:
        envelopes.decode(payload)
        return payload

    def lease_s(self, queue: str) -> float:
        return self._lease_s

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def queues(self) -> list[str]:
        with self._book.open() as rows:
            return sorted({row["queue"] for row in rows})

    def depth(self, queue: str) -> Depth:
        now_ms = self.now_ms()
        with self._book.open() as rows:
            mine = [row for row in rows if row["queue"] == queue]
        reserved = [row for row in mine if row["until_ms"] > now_ms]
        delayed = [row for row in mine if row["due_ms"] > now_ms and row not in reserved]
        due = [row["due_ms"] for row in mine if row not in reserved and row not in delayed]
        return Depth(len(due), len(delayed), len(reserved), min(due, default=None))

    def page(self, queue: str, *, cursor: str, count: int) -> WaitingPage:
        now_ms = self.now_ms()
        with self._book.open() as rows:
            waiting = [row for row in rows if row["queue"] == queue and row["until_ms"] <= now_ms]
        start = int(cursor or 0)
        some = waiting[start : start + count]
        jobs = tuple(Waiting(row["id"], queue, _entry(row), row["envelope"].encode(), row["due_ms"]) for row in some)
        return WaitingPage(jobs, str(start + count) if start + count < len(waiting) else "")

    def remove(self, jobs: Sequence[Waiting]) -> list[bool]:
        def gone(rows: list[Row], row: Row) -> None:
            rows.remove(row)

        return self._each([Claim(job.queue, job.id, job.entry) for job in jobs], [gone] * len(jobs), waiting=True)

    def clear(self, queue: str) -> int:
        page = self.page(queue, cursor="", count=1_000_000)
        return sum(self.remove(page.jobs))

    def find(self, queue: str, job_id: str) -> Waiting | None:
        page = self.page(queue, cursor="", count=1_000_000)
        return next((job for job in page.jobs if job.id == job_id), None)

    def cancel(self, queue: str, job_id: str) -> Answer:
        job = self.find(queue, job_id)
        if job is None:
            return self._absent(queue, job_id)
        return Answer.CANCELLED if self.remove([job]) == [True] else Answer.RUNNING

    def reschedule(self, queue: str, job_id: str, due_ms: int) -> Answer:
        with self._book.open() as rows:
            for row in rows:
                if (row["queue"], row["id"]) == (queue, job_id) and row["until_ms"] <= self.now_ms():
                    row["due_ms"] = due_ms
                    return Answer.RESCHEDULED
        return self._absent(queue, job_id)

    def close(self) -> None:
        """Nothing stays open."""

    def _absent(self, queue: str, job_id: str) -> Answer:
        with self._book.open() as rows:
            there = any((row["queue"], row["id"]) == (queue, job_id) for row in rows)
        return Answer.RUNNING if there else Answer.UNKNOWN

    def _each(
        self, claims: Sequence[Claim], changes: Sequence[Callable[[list[Row], Row], None]], *, waiting: bool = False
    ) -> list[bool]:
        answers = []
        with self._book.open() as rows:
            for claim, change in zip(claims, changes, strict=True):
                row = _held(rows, claim)
                mine = row is not None and (row["until_ms"] > self.now_ms()) is not waiting
                if row is not None and mine:
                    change(rows, row)
                answers.append(mine)
        return answers

    def _ending(self, act: Act) -> Callable[[list[Row], Row], None]:
        def end(rows: list[Row], row: Row) -> None:
            if isinstance(act, Again):
                row["envelope"] = (act.envelope or row["envelope"].encode()).decode()
                row["due_ms"], row["until_ms"], row["times"] = self.now_ms() + act.delay_ms, 0, 0
                row["made"] += 1
            else:
                rows.remove(row)
                rows += [_row(item) for item in act.then]

        return end


class ShelfOfFailed:
    """A `FailedStore` in another file of the folder."""

    def __init__(self, folder: Path) -> None:
        self._book = Book(folder, "failed.json")

    def add(self, job: FailedJob) -> None:
        with self._book.open() as rows:
            rows[:] = [row for row in rows if row["id"] != job.id]
            rows.append(msgspec.to_builtins(job))

    def get(self, job_id: str) -> FailedJob | None:
        return next((job for job in self._all() if job.id == job_id), None)

    def page(self, query: FailedQuery = EVERYTHING, *, cursor: str = "", count: int = 100) -> FailedPage:
        found = [job for job in self._all() if query.has(job)]
        start = int(cursor or 0)
        return FailedPage(tuple(found[start : start + count]), str(start + count) if start + count < len(found) else "")

    def count(self, query: FailedQuery = EVERYTHING) -> int:
        return sum(query.has(job) for job in self._all())

    def forget(self, job_ids: Sequence[str]) -> int:
        return self._keep(lambda row: row["id"] not in job_ids)

    def prune(self, before_ms: int) -> int:
        return self._keep(lambda row: row["failed_ms"] >= before_ms)

    def close(self) -> None:
        """Nothing stays open."""

    def _all(self) -> list[FailedJob]:
        with self._book.open() as rows:
            return [msgspec.convert(row, FailedJob) for row in rows]

    def _keep(self, wanted: Callable[[Row], bool]) -> int:
        with self._book.open() as rows:
            before = len(rows)
            rows[:] = [row for row in rows if wanted(row)]
            return before - len(rows)


def backend(name: str, given: ConnectionSettings, options: Options) -> Backend:
    """What the settings say."""
    words = Given(name, given)
    folder, lease_ms = Path(words.text("folder")), words.duration_ms("lease", "30s", least="100ms")
    words.no_more()

    def make(*, answer_ms: int | None = None) -> ShelfBroker:
        return ShelfBroker(folder, lease_ms / 1000)

    return Backend(CAPABILITIES, make, f"the shelf at {folder}", lambda: ShelfOfFailed(folder))


def _row(item: Item) -> Row:
    row = {"id": item.id, "queue": item.queue, "envelope": item.envelope.decode(), "due_ms": item.due_ms}
    return {**row, "until_ms": 0, "times": 0, "made": 0}


def _entry(row: Row) -> str:
    return f"{row['made']}-{row['id'][-26:]}"


def _held(rows: Sequence[Row], claim: Claim) -> Row | None:
    return next((row for row in rows if row["id"] == claim.id and _entry(row) == claim.entry), None)
