"""Jobs one after the other: each starts when the one before it has succeeded.

    chain(Fetch(order_id=42), Convert(order_id=42), Send(order_id=42)).catch(Tell(order_id=42)).dispatch()

What is left of a chain travels with the link whose turn it is, and the script that settles a link writes the next one:
no crash runs a link twice or loses the rest. A link that fails for good stops its chain and sends the jobs given to
`catch`; retrying it (`delayq failed retry`) takes the chain up again. Follows Laravel's `Bus::chain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from delayq.core.followups import Plan
from delayq.core.states import OnConflict
from delayq.core.views import JobRef
from delayq.jobs.current import current_manager
from delayq.jobs.links import NOWHERE, Builder, with_delay
from delayq.jobs.message import Dispatchable, Parcel, dispatch_of
from delayq.jobs.plans import ChainPlan, Element, one_by_one
from delayq.jobs.sending import adeliver, deliver

if TYPE_CHECKING:
    from delayq.core.batches import BatchInfo


@dataclass(frozen=True, slots=True)
class PendingChain(ChainPlan):
    """A chain that has not been dispatched. Immutable: every method that says more answers with another one."""

    def dispatch(self) -> JobRef | BatchInfo:
        """Send the first link, and the rest with it; what is answered is the first link's: a job's or a batch's.

        Raises `InvalidInput` (nothing sent), `ConfigError`, `Conflict`, `BackendError`.
        """
        builder = Builder(current_manager())
        head = self._head(builder)
        if isinstance(head, Parcel):
            return deliver(head, builder.said, builder.manager)
        return builder.manager.batches(builder.connection).open(head)

    async def adispatch(self) -> JobRef | BatchInfo:
        """Send the first link with the rest behind it, awaited. Returns the answer for the first: a job's or a batch's.

        Raises `InvalidInput` (nothing sent), `ConfigError`, `Conflict`, `BackendError`.
        """
        builder = Builder(current_manager())
        head = self._head(builder)
        if isinstance(head, Parcel):
            return await adeliver(head, builder.said, builder.manager)
        return await builder.manager.abatches(builder.connection).open(head)

    def _head(self, builder: Builder) -> Parcel | Plan:
        first, rest, where = self._parts(builder, NOWHERE, None)
        if isinstance(first, Dispatchable):
            parcel = builder.parcel(with_delay(first, self.first_delay), where)
            spec, on_conflict = msgspec.structs.replace(parcel.spec, chain=rest), parcel.on_conflict
            if rest is not None and spec.unique is None and "on_conflict" not in dispatch_of(first).said:
                on_conflict = OnConflict.ERROR  # another job that is kept would be followed by nothing of this
            return parcel._replace(spec=spec, after_commit=builder.after_commit, on_conflict=on_conflict)
        plan = msgspec.structs.replace(first.plan(builder, where, None), chain=rest)
        builder.refuse_after_commit("a chain that begins with a batch")
        return plan


def chain(*elements: Element | Sequence[Element]) -> PendingChain:
    """Jobs and batches, one after the other; given one by one or as a list. Nothing happens before `dispatch`."""
    return PendingChain(tuple(one_by_one(elements)))
