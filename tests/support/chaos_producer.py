"""The producer of a chaos run: a plan made from a seed, and a log of what was asked for and what was answered.

The log has one line before each call (`ask`) and one after it: `ok` (Redis said yes), `fail` (it said no) or `unknown`
(the answer was lost). A producer that is killed in between leaves an `ask` alone, which is unknown too.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from delayq.core.errors import BackendError, NotConfirmed, OutcomeUnknown
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.support.crew import Duty

LARGEST_BATCH = 20
LONGEST_DELAY_MS = 1_500
KEPT = "1h"


@dataclass(frozen=True, slots=True)
class Planned:
    """One job: how long its handler works, how often it fails first, and its delay."""

    id: str
    ms: int
    fails: int
    delay_ms: int


def plan(seed: int, jobs: int, longest_ms: int, prefix: str = "j") -> list[Planned]:
    """The jobs of a run. Every tenth fails once or twice first."""
    rand = random.Random(seed)
    return [
        Planned(
            id=f"{prefix}{n}",
            ms=rand.randint(0, longest_ms),
            fails=rand.randint(1, 2) if rand.random() < 0.1 else 0,
            delay_ms=rand.randint(0, LONGEST_DELAY_MS),
        )
        for n in range(jobs)
    ]


class ProducerLog:
    """The file; any producer goes on where the last one was killed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "producer.txt"

    def write(self, lines: Sequence[str]) -> None:
        """Append, in one write."""
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, "".join(f"{line}\n" for line in lines).encode())
        os.close(file)

    def words(self) -> list[list[str]]:
        """All lines, as words."""
        return [line.split(" ") for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def asked(self) -> list[str]:
        """The ids asked for, in order."""
        return [words[1] for words in self.words() if words[0] == "ask"]

    def dues(self) -> dict[str, int]:
        """When each job that Redis said yes to is due."""
        return {words[1]: int(words[2]) for words in self.words() if words[0] == "ok"}

    def refused(self) -> set[str]:
        """The ids Redis said no to."""
        return {words[1] for words in self.words() if words[0] == "fail"}


def produce(duty: Duty) -> None:
    """Schedule the plan at an even pace: `duty.more` has seed, jobs, longest_ms and the seconds it shall take."""
    more = duty.more
    log, jobs = ProducerLog(duty.folder), plan(more["seed"], more["jobs"], more["longest_ms"], more.get("prefix", "j"))
    left = jobs[len(log.asked()) :]
    pace_s = more["seconds"] / len(jobs)
    with Client(Connector(duty.url), duty.options()) as client:
        rand = random.Random(more["seed"])
        while left:
            batch, left = left[: (size := rand.randint(1, LARGEST_BATCH))], left[size:]
            _schedule(client, duty.queues[0], batch, log)
            time.sleep(pace_s * len(batch))


def _schedule(client: Client, queue: str, batch: Sequence[Planned], log: ProducerLog) -> None:
    specs = [
        {
            "name": "shaky" if job.fails else "note",
            "data": {"ms": job.ms, "fails": job.fails} if job.fails else {"ms": job.ms},
            "id": job.id,
            "queue": queue,
            "delay": f"{job.delay_ms}ms",
            "retention": KEPT if job.fails else None,
        }
        for job in batch
    ]
    log.write([f"ask {job.id}" for job in batch])
    try:
        refs = client.schedule_many(specs)
    except (OutcomeUnknown, NotConfirmed):
        log.write([f"unknown {job.id}" for job in batch])
    except BackendError:
        log.write([f"fail {job.id}" for job in batch])
    else:
        log.write([f"ok {ref.id} {ref.due_ms}" for ref in refs])
