"""The connection that runs a job at once, where it is dispatched: written to JSON, read back, run, decided.

As Laravel's: a delay is not waited for, there is one attempt whatever the tries, and the error of a job that fails is
raised where it was dispatched, after its `failed` hook. What asks to be tried again is not: the answer says
`released` or `snoozed`, and nobody else knows of it. The links of a chain run one after the other, until one fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from msgspec.structs import replace

from delayq.core import envelope as envelopes
from delayq.core.ending import ending
from delayq.core.errors import ConfigError
from delayq.core.followups import Open, Send
from delayq.core.options import Options
from delayq.core.outcome import GiveUp, Outcome, Release
from delayq.core.signals import Discard
from delayq.core.spec import Prepared
from delayq.core.views import Fate
from delayq.drivers.capabilities import ALSO_DATABASE, Capabilities
from delayq.drivers.local import LocalConnection

CAPABILITIES: Final = Capabilities(serves=False, durable=False, chains=True)


class Ran(NamedTuple):
    """One job run here: its outcome (None: it vetoed its own dispatch), what its handler returned, what it raised."""

    outcome: Outcome | None
    result: Any = None
    error: BaseException | None = None

    @property
    def fate(self) -> Fate:
        """The outcome in a word. Raises the error of a job that failed."""
        if self.outcome is None:
            return Fate.VETOED
        if isinstance(self.outcome, GiveUp):
            raise self.outcome.error
        if isinstance(self.outcome, Release):
            return Fate.SNOOZED if self.outcome.error is None else Fate.RELEASED
        return Fate.DISCARDED if isinstance(self.error, Discard) else Fate.DONE


class Runner(Protocol):
    """Runs an envelope in this process: handler, decision, `failed` hook. What the handler raises is in the answer."""

    def run(self, envelope: bytes) -> Ran:
        """In this thread."""

    async def arun(self, envelope: bytes) -> Ran:
        """In this event loop; a plain handler in a thread beside it."""


class SyncConnection(LocalConnection):
    """Runs each job with `runner`."""

    def __init__(self, name: str, options: Options, runner: Runner) -> None:
        super().__init__(name, options)
        self._runner = runner

    def _take(self, job: Prepared) -> Fate:
        return run_with_chain(self._runner, job.envelope)

    async def _atake(self, job: Prepared) -> Fate:
        ran = await self._runner.arun(job.envelope)
        for envelope in following(job.envelope, ran):
            await self._atake(replace(job, envelope=envelope))
        return ran.fate


Failed = Callable[[bytes, BaseException], None]


def run_with_chain(runner: Runner, envelope: bytes, failed: Failed | None = None) -> Fate:
    """Run a job and then what follows it. Raises the error of one that failed, unless `failed` is told of it."""
    ran = runner.run(envelope)
    for later in following(envelope, ran):
        run_with_chain(runner, later, failed)
    if failed is not None and isinstance(ran.outcome, GiveUp):
        failed(envelope, ran.outcome.error)
        return Fate.UNSENT
    return ran.fate


def following(raw: bytes, ran: Ran) -> list[bytes]:
    """The envelopes of what follows, which is run at once too: the next link of a chain, or who catches a failure."""
    if ran.outcome is None:
        return []
    envelope = envelopes.decode(raw)
    ended = ending(raw, envelope.id, envelope.queue, ran.outcome, time.time_ns() // 1_000_000)
    todo = ended.todo if ended else []
    if any(isinstance(item, Open) for item in todo):
        raise ConfigError(
            "A chain on a connection that runs jobs at once holds a batch, and it keeps no batches.",
            hint=ALSO_DATABASE,
        )
    return [bytes(item.envelope) for item in todo if isinstance(item, Send)]
