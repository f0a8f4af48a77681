"""Makes links of the jobs that a running job adds to its chain or its batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from delayq.core.followups import Link
from delayq.jobs.links import Builder, Where
from delayq.jobs.member_ids import Ids
from delayq.jobs.plans import Element, Member, link_of, links_of, one_by_one

if TYPE_CHECKING:
    from delayq.drivers.connection import AsyncBatchStore, BatchStore
    from delayq.manager import Manager


class ManagerCoordinator:
    """The `Coordinator` over the connections of a manager, which is asked for when a job changes something."""

    __slots__ = ("_manager",)

    def __init__(self, manager: Callable[[], Manager]) -> None:
        self._manager = manager

    def chain_links(
        self, elements: Sequence[Element | Sequence[Element]], queue: str | None, chain_id: str, batch: str | None
    ) -> list[Link]:
        builder, where = Builder(self._manager()), Where(queue=queue)
        links = [link_of(element, builder, where, chain_id, batch) for element in one_by_one(elements)]
        builder.refuse_after_commit("a chain under way")
        return links

    def batch_links(self, members: Sequence[Member], queue: str | None, batch_id: str, ids: Ids) -> list[Link]:
        builder = Builder(self._manager())
        links = links_of(members, builder, Where(queue=queue), batch_id, ids)
        builder.refuse_after_commit("a batch under way")
        return links

    def batches(self) -> BatchStore:
        return self._manager().batches(None)

    def abatches(self) -> AsyncBatchStore:
        return self._manager().abatches(None)
