"""Keeps the leases that only the connection can keep which reserved them: in a thread beside the handlers.

A handler that holds the interpreter's lock for longer than a lease keeps this thread from its work, and its job is then
delivered again; the capability table says so. What was lost is told in the log; its settlement finds itself fenced.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence

from delayq.core.errors import DelayqError
from delayq.drivers.base import Claim

log = logging.getLogger("delayq.worker")


class Holder:
    """What this process holds, renewed every third of a lease of `lease_s` seconds from the first `add` on."""

    def __init__(self, renew: Callable[[Sequence[Claim]], list[bool]], lease_s: float) -> None:
        self._renew = renew
        self._every_s = lease_s / 3
        self._lock = threading.Lock()
        self._held: dict[tuple[str, str], Claim] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, claims: Iterable[Claim]) -> None:
        """These are held from now on."""
        with self._lock:
            self._held.update({(claim.queue, claim.entry): claim for claim in claims})
            if self._held and self._thread is None:
                self._thread = threading.Thread(target=self._work, name="delayq-leases", daemon=True)
                self._thread.start()

    def drop(self, claims: Iterable[Claim]) -> None:
        """These are not held any more."""
        with self._lock:
            for claim in claims:
                self._held.pop((claim.queue, claim.entry), None)

    def renew(self) -> None:
        """Renew everything once."""
        with self._lock:
            held = list(self._held.values())
        if not held:
            return
        lost = [claim for claim, ours in zip(held, self._renew(held), strict=True) if not ours]
        with self._lock:  # what was settled meanwhile is no loss
            lost = [claim for claim in lost if self._held.pop((claim.queue, claim.entry), None)]
        for claim in lost:
            log.warning("job %s: its lease is lost; it is delivered again", claim.id)

    def close(self) -> None:
        """Stop renewing."""
        self._stop.set()

    def _work(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self.renew()
            except DelayqError as error:
                log.warning("leases could not be renewed: %s", error)
