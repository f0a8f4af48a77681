"""Chains and batches before they are sent: the jobs in them, and how these travel as links and plans.

A chain may contain batches, and a batch may contain chains. Building a plan sends nothing; every mistake in it raises
`InvalidInput` here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self, TypeAlias, cast

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.envelope import ABSENT
from delayq.core.errors import InvalidInput
from delayq.core.followups import Callbacks, Chain, Link, Plan
from delayq.core.names import check_batch_id, check_batch_name
from delayq.core.spec import Delay
from delayq.jobs.links import NOWHERE, Builder, Where, with_delay
from delayq.jobs.member_ids import NEW, Ids
from delayq.jobs.message import Dispatchable, dispatch_of
from delayq.jobs.unsent import Unsent, include

Element: TypeAlias = "Dispatchable | BatchPlan"
"""An element of a chain."""
Member: TypeAlias = "Dispatchable | BatchPlan | ChainPlan | Sequence[Element]"
"""A member of a batch; a sequence is a chain."""


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """A chain that has not been dispatched. Immutable: every method that adds something returns another one."""

    elements: tuple[Element, ...]
    catchers: tuple[Dispatchable, ...] = ()
    where: Where = NOWHERE
    first_delay: Delay | None = None
    unsent: Unsent = field(default_factory=partial(Unsent, "A chain of jobs"), repr=False, compare=False)

    def catch(self, *jobs: Dispatchable) -> Self:
        """Send these when a link fails for good; their headers `delayq-failed-…` say which and why."""
        include(jobs)
        return replace(self, catchers=(*self.catchers, *jobs))

    def on_connection(self, connection: str) -> Self:
        """Over this connection, all of it."""
        return replace(self, where=replace(self.where, connection=connection))

    def on_queue(self, queue: str) -> Self:
        """To this queue, whatever has none of its own."""
        return replace(self, where=replace(self.where, queue=queue))

    def delay(self, delay: Delay) -> Self:
        """Start after this long; a link's own delay counts from its turn."""
        return replace(self, first_delay=delay)

    def prepend(self, *elements: Element | Sequence[Element]) -> Self:
        """With these in front; one by one or as a list."""
        return replace(self, elements=(*one_by_one(elements), *self.elements))

    def append(self, *elements: Element | Sequence[Element]) -> Self:
        """With these at the end. As `prepend`."""
        return replace(self, elements=(*self.elements, *one_by_one(elements)))

    # -- how it travels ----------------------------------------------------------------------------------------------

    def as_link(self, builder: Builder, outer: Where, batch: str | None, ids: Ids = NEW) -> Link:
        """The chain as a member of a batch: its first link, which carries the rest."""
        first, rest, where = self._parts(builder, outer, batch, ids)
        if isinstance(first, Dispatchable):
            head = with_delay(first, self.first_delay)
            return builder.link(head, where, ids.at(0), chain=rest, batch=batch, first_of_batch=True)
        plan = first.plan(builder, where, batch, ids.at(0), rest.id if rest else "")
        return Link(batch=msgspec.structs.replace(plan, chain=rest))

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
    if not isinstance(element, Dispatchable | BatchPlan):
        dispatch_of(cast(Dispatchable, element))


def link_of(
    element: Element, builder: Builder, where: Where, chain_id: str, batch: str | None = None, ids: Ids = NEW
) -> Link:
    """An element of that chain as it travels; `batch`: the one it is a member of. Raises `InvalidInput` for others."""
    _refuse_stranger(element)
    if isinstance(element, Dispatchable):
        return builder.link(element, where, ids, batch=batch)
    return Link(batch=element.plan(builder, where, batch, ids, chain_id))


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


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batch that has not been dispatched. Immutable: every method that adds something returns another one."""

    members: tuple[Member, ...]
    callbacks: dict[str, tuple[Dispatchable, ...]] = field(default_factory=dict)
    id: str | None = None
    title: str = ""
    failures: bool = False
    where: Where = NOWHERE
    unsent: Unsent = field(default_factory=partial(Unsent, "A batch of jobs"), repr=False, compare=False)

    def add(self, *members: Member) -> Self:
        """With these members too."""
        include(members)
        return replace(self, members=(*self.members, *members))

    def name(self, name: str) -> Self:
        """A name for people, of at most 255 characters."""
        return replace(self, title=name)

    def allow_failures(self, allow: bool = True) -> Self:
        """Go on when members fail."""
        return replace(self, failures=allow)

    def on_connection(self, connection: str) -> Self:
        """Over this connection, all of it."""
        return replace(self, where=replace(self.where, connection=connection))

    def on_queue(self, queue: str) -> Self:
        """To this queue, whatever has none of its own."""
        return replace(self, where=replace(self.where, queue=queue))

    def before(self, *jobs: Dispatchable) -> Self:
        """Send these with the first members."""
        return self._calling("before", jobs)

    def progress(self, *jobs: Dispatchable) -> Self:
        """Send these whenever members have ended; several that end at once are told together."""
        return self._calling("progress", jobs)

    def then(self, *jobs: Dispatchable) -> Self:
        """Send these once all members have succeeded."""
        return self._calling("then", jobs)

    def catch(self, *jobs: Dispatchable) -> Self:
        """Send these at the first failure."""
        return self._calling("catch", jobs)

    def finally_(self, *jobs: Dispatchable) -> Self:
        """Send these once all members have ended, however they did."""
        return self._calling("finally_", jobs)

    # -- how it travels ----------------------------------------------------------------------------------------------

    def plan(self, builder: Builder, outer: Where, batch: str | None, ids: Ids = NEW, link_of: str = "") -> Plan:
        """The batch as it travels; `batch`: the one it is a member of, `ids`: what it is called in there.

        `link_of`: the chain it is a link of, unless that begins with it and is by itself.
        """
        from delayq.redis.audit import me

        self.unsent.used = True
        where, ids = self.where.over(outer), ids if self.id is None else Ids(check_batch_id(self.id))
        own_id = ids.make()
        called = {name: builder.links(jobs, where, ids.at(name)) for name, jobs in self.callbacks.items()}
        _refuse_sealed(called.get("progress", ()))
        return Plan(
            id=own_id,
            name=check_batch_name(self.title),
            owner=me(),
            members=links_of(self.members, builder, where, own_id, ids),
            allow_failures=self.failures,
            callbacks=Callbacks(**called),
            batch=batch,
            link_of=link_of,
        )

    def _calling(self, name: str, jobs: Iterable[Dispatchable]) -> Self:
        jobs = tuple(jobs)
        include(jobs)
        return replace(self, callbacks={**self.callbacks, name: (*self.callbacks.get(name, ()), *jobs)})


def _refuse_sealed(links: Iterable[Link]) -> None:
    """What tells of progress is sent more than once, each time under another id, and a seal holds for one."""
    for link in links:
        envelope = envelopes.decode(link.job)
        if envelope.encrypted is not ABSENT:
            raise InvalidInput(
                f"The job {envelope.name!r} is encrypted, and what tells of a batch's progress cannot be.",
                hint="Let it carry nothing secret, and dispatch an encrypted job from it.",
            )


def links_of(members: Iterable[Member], builder: Builder, where: Where, batch: str, ids: Ids = NEW) -> list[Link]:
    """Members as they travel."""
    return [_link(member, builder, where, batch, ids.at(n)) for n, member in enumerate(members)]


def _link(member: Member, builder: Builder, where: Where, batch: str, ids: Ids) -> Link:
    if isinstance(member, Dispatchable):
        return builder.link(member, where, ids, batch=batch, first_of_batch=True)
    if isinstance(member, BatchPlan):
        return Link(batch=member.plan(builder, where, batch, ids))
    whole = member if isinstance(member, ChainPlan) else ChainPlan(tuple(one_by_one((member,))))
    return whole.as_link(builder, where, batch, ids)
