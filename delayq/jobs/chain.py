"""Jobs one after the other: each starts when the one before it has succeeded.

    chain(Fetch(order_id=42), Convert(order_id=42), Send(order_id=42)).catch(Tell(order_id=42)).dispatch()

What is left of a chain travels with the link whose turn it is, and the script that settles a link writes the next one:
no crash runs a link twice or loses the rest. A link that fails for good stops its chain and sends the jobs given to
`catch`; retrying it (`delayq failed retry`) takes the chain up again. Follows Laravel's `Bus::chain`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

import msgspec

from delayq.core.errors import InvalidInput
from delayq.core.followups import Chain, Link, Plan
from delayq.core.spec import Delay
from delayq.core.states import OnConflict
from delayq.core.views import JobRef
from delayq.jobs.current import current_manager
from delayq.jobs.dispatch import Sendable, dispatch_of
from delayq.jobs.links import NOWHERE, Builder, Where, with_delay
from delayq.jobs.member_ids import NEW, Ids
from delayq.jobs.sending import Parcel, adeliver, deliver
from delayq.jobs.unsent import Unsent, include

if TYPE_CHECKING:
    from delayq.core.batches import BatchInfo
    from delayq.jobs.batch import PendingBatch

Element: TypeAlias = "Sendable | PendingBatch"


@dataclass(frozen=True, slots=True)
class PendingChain:
    """A chain that has not been dispatched. Immutable: every method that says more answers with another one."""

    elements: tuple[Element, ...]
    catchers: tuple[Sendable, ...] = ()
    where: Where = NOWHERE
    first_delay: Delay | None = None
    unsent: Unsent = field(default_factory=partial(Unsent, "A chain of jobs"), repr=False, compare=False)

    def catch(self, *jobs: Sendable) -> PendingChain:
        """Send these when a link fails for good; their headers `delayq-failed-…` say which and why."""
        include(jobs)
        return replace(self, catchers=(*self.catchers, *jobs))

    def on_connection(self, connection: str) -> PendingChain:
        """Over this connection, all of it."""
        return replace(self, where=replace(self.where, connection=connection))

    def on_queue(self, queue: str) -> PendingChain:
        """To this queue, whatever has none of its own."""
        return replace(self, where=replace(self.where, queue=queue))

    def delay(self, delay: Delay) -> PendingChain:
        """Start after this long; a link's own delay counts from its turn."""
        return replace(self, first_delay=delay)

    def prepend(self, *elements: Element | Sequence[Element]) -> PendingChain:
        """With these in front; one by one or as a list."""
        return replace(self, elements=(*one_by_one(elements), *self.elements))

    def append(self, *elements: Element | Sequence[Element]) -> PendingChain:
        """With these at the end. As `prepend`."""
        return replace(self, elements=(*self.elements, *one_by_one(elements)))

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

    # -- how it travels ----------------------------------------------------------------------------------------------

    def as_link(self, builder: Builder, outer: Where, batch: str | None, ids: Ids = NEW) -> Link:
        """The chain as a member of a batch: its first link, which carries the rest."""
        first, rest, where = self._parts(builder, outer, batch, ids)
        if isinstance(first, Sendable):
            head = with_delay(first, self.first_delay)
            return builder.link(head, where, ids.at(0), chain=rest, batch=batch, first_of_batch=True)
        plan = first.plan(builder, where, batch, ids.at(0), rest.id if rest else "")
        return Link(batch=msgspec.structs.replace(plan, chain=rest))

    def _head(self, builder: Builder) -> Parcel | Plan:
        first, rest, where = self._parts(builder, NOWHERE, None)
        if isinstance(first, Sendable):
            parcel = builder.parcel(with_delay(first, self.first_delay), where)
            spec, on_conflict = msgspec.structs.replace(parcel.spec, chain=rest), parcel.on_conflict
            if rest is not None and spec.unique is None and "on_conflict" not in dispatch_of(first).said:
                on_conflict = OnConflict.ERROR  # another job that is kept would be followed by nothing of this
            return parcel._replace(spec=spec, after_commit=builder.after_commit, on_conflict=on_conflict)
        plan = msgspec.structs.replace(first.plan(builder, where, None), chain=rest)
        builder.refuse_after_commit("a chain that begins with a batch")
        return plan

    def _parts(
        self, builder: Builder, outer: Where, batch: str | None, ids: Ids = NEW
    ) -> tuple[Element, Chain | None, Where]:
        """The first element, what it carries of the chain, and where it all goes."""
        self.unsent.used = True
        if not self.elements:
            raise InvalidInput("A chain needs at least one job.", hint="chain(First(), Second()).dispatch()")
        where = self.where.over(outer)
        first, *others = self.elements
        _refuse_stranger(first)
        own_id = ids.at("chain").make()
        links = [link_of(element, builder, where, own_id, batch, ids.at(n)) for n, element in enumerate(others, 1)]
        caught = builder.links(self.catchers, where, ids.at("catch"))
        rest = Chain(id=own_id, next=links, catch=caught) if links or caught else None
        return first, rest, where


def _refuse_stranger(element: object) -> None:
    """Raises `InvalidInput` for what is neither a job nor a batch."""
    from delayq.jobs.batch import PendingBatch  # each of the two may stand in the other

    if not isinstance(element, Sendable | PendingBatch):
        dispatch_of(cast(Sendable, element))


def link_of(
    element: Element, builder: Builder, where: Where, chain_id: str, batch: str | None = None, ids: Ids = NEW
) -> Link:
    """An element of that chain as it travels; `batch`: the one it is a member of. Raises `InvalidInput` for others."""
    _refuse_stranger(element)
    if isinstance(element, Sendable):
        return builder.link(element, where, ids, batch=batch)
    return Link(batch=element.plan(builder, where, batch, ids, chain_id))


def chain(*elements: Element | Sequence[Element]) -> PendingChain:
    """Jobs and batches, one after the other; given one by one or as a list. Nothing happens before `dispatch`."""
    return PendingChain(tuple(one_by_one(elements)))


def one_by_one(elements: Iterable[Element | Sequence[Element]]) -> list[Element]:
    """What was given one by one or as a list."""
    flat: list[Element] = []
    for element in elements:
        if isinstance(element, Sequence):
            flat += element
        else:
            flat.append(element)
    include(flat)
    return flat
