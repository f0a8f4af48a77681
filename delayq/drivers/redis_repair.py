"""What the janitor's tick does to one queue on Redis, between the scripts: the walk through what was delivered, and
the walk through everything when the sums of rule 1 disagree.

The second is for data that somebody damaged, and reads every payload. When it cannot make the sums agree it is done
again only after a minute, then two, four, up to an hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from delayq.core import failure as failures
from delayq.core.errors import BackendDamaged, BackendFull
from delayq.core.failure import Failure
from delayq.core.options import Options
from delayq.core.outcome import Ack
from delayq.drivers.base import Tidied
from delayq.redis import presence, settling
from delayq.redis.calls import activity, deliver, inspect, lock
from delayq.redis.calls.call import Scope, pages
from delayq.redis.calls.deliver import Held, Unsettled
from delayq.redis.connect import Connector
from delayq.redis.keys import GROUP
from delayq.redis.scan import scan_ids, windows_over
from delayq.redis.send import through
from delayq.redis.verbs import Clock, server_clock

PAGES = 20
PAGES_OF_ALL = 400
IDLE_LEASES = 3
MIN_IDLE_MS = 60_000
CONSUMERS_EVERY = 3
FIRST_REST_S = 60.0
LONGEST_REST_S = 3_600.0
GARBAGE = failures.encode(Failure(type="Garbage", message="This stream entry is no job of delayq."))


@dataclass(frozen=True, slots=True)
class _Walk:
    """Where the walk through the stream goes on, the marks it began with, and whether it looks at all entries."""

    after: str = "-"
    marks: str = ""
    everything: bool = False

    @property
    def at_start(self) -> bool:
        return self.after == "-"


@dataclass(frozen=True, slots=True)
class _Rest:
    """No walk through everything before `until`: the last one changed nothing."""

    seconds: float
    until: float


class RedisRepair:
    """Heals queues. Remembers between ticks how far it got, so one belongs to one janitor.

    `whole`: those that were never spread over shards, as of their last tick. `new`: those that this tick made.
    """

    def __init__(
        self,
        connector: Connector,
        options: Options,
        clock: Clock = server_clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connector = connector
        self._options = options
        self._clock = clock
        self._monotonic = monotonic
        self.whole: set[str] = set()
        self.new: set[str] = set()
        self._walks: dict[str, _Walk] = {}
        self._rests: dict[str, _Rest] = {}
        self._swept: dict[str, int] = {}
        self._ticks: dict[str, int] = {}
        self._tallied: dict[str, int] = {}

    def tidy(self, queue: str) -> Tidied:
        """Look for damage and heal it, prune, and take dead consumers off the list."""
        scope = Scope(self._options, queue, self._clock())
        sums = through(self._connector, deliver.tidy(scope))
        (self.whole.add if sums.whole else self.whole.discard)(queue)
        (self.new.add if sums.new else self.new.discard)(queue)
        idle_ms = max(MIN_IDLE_MS, IDLE_LEASES * sums.lease_ms)
        silent = self._silent_consumers(scope, idle_ms)
        tidied = self._walk(scope, everything=not sums.agree and not self._resting(queue))
        if not sums.agree:
            tidied = self._heal(scope, tidied)
        elif tidied == Tidied() and self._walks[queue].at_start:
            # Only after a whole pass that found nothing: an acknowledgement may still have to be closed, and it is
            # known for one only while its consumer is on the list.
            tidied = replace(tidied, retired=self._retire(scope, silent, idle_ms))
        if sums.agree:
            self._rests.pop(queue, None)
        if sums.unique > sums.locks:
            self._sweep(scope)
        pruned = self._prune(scope) if sums.failed or sums.completed else 0
        self._tally(scope, sums.counted)
        return replace(tidied, pruned=pruned, regrouped=int(sums.regrouped))

    # -- what was delivered ------------------------------------------------------------------------------------------

    def _walk(self, scope: Scope, *, everything: bool) -> Tidied:
        """Go on where the last tick stopped; a page that found something is followed by the next at once."""
        found, walk = Tidied(), self._walks.pop(scope.queue, _Walk())
        if everything and not walk.everything:
            walk = _Walk(everything=True)
        for _ in range(PAGES_OF_ALL if walk.everything else PAGES):
            page = through(
                self._connector, deliver.unsettled(scope, walk.after, walk.marks, everything=walk.everything)
            )
            found = self._settle_outside(scope, page.entries, found)
            walk = _Walk(page.after, page.marks, walk.everything) if page.after else _Walk()
            if walk.at_start and not page.entries:
                break
        # Only kept when all went well: what a failed page found must be seen again.
        self._walks[scope.queue] = walk
        return found

    def _settle_outside(self, scope: Scope, entries: Sequence[Unsettled], found: Tidied) -> Tidied:
        """Close, deliver again or bury what is delivered and no longer pending."""
        acked = [row for row in entries if row.verdict == "acked"]
        again = [Held(row.id, row.entry) for row in entries if row.verdict == "again"]
        garbage = [(row.entry, GARBAGE) for row in entries if row.verdict == "garbage"]
        words: list[str] = []
        closed = self._close(scope, acked)
        redelivered = 0
        while again:
            done = through(self._connector, deliver.hand_back(scope, again, unheld=True))
            redelivered, again = redelivered + sum(done), again[len(done) :]
        while garbage:
            said = through(self._connector, deliver.bury(scope, garbage))
            words, garbage = words + said, garbage[len(said) :]
        return replace(
            found,
            closed=found.closed + sum(closed),
            redelivered=found.redelivered + redelivered,
            buried=found.buried + words.count("buried") + words.count("dropped"),
            mended=found.mended + words.count("adopted"),
        )

    def _close(self, scope: Scope, acked: Sequence[Unsettled]) -> list[bool]:
        """Settle what a plain consumer acknowledged, with the retention and the follow-ups its envelope asks for."""
        endings = []
        for row in acked:
            info = through(self._connector, inspect.get(scope, row.id))
            retention_ms = (info.envelope.retention_ms or 0) if info and info.envelope else 0
            raw = info.raw if info else b""
            endings.append(settling.Ending(scope.queue, row.id, row.entry, raw, Ack(retention_ms), lost=not raw))
        closed: list[bool] = []
        for call, _, _ in settling.calls(lambda _: scope, endings, {}, self._now_ms() if endings else 0):
            settled: list[bool] = through(self._connector, call)
            closed += settled
        return closed

    def _now_ms(self) -> int:
        seconds, micros = self._connector.call(presence.server_time, safe=True, reads=True)
        return self._clock() or seconds * 1000 + micros // 1000

    # -- everything --------------------------------------------------------------------------------------------------

    def _resting(self, queue: str) -> bool:
        rest = self._rests.get(queue)
        return rest is not None and self._monotonic() < rest.until

    def _heal(self, scope: Scope, tidied: Tidied) -> Tidied:
        """Put every id in its one place, if the sums still disagree after a walk through the whole stream.

        Not before its end: what it gives back to a job must be found before that job is taken for one without a place,
        or running work is delivered twice.
        """
        if self._resting(scope.queue) or not self._walks[scope.queue].at_start:
            return tidied
        if through(self._connector, deliver.tidy(scope)).agree:
            return tidied
        mended = self._mend(scope)
        if through(self._connector, deliver.tidy(scope)).agree:
            return replace(tidied, mended=tidied.mended + mended)
        last = self._rests.get(scope.queue)
        seconds = FIRST_REST_S if last is None else min(2 * last.seconds, LONGEST_REST_S)
        self._rests[scope.queue] = _Rest(seconds, self._monotonic() + seconds)
        return replace(tidied, mended=tidied.mended + mended, unhealed=1)

    def _mend(self, scope: Scope) -> int:
        """Walk every id there is and put each in its one place."""
        mended = 0
        ids = scan_ids(self._connector, scope.keys)
        while batch := list(islice(ids, deliver.PAGE)):
            while batch:
                words = through(self._connector, deliver.mend(scope, batch))
                mended += sum(word != "fine" for word in words)
                batch = batch[len(words) :]
        return mended

    def _prune(self, scope: Scope) -> int:
        """Forget all that was kept long enough; a busy queue completes more in a tick than one call forgets."""
        total = 0
        for _ in range(PAGES_OF_ALL):
            pruned = through(self._connector, deliver.prune(scope, self._options.keep_failed_ms))
            total += pruned.completed + pruned.failed
            if max(pruned) < deliver.PAGE:
                break
        return total

    def _sweep(self, scope: Scope) -> None:
        """Drop windows of unique keys that are over: further pages at once while it finds any, a few otherwise."""
        now_ms = self._now_ms()
        for page in range(PAGES_OF_ALL):
            after, windows = windows_over(self._connector, scope.keys, self._swept.pop(scope.queue, 0), now_ms)
            for some in pages(windows, deliver.PAGE):
                through(self._connector, lock.sweep(scope, some))
            if after == 0:
                return
            self._swept[scope.queue] = after
            if not windows and page >= PAGES:
                return

    def _tally(self, scope: Scope, counted: int) -> None:
        """Write down what happened, if anything did."""
        if counted == self._tallied.get(scope.queue, 0):
            return
        with suppress(BackendDamaged, BackendFull):  # said by others; nothing else may stand still for a count
            through(self._connector, activity.tally(scope, {}))
            self._tallied[scope.queue] = counted

    # -- consumers ---------------------------------------------------------------------------------------------------

    def _silent_consumers(self, scope: Scope, idle_ms: int) -> list[str]:
        """Consumers that hold nothing, have been silent for long, and belong to no worker that is here.

        It looks at the first tick and every third one after it: nothing waits for a dead consumer to be dropped.
        """
        ticks = self._ticks[scope.queue] = self._ticks.get(scope.queue, -1) + 1
        if ticks % CONSUMERS_EVERY:
            return []
        stream = scope.keys.stream
        idle = partial(presence.idle_consumers, stream, GROUP, idle_ms)
        names = self._connector.call(idle, safe=True, reads=True)
        if not names:
            return []
        here = self._connector.call(partial(presence.present, self._options.prefix, names), safe=True, reads=True)
        return [name for name in names if name not in here]

    def _retire(self, scope: Scope, names: Sequence[str], idle_ms: int) -> int:
        return sum(through(self._connector, deliver.retire(scope, name, idle_ms)) for name in names)
