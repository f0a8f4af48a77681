"""How deliveries come to a worker: replayed when some may have been lost on the way, fetched, waited for."""

from __future__ import annotations

from collections.abc import Callable

from delayq.core.errors import AWAY
from delayq.drivers.base import Consumer, Fetched
from delayq.worker.held import Held, boot_clock
from delayq.worker.settler import Settler
from delayq.worker.stop import StopSignals


class Intake:
    """Fills `held` from `consumer`. Belongs to the thread that runs jobs."""

    def __init__(self, consumer: Consumer, held: Held, settler: Settler, signals: StopSignals) -> None:
        self._consumer = consumer
        self._held = held
        self._settler = settler
        self._signals = signals
        self._waited_in_vain = False

    def fill(self, count: int, wait_s: float) -> bool:
        """Settle what is finished and, if nothing waits to be started, read up to `count` deliveries.

        When there are none, wait up to `wait_s` seconds for the first. True when the queues were asked and had nothing.
        Raises when the backend is away; what was read before is held then, and what may have been lost is asked for
        with the next call.
        """
        if self._held.incomplete:
            self.replay()
        if self._held.waiting():
            return False
        # After a wait that brought nothing, the next one looks as well as a fetch does. But only a fetch settles what
        # is finished, and only a fetch finds out which queue is to blame for an error.
        idle = self._waited_in_vain and wait_s > 0 and self._held.empty()
        self._waited_in_vain = False
        found = not idle and self._read(lambda: self._settler.fetch(count))
        if wait_s and not found and not self._signals.asked.is_set():
            self._signals.breakable = True
            try:
                found = self._read(lambda: self._consumer.wait(wait_s))
            finally:
                self._signals.breakable = False
        self._waited_in_vain = wait_s > 0 and not found
        return not found

    def replay(self) -> None:
        """Ask for all that the backend holds for this worker, and take what the worker does not know of."""
        known = self._held.all()
        self._held.incomplete = False  # before asking: what is found missing meanwhile must not be forgotten
        sent_at = boot_clock()
        replayed = self._answer(self._consumer.replay)
        self._held.replayed(known, replayed.deliveries, sent_at, whole=not replayed.errors)
        self._settler.tell(replayed.errors)

    def _read(self, read: Callable[[], Fetched]) -> bool:
        """Whether anything at all was there, be it garbage."""
        sent_at = boot_clock()
        fetched = self._answer(read)
        self._held.add(fetched.deliveries, sent_at)
        self._settler.tell(fetched.errors)
        return bool(fetched.deliveries or fetched.garbage)

    def _answer(self, ask: Callable[[], Fetched]) -> Fetched:
        """The answer. A lost one, or one that was cut off, may have carried deliveries."""
        try:
            answer = ask()
        except BaseException:
            self._held.incomplete = True
            raise
        if any(isinstance(error, AWAY) for error in answer.errors):
            self._held.incomplete = True
        return answer
