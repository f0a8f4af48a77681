"""What a producer's calls wait for, queue by queue, and the error that says that it did not come in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from delayq.core.durability import Durability, kept_durability, parse_durability
from delayq.core.errors import NotConfirmed
from delayq.core.names import new_id
from delayq.core.options import Options
from delayq.core.states import Answer
from delayq.core.views import JobRef
from delayq.redis.calls.call import Call, Command, Scope
from delayq.redis.confirm import Confirm, Confirmed

T = TypeVar("T")
Asking = Generator[Any, Any, T]

COUNTS_S = 60.0
"""So long a queue's own durability is taken to be what it was when it was read."""


@dataclass(slots=True)
class Durable:
    """For one client. It remembers what queues keep, and which servers can tell."""

    options: Options
    _kept: dict[str, tuple[float, Durability]] = field(default_factory=dict)
    _probed: set[tuple[str, str]] = field(default_factory=set)

    def known(self, queue: str) -> Durability | None:
        """What counts for a queue; None: to be asked for."""
        kept = self._kept.get(queue)
        return kept[1] if kept is not None and time.monotonic() - kept[0] < COUNTS_S else None

    def forget(self, queue: str) -> None:
        """Ask anew: somebody changed it, or the server forgot the queue."""
        self._kept.pop(queue, None)

    def wanted(self, scope: Scope, said: str | None) -> Asking[Durability]:
        """What counts: what the call said, else what the queue keeps, else the setting. Raises `InvalidInput`."""
        if said is not None:
            return parse_durability(said)
        known = self.known(scope.queue)
        if known is None:
            kept = yield Command(("HGET", scope.keys.meta, "durability"), kept_durability, reads=True)
            known = self.options.durability if kept is None else kept
            self._kept[scope.queue] = time.monotonic(), known
        return known

    def answers(
        self,
        scope: Scope,
        calls: Sequence[Call[T]],
        wanted: Durability,
        counts: Callable[[T], bool],
        *,
        brief: bool = False,
    ) -> Asking[tuple[list[T], str]]:
        """The answers of calls of one shard, and what was not confirmed.

        They are under way together, so each must be one that may be sent again, unless it is alone.
        """
        able = scope.queue, str(wanted)
        mark = scope.keys.once(new_id())
        confirmed: Confirmed = yield Confirm(
            tuple(calls), wanted, mark, counts, probed=able in self._probed, brief=brief
        )
        self._probed.add(able)
        return confirmed.answers, confirmed.missing

    def answer(
        self, scope: Scope, call: Call[T], wanted: Durability, counts: Callable[[T], bool]
    ) -> Asking[tuple[T, str]]:
        """The answer of one call, and what was not confirmed; '' also where nothing is waited for."""
        if not wanted.waits:
            plain: T = yield call
            return plain, ""
        [answer], missing = yield from self.answers(scope, [call], wanted, counts)
        return answer, missing

    @staticmethod
    def check(refs: Sequence[JobRef], short: Sequence[JobRef], wanted: Durability, missing: str) -> None:
        """Raises `NotConfirmed` when something is missing: the jobs are stored, and `short` of them not as safely."""
        if not missing:
            return
        first = short[0]
        what = f"The job {first.id!r} in queue {first.queue!r} is" if len(refs) == 1 else f"The {len(refs)} jobs are"
        whom = f" for {len(short)} of them" if len(short) < len(refs) else ""
        raise NotConfirmed(
            f"{what} stored, but durability {wanted} was not confirmed{whom}: {missing}.",
            hint=f"See it: delayq show {first.id} --queue {first.queue}. Asked for again under the same id it is the "
            "same job, and waited for once more.",
            done=tuple(refs),
            unconfirmed=tuple(short),
        )


def undone(job_id: str, queue: str, missing: str, wanted: Durability) -> NotConfirmed:
    """A job is cancelled, and that is not as safe as was asked."""
    return NotConfirmed(
        f"The job {job_id!r} in queue {queue!r} is cancelled, but durability {wanted} was not confirmed: {missing}.",
        hint=f"See it: delayq show {job_id} --queue {queue}. After a failover it may be there again: cancel it then.",
        done=(Answer.CANCELLED,),
    )
