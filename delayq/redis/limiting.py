"""Questions about limits as flows: generators like those of `verbs`, which they are given.

A limit that is full names its holders. Whether these still are is known in their queues, which lie in other slots (see
`holders`). When one is gone, the question is put once more.
"""

from __future__ import annotations

import time
from typing import Any, Final, TypeVar

from delayq.core.limiting import (
    Acquire,
    Admit,
    Admitted,
    CalledOff,
    Circuit,
    LineUp,
    Place,
    Probe,
    Probed,
    Question,
    Report,
    Taken,
    Unlock,
    Unlocked,
    Vacate,
    Who,
)
from delayq.core.states import Answer
from delayq.redis.called_off import called_off
from delayq.redis.calls import limit, lock, produce
from delayq.redis.calls.call import Command, Scope
from delayq.redis.holders import Holders
from delayq.redis.keys import Globals
from delayq.redis.verbs import Flow, Verbs

T = TypeVar("T")

KNOWN_S: Final = 60.0
"""How long a name counts as registered; then it is said again, in case the server forgot it."""
WAKE_UPS: Final = 20
"""So many of the list are tried for one place: some may be cancelled, or run already."""


class LimitVerbs:
    """What may be asked about limits. `scope` has the prefix and the clock; its queue has no part in it."""

    def __init__(self, verbs: Verbs) -> None:
        self.holders = Holders(verbs)
        self._verbs = verbs
        self._known: dict[str, float] = {}

    def answer(self, question: Question[T]) -> Flow[T]:
        """The flow that answers a question."""
        answer: T = yield from self._flow(question)
        return answer

    def _flow(self, question: Any) -> Flow[Any]:
        match question:
            case Acquire(who, place):
                return self._acquire(place, who)
            case Vacate(who, place):
                return self.vacate(place, who.holder)
            case LineUp(who, place):
                return self._line_up(place, who)
            case Admit():
                return self._admit(question)
            case Probe():
                return self._probe(question)
            case Report():
                return self._report(question)
            case Unlock(who, digest):
                return self._unlock(who, digest)
            case CalledOff(who, batch, spared):
                return called_off(self._verbs, batch, who.id, spared)
        raise TypeError(f"{question!r} is no question about limits")

    def _acquire(self, place: Place, who: Who) -> Flow[Taken]:
        yield from self._register(place.name)
        got: limit.Got = yield limit.acquire(self._scope, place, who)
        if not got.taken and (stale := (yield from self.holders.gone(got.others))):
            got = yield limit.acquire(self._scope, place, who, stale)
        if got.taken:
            for job in got.others:
                yield from self._wake(place, job)
        return Taken(got.taken, got.waiting)

    def vacate(self, place: Place, holder: str) -> Flow[bool]:
        """Free a holder's place and wake the next one; whether it held one."""
        left: limit.Left = yield limit.vacate(self._scope, place, holder)
        if left.woken:
            yield from self._wake(place, left.woken)
        return left.held

    def _wake(self, place: Place, job: str) -> Flow[None]:
        """Run a job that waits, now; when it cannot be, the next one."""
        for _ in range(WAKE_UPS):
            queue, _, job_id = job.partition(" ")
            ran: produce.Outcome = yield produce.run_now(self._verbs.shard(queue), job_id)
            if ran.answer is Answer.READY:
                return
            left: limit.Left = yield limit.vacate(self._scope, place, "")
            if not left.woken:
                return
            job = left.woken

    def _line_up(self, place: Place, who: Who) -> Flow[bool]:
        free: bool = yield limit.line_up(self._scope, place, who)
        if free:
            yield produce.run_now(self._verbs.shard(who.queue), who.id)
        return free

    def _admit(self, question: Admit) -> Flow[Admitted]:
        yield from self._register(question.name)
        admitted: Admitted = yield limit.admit(self._scope, question)
        return admitted

    def _probe(self, question: Probe) -> Flow[Probed]:
        yield from self._register(question.name)
        asked: limit.Asked = yield limit.probe(self._scope, question)
        if asked.prober and (stale := (yield from self.holders.gone([asked.prober]))):
            asked = yield limit.probe(self._scope, question, stale)
        if asked.circuit is Circuit.OPEN:
            return Probed(asked.circuit, 0, asked.number)
        return Probed(asked.circuit, asked.number)

    def _report(self, question: Report) -> Flow[bool]:
        opened: bool = yield limit.report(self._scope, question)
        return opened

    def _unlock(self, who: Who, digest: str) -> Flow[Unlocked]:
        answer: Unlocked = yield lock.unlock(self._verbs.shard(who.queue), who.id, digest, who.entry)
        return answer

    def _register(self, name: str) -> Flow[None]:
        """Make the name known to who looks at limits."""
        now = time.monotonic()
        if self._known.get(name, 0.0) < now:
            yield Command(("SADD", Globals(self._verbs.options.prefix).limits, name), int)
            self._known[name] = now + KNOWN_S

    @property
    def _scope(self) -> Scope:
        return self._verbs.scope(None)
