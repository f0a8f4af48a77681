"""Workers of any connection, each a program of its own, and what a test wants to know of them.

site = Site({"driver": "beanstalkd", "url": …}, tmp_path)
ids = site.schedule("good", 3, seconds=0.1)
with site.open() as shop: site.until_ended(ids)
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict
from delayq.drivers.broker import Broker
from delayq.drivers.failed_store import FailedJob
from delayq.drivers.serving.connection import BrokerConnection
from tests.support.served import IT, manager_of
from tests.support.supervision import Shop, living_with
from tests.support.waiting import wait_until

PATIENCE_S = 60.0


class Site:
    """One connection, one ledger that handlers write."""

    def __init__(self, connection: dict[str, Any], folder: Path) -> None:
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self._errors = folder / "stderr"
        self._given = {"failed": str(folder / "failed"), **connection}
        self._manager = manager_of(self._given)
        made = self._manager.connection(IT)
        assert isinstance(made, BrokerConnection)
        self.connection = made

    @property
    def broker(self) -> Broker:
        """The connection's."""
        return self.connection.broker

    def until_failed(self, job_id: str, timeout: float = PATIENCE_S) -> FailedJob:
        """Wait until a job is among the failed; what is kept of it."""
        make = self.connection.backend.failed
        assert make is not None
        store = make()
        try:
            return wait_until(lambda: store.get(job_id), timeout=timeout, what=f"{job_id} has failed")  # type: ignore[return-value]
        finally:
            store.close()

    def schedule(self, name: str, count: int = 1, *, queue: str = "default", **data: Any) -> list[str]:
        """Jobs that are due now; their ids."""
        specs = [JobSpec(name=name, data=data or None, queue=queue) for _ in range(count)]
        return [ref.id for ref in self.connection.schedule_many(specs, OnConflict.KEEP)]

    @contextmanager
    def open(self, **config: Any) -> Iterator[Shop]:
        """A worker; it is killed at the end of the block if it still runs."""
        program = [sys.executable, "-m", "tests.support.served", json.dumps({"connection": self._given, **config})]
        shop = Shop(program, {**os.environ, "LEDGER": str(self.ledger)}, self._errors)
        try:
            yield shop
        finally:
            shop.close()
            wait_until(lambda: not living_with(self.ledger), what="nobody is left behind")

    def times(self, word: str) -> Counter[str]:
        """How often each job has written that word."""
        lines = [line.split() for line in self.ledger.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return Counter(job for written, job, *_ in lines if written == word)

    def until(self, word: str, ids: Sequence[str], timeout: float = PATIENCE_S) -> None:
        """Wait until all of these have written that word."""
        wait_until(
            lambda: not set(ids) - set(self.times(word)), timeout=timeout, what=f"{len(ids)} jobs have written {word}"
        )

    def said(self) -> str:
        """What the workers logged."""
        return self._errors.read_text(errors="replace") if self._errors.exists() else ""

    def close(self) -> None:
        """Close the connections."""
        self._manager.close()
