"""The virtual clock: a test says how much time passes, and what falls due on the way runs, in its order.

    def test_an_unpaid_order_is_closed(delayq_travel):
        CloseOrder(order_id=42).dispatch(delay="15m")
        assert delayq_travel("14m") == []
        [attempt] = delayq_travel("1m")
        assert attempt.ended == "done"

Nothing of delayq is imitated: the same scripts run on a real server that is the test's own, and are told the time by
the test. Jobs run in the test's process, through the code that a sync connection uses, and are settled as a worker
settles. What the test does not travel does not pass; `datetime.now()` and `time.time()` know nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from delayq.app import fallback_policy
from delayq.core import envelope as envelopes
from delayq.core.durations import duration_ms
from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope, InvalidInput, UnknownJob
from delayq.core.options import Options
from delayq.core.outcome import GiveUp, decide, policy_of
from delayq.core.spec import Instant, Prepared
from delayq.core.states import OnConflict
from delayq.core.when import format_instant, instant_ms
from delayq.drivers.base import Delivery
from delayq.drivers.connection import Connection
from delayq.drivers.sync import Ran
from delayq.jobs.current import current_manager
from delayq.jobs.registry import current
from delayq.jobs.running import LocalRunner, Rules, wall_ms
from delayq.manager import Manager, interposed
from delayq.redis.aio import AsyncClient
from delayq.redis.connect import Connector
from delayq.redis.interception import intercepting
from delayq.settings.tables import ConnectionSettings
from delayq.testing.attempted import Attempted, word_of
from delayq.testing.attempts import blocking, middle
from delayq.testing.journey import Backend, Journeys, Running, VirtualClock
from delayq.testing.limits import TravelLimits
from delayq.testing.private_server import empty, private_server
from delayq.testing.travel_connection import TravelConnection

LOCAL_DRIVERS: Final = ("sync", "null")
"""Connections that store nothing stay what they are; all others lead to the private server."""


class Travel:
    """The test's time. Call it with a duration to let that much pass; see `travelling` for how to get one."""

    def __init__(self, server: Connector, manager: Manager) -> None:
        self.attempts: list[Attempted] = []
        """Everything that ran so far."""
        self._server = server
        self._options = replace(manager.settings.options(), travels=False)
        self._clock = VirtualClock(wall_ms())
        self._fallback = fallback_policy(manager.settings)
        self._limits = TravelLimits(server, self._options, self._clock)
        self._runner = LocalRunner(current_manager, Rules(self._fallback, self._clock, middle, self._limits))
        self._backends: dict[str, Backend] = {}
        self._journeys = Journeys(self._clock, self._backends)
        self.client = self._backend(self._options).client
        self.aclient = AsyncClient(server, self._options, self._clock)
        """As `client`, awaited."""

    def __repr__(self) -> str:
        return f"<travel: it is {format_instant(self.now_ms)}>"

    @property
    def now_ms(self) -> int:
        """The test's time, epoch ms. It begins with the real one."""
        return self._clock.now_ms

    @property
    def now(self) -> datetime:
        """The test's time, in UTC."""
        return datetime.fromtimestamp(self.now_ms / 1000, UTC)

    @property
    def url(self) -> str:
        """The private server's, for a process of its own. Such a process has the real time."""
        return self._server.endpoint.url

    def __call__(self, span: str | timedelta) -> list[Attempted]:
        """Let `span` ('15m') pass and run what falls due in it, the last instant included; what ran, in order.

        "0s" runs what is due by now. A job that fails does not raise here: it is released, or fails, as it would on a
        worker. Raises `InvalidInput` for an async handler inside an event loop.
        """
        return self._until(self.now_ms + duration_ms(span))

    def to(self, instant: Instant) -> list[Attempted]:
        """As calling it, until a point in time. Raises `InvalidInput` for one that has passed."""
        return self._until(self._ahead(instant))

    async def atravel(self, span: str | timedelta) -> list[Attempted]:
        """As calling it, awaited: async handlers run in this event loop, plain ones in threads beside it."""
        return await self._auntil(self.now_ms + duration_ms(span))

    async def ato(self, instant: Instant) -> list[Attempted]:
        """As `to`, awaited."""
        return await self._auntil(self._ahead(instant))

    def close(self) -> None:
        """Leave all groups."""
        for backend in self._backends.values():
            backend.close()

    def between(
        self, name: str, given: ConnectionSettings, options: Options, real: Callable[[], Connection]
    ) -> Connection:
        """A connection to the private server, for a manager's `interposed`."""
        if given.driver in LOCAL_DRIVERS:
            return real()
        options = replace(options, travels=False)
        self._backend(options)
        return TravelConnection(name, self._server, options, self._clock)

    # -- for clients that no manager made: see `delayq.redis.interception` ---------------------------------------------

    def owns(self, asked: Connector) -> bool:
        """Whether `asked` leads to the private server."""
        return asked.endpoint == self._server.endpoint

    def instead(self, asked: Connector) -> Connector:
        """The private server, whichever Redis was asked for."""
        return self._server

    def take(self, job: Prepared, on_conflict: OnConflict, options: Options) -> None:
        """Nothing: it is sent to the private server. Its prefix may be one that no manager uses."""
        self._backend(replace(options, travels=False))

    def clock_ms(self) -> int:
        """The test's time."""
        return self.now_ms

    # -- on the way --------------------------------------------------------------------------------------------------

    def _until(self, target_ms: int) -> list[Attempted]:
        first = len(self.attempts)
        with closing(self._journeys.until(target_ms)) as running:
            delivery = next(running, None)
            while delivery is not None:
                with blocking("Use await delayq_travel.atravel(…)."):
                    ran = self._unrunnable(delivery) or self._runner.run(delivery.raw, delivery)
                delivery = self._noted(delivery, ran, running)
        return self.attempts[first:]

    async def _auntil(self, target_ms: int) -> list[Attempted]:
        first = len(self.attempts)
        with closing(self._journeys.until(target_ms)) as running:
            delivery = next(running, None)
            while delivery is not None:
                ran = self._unrunnable(delivery) or await self._runner.arun(delivery.raw, delivery)
                delivery = self._noted(delivery, ran, running)
        return self.attempts[first:]

    def _noted(self, delivery: Delivery, ran: Ran, running: Running) -> Delivery | None:
        """Write it down, settle it, and go on to the next delivery; None at the end of the journey."""
        assert ran.outcome is not None, "a delivery cannot veto itself"
        known = _read(delivery)
        self.attempts.append(
            Attempted(
                id=delivery.id,
                name=known.name if known else "",
                queue=delivery.queue,
                attempt=known.attempts + 1 if known else 1,
                due_ms=delivery.due_ms,
                at_ms=self.now_ms,
                ended=word_of(ran),
                outcome=ran.outcome,
                result=ran.result,
                error=ran.error,
            )
        )
        try:
            return running.send(ran)
        except StopIteration:
            return None

    def _unrunnable(self, delivery: Delivery) -> Ran | None:
        """What becomes of a delivery that nobody here can run, as on a worker; None for any other."""
        try:
            envelope = envelopes.decode(delivery.raw)
        except BadEnvelope as error:
            return Ran(GiveUp(0, 0, error), None, error)
        try:
            current().get(envelope.name)
        except UnknownJob as error:
            policy = policy_of(envelope, self._fallback)
            return Ran(decide(envelope, policy, error, self.now_ms, middle), None, error)
        return None

    def _ahead(self, instant: Instant) -> int:
        target_ms = instant_ms(instant, now_ms=self.now_ms)
        if target_ms < self.now_ms:
            raise InvalidInput(f"{format_instant(target_ms)} has passed; it is {format_instant(self.now_ms)} here.")
        return target_ms

    def _backend(self, options: Options) -> Backend:
        if options.prefix not in self._backends:
            self._backends[options.prefix] = Backend(self._server, options, self._clock)
        return self._backends[options.prefix]


@contextmanager
def travelling(server: Connector | None = None, *, manager: Manager | None = None) -> Iterator[Travel]:
    """A virtual clock for as long as the block lasts, on a private server that is empty before and after.

    Everything that this process sends goes to that server inside the block, whichever Redis it is meant for: what
    managers, `DelayQ` and `AsyncDelayQ` send, those made before the block included. Sync and null connections stay what
    they are. `manager` (or the current one) has the settings. `server`: one that is private already; else one is
    started. Raises `ConfigError` when there is no server program.
    """
    with ExitStack() as stack:
        chosen = stack.enter_context(private_server()) if server is None else server
        asked = current_manager() if manager is None else manager
        empty(chosen)
        stack.callback(empty, chosen)
        travel = Travel(chosen, asked)
        stack.callback(travel.close)
        stack.enter_context(interposed(travel.between))
        stack.enter_context(intercepting(travel))
        yield travel


def _read(delivery: Delivery) -> Envelope | None:
    """Its envelope; None for bytes that are none."""
    try:
        return envelopes.decode(delivery.raw)
    except BadEnvelope:
        return None
