"""The connection that runs each job in a process of its own, at once; nobody waits for it.

    [connections.aside]
    driver = "background"           "background" itself needs no settings
    app = "shop.jobs"               what the process imports; without it the module of the job
    failed = "/var/lib/shop/failed" see delayq.drivers.failed.choosing

The process is a new one of the same Python, not a copy of this one: it has none of its threads and locks. It has one
attempt, as in Laravel, and lives on when the one that sent the job ends. A job that fails is kept among the failed by
its own process; when that dies without a word, by the one that sent it, if it is still there. A process that is killed
together with the whole machine loses its job: nothing is stored before it runs.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core.errors import BackendUnavailable, DelayqError, WorkerVanished
from delayq.core.options import Options
from delayq.core.spec import Prepared
from delayq.core.views import Fate
from delayq.drivers.capabilities import Capabilities
from delayq.drivers.failed_store import FailedJob, FailedStore
from delayq.drivers.local import LocalConnection
from delayq.drivers.serving.backend import refuse_store

log = logging.getLogger("delayq.background")

CAPABILITIES: Final = Capabilities(serves=False, durable=False, chains=True)
PROGRAM: Final = "delayq.jobs.aside"
RECORDED: Final = 3
"""What the process ends with when its job failed and is kept among the failed."""


class Told(msgspec.Struct, frozen=True):
    """What the process is told, on its stdin: which module to import, the job, and where it is kept if it fails."""

    connection: str
    app: str
    failed: str
    envelope: str


@dataclass(frozen=True, slots=True)
class Aside:
    """How the processes of a connection are made. `module_of` tells the module of a job's handler by its name.

    `failed` is the option as it was written, `store` makes the store it means.
    """

    app: str
    module_of: Callable[[str], str]
    failed: str
    store: Callable[[], FailedStore]


class BackgroundConnection(LocalConnection):
    """Starts a process for each job. Before the first one it looks whether a failure could be kept."""

    can = CAPABILITIES

    def __init__(self, name: str, options: Options, aside: Aside) -> None:
        super().__init__(name, options)
        self._aside = aside
        self._looked = False

    def failed_store(self) -> FailedStore:
        """Where its failed jobs are."""
        return self._aside.store()

    def _take(self, job: Prepared) -> Fate:
        if not self._looked:
            refuse_store(self.name, self._aside.store)
            self._looked = True
        app = self._aside.app or self._aside.module_of(job.name)
        told = msgspec.json.encode(Told(self.name, app, self._aside.failed, job.envelope.decode()))
        try:
            with tempfile.TemporaryFile() as file:  # a pipe would have to be filled while the process starts
                file.write(told)
                file.seek(0)
                process = subprocess.Popen(
                    [sys.executable, "-m", PROGRAM], stdin=file, stdout=sys.__stderr__, start_new_session=True
                )
        except OSError as error:
            raise BackendUnavailable(f"No process could be started for the job: {error}.") from error
        threading.Thread(target=self._see_it_end, args=(process, job), name="delayq-aside", daemon=True).start()
        return Fate.BACKGROUND

    async def _atake(self, job: Prepared) -> Fate:
        return await asyncio.to_thread(self._take, job)

    def _see_it_end(self, process: subprocess.Popen[bytes], job: Prepared) -> None:
        """Leave no zombie, and keep the job of a process that could not say what became of it."""
        code = process.wait()
        if code in (0, RECORDED):
            return
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        error = WorkerVanished(f"Its process of its own ended {how}, without a word about the job.")
        log.error("job %s (%s): %s", job.id, job.name, error)
        try:
            keep_failed(self._aside.store(), self.name, job.envelope, error)
        except DelayqError as broken:
            log.error("job %s could not be kept among the failed: %s", job.id, broken)


def keep_failed(store: FailedStore, connection: str, envelope: bytes, error: BaseException) -> None:
    """Keep a job that failed in a process of its own. Raises as the store does."""
    job, now_ms = envelopes.decode(envelope), time.time_ns() // 1_000_000
    store.add(
        FailedJob(
            id=job.id,
            connection=connection,
            queue=job.queue,
            name=job.name,
            payload=envelope,
            failure=failures.describe(error, at_ms=now_ms, attempt=1),
            failed_ms=now_ms,
        )
    )
    store.close()
