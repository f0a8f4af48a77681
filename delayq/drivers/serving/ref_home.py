"""What a `JobRef` asks on a broker's connection: the verbs of its desk, in the queue that has the job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from delayq.core.errors import InvalidInput
from delayq.core.states import Answer
from delayq.core.views import Delay, Instant, JobInfo, JobRef, Timeout
from delayq.drivers.capabilities import refuse_verb
from delayq.drivers.connection import Joins
from delayq.drivers.serving.connection import BrokerConnection
from delayq.drivers.serving.desk import BrokerDesk
from delayq.drivers.within import session_at_hand
from delayq.redis.ref_home import AskedAgain

T = TypeVar("T")


class BrokerHome(AskedAgain):
    """The desk of one connection, blocking; awaited calls use a thread. What the backend cannot do is refused."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection

    def cancel(self, ref: JobRef, running: bool) -> Answer:
        """Blocking."""
        return self._ask(ref, lambda desk: desk.cancel(ref.id, queue=ref.queue, running=running))

    async def acancel(self, ref: JobRef, running: bool) -> Answer:
        """Awaited."""
        return await asyncio.to_thread(self.cancel, ref, running)

    def reschedule(self, ref: JobRef, delay: Delay | None, at: Instant | None) -> JobRef:
        """Blocking."""
        return self._one(self._ask(ref, lambda desk: desk.reschedule(ref.id, queue=ref.queue, delay=delay, at=at)))

    async def areschedule(self, ref: JobRef, delay: Delay | None, at: Instant | None) -> JobRef:
        """Awaited."""
        return await asyncio.to_thread(self.reschedule, ref, delay, at)

    def run_now(self, ref: JobRef) -> JobRef:
        """Blocking."""
        return self._one(self._ask(ref, lambda desk: desk.run_now(ref.id, queue=ref.queue)))

    async def arun_now(self, ref: JobRef) -> JobRef:
        """Awaited."""
        return await asyncio.to_thread(self.run_now, ref)

    def get(self, ref: JobRef) -> JobInfo | None:
        """Blocking."""
        info = self._ask(ref, lambda desk: desk.get(ref.id, queue=ref.queue))
        if info is None:
            self._refuse("tell a running job from one that is done", self._connection.capabilities.wait)
        return info

    async def aget(self, ref: JobRef) -> JobInfo | None:
        """Awaited."""
        return await asyncio.to_thread(self.get, ref)

    def wait(self, ref: JobRef, timeout: Timeout) -> JobInfo | None:
        """Blocking."""
        self._refuse("tell when a job has ended", self._connection.capabilities.wait)
        return super().wait(ref, timeout)

    async def await_(self, ref: JobRef, timeout: Timeout) -> JobInfo | None:
        """Awaited."""
        self._refuse("tell when a job has ended", self._connection.capabilities.wait)
        return await super().await_(ref, timeout)

    def check_results(self) -> None:
        """Raises `InvalidInput` where the backend keeps no results."""
        self._refuse("keep the result of a job", self._connection.capabilities.retention)

    def _one(self, ref: JobRef) -> JobRef:
        ref.asked_at(self)
        return ref

    def _refuse(self, verb: str, able: bool) -> None:
        refuse_verb(verb, able, self._connection.name)

    def _ask(self, ref: JobRef, question: Callable[[BrokerDesk], T]) -> T:
        """Ask the desk. Raises `InvalidInput` inside a transaction that may hold the job: others do not see it yet."""
        session = session_at_hand()
        if session is not None and isinstance(self._connection, Joins) and self._connection.takes(session):
            raise InvalidInput(
                f"The job {ref.id!r} cannot be asked about inside a transaction of the database that keeps it.",
                hint="Ask after the commit.",
            )
        desk = BrokerDesk(self._connection)
        try:
            return question(desk)
        finally:
            desk.close_failed()
