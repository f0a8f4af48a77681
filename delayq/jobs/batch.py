"""Many jobs as one: how far they are, and jobs that are sent when all of them have ended.

    batch([Import(page=n) for n in range(100)], then=[Publish()], catch=[Tell()], finally_=[CleanUp()]).dispatch()

A member is a job, a chain (a list is one; each of its links is a member) or another batch. Callbacks are jobs, sent
once each: `before` with the first members, `progress` whenever members have ended, `catch` at the first failure,
`then` when all have succeeded, `finally_` when all have ended, however they did. Their headers `delayq-batch-…` tell
its id and numbers. A failure cancels what has not started, unless failures are allowed; nothing of a cancelled batch
starts any more, no later link and no retry. What a cancelled batch skipped stays skipped, also when its failed members
are retried; such a batch ends as `incomplete`, without `then`. After a retry `catch` is sent again at the next failure,
and `finally_` when all have ended again. Follows Laravel's `Bus::batch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, TypedDict, Unpack

from delayq.core import envelope as envelopes
from delayq.core.batches import BatchInfo
from delayq.core.envelope import ABSENT
from delayq.core.errors import InvalidInput
from delayq.core.followups import Callbacks, Link, Plan
from delayq.core.names import check_batch_id, check_batch_name
from delayq.core.shown import shown
from delayq.jobs.chain import Element, PendingChain, chain
from delayq.jobs.current import current_manager
from delayq.jobs.dispatch import Sendable
from delayq.jobs.links import NOWHERE, Builder, Where
from delayq.jobs.member_ids import NEW, Ids
from delayq.jobs.unsent import Unsent, include

Jobs: TypeAlias = Sendable | Sequence[Sendable]
Member: TypeAlias = "Sendable | PendingBatch | PendingChain | Sequence[Element]"


class BatchOptions(TypedDict, total=False):
    """What `batch` takes besides its members.

    `id` makes a dispatch repeatable: the same batch, dispatched again under it, is the same one for as long as that is
    kept. Its members have ids of their own or get one by their place; one that was begun goes on where that stopped,
    and one whose members are all under way, or have ended, answers as it stands.
    """

    id: str
    name: str
    allow_failures: bool
    before: Jobs
    progress: Jobs
    then: Jobs
    catch: Jobs
    finally_: Jobs


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A batch that has not been dispatched. Immutable: every method that says more answers with another one."""

    members: tuple[Member, ...]
    callbacks: dict[str, tuple[Sendable, ...]] = field(default_factory=dict)
    id: str | None = None
    title: str = ""
    failures: bool = False
    where: Where = NOWHERE
    unsent: Unsent = field(default_factory=partial(Unsent, "A batch of jobs"), repr=False, compare=False)

    def add(self, *members: Member) -> PendingBatch:
        """With these members too."""
        include(members)
        return replace(self, members=(*self.members, *members))

    def name(self, name: str) -> PendingBatch:
        """A name for people, of at most 255 characters."""
        return replace(self, title=name)

    def allow_failures(self, allow: bool = True) -> PendingBatch:
        """Go on when members fail."""
        return replace(self, failures=allow)

    def on_connection(self, connection: str) -> PendingBatch:
        """Over this connection, all of it."""
        return replace(self, where=replace(self.where, connection=connection))

    def on_queue(self, queue: str) -> PendingBatch:
        """To this queue, whatever has none of its own."""
        return replace(self, where=replace(self.where, queue=queue))

    def before(self, *jobs: Sendable) -> PendingBatch:
        """Send these with the first members."""
        return self._calling("before", jobs)

    def progress(self, *jobs: Sendable) -> PendingBatch:
        """Send these whenever members have ended; several that end at once are told together."""
        return self._calling("progress", jobs)

    def then(self, *jobs: Sendable) -> PendingBatch:
        """Send these once all members have succeeded."""
        return self._calling("then", jobs)

    def catch(self, *jobs: Sendable) -> PendingBatch:
        """Send these at the first failure."""
        return self._calling("catch", jobs)

    def finally_(self, *jobs: Sendable) -> PendingBatch:
        """Send these once all members have ended, however they did."""
        return self._calling("finally_", jobs)

    def dispatch(self) -> BatchInfo:
        """Begin the batch and send its members; how it stands then.

        Raises `InvalidInput` (nothing sent), `ConfigError`, `BackendError`; after the latter the same batch, with an
        `id` of yours, may be dispatched again.
        """
        builder, plan = self._built()
        return builder.manager.batches(builder.connection).open(plan)

    async def adispatch(self) -> BatchInfo:
        """Begin the batch and send its members, awaited. Returns the batch as it stands then.

        Raises `InvalidInput` (nothing sent), `ConfigError`, `BackendError`; after the latter the same batch, with an
        `id` of yours, may be dispatched again.
        """
        builder, plan = self._built()
        return await builder.manager.abatches(builder.connection).open(plan)

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

    def _built(self) -> tuple[Builder, Plan]:
        builder = Builder(current_manager())
        plan = self.plan(builder, NOWHERE, None)
        builder.refuse_after_commit("a batch")
        return builder, plan

    def _calling(self, name: str, jobs: Iterable[Sendable]) -> PendingBatch:
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
    if isinstance(member, Sendable):
        return builder.link(member, where, ids, batch=batch, first_of_batch=True)
    if isinstance(member, PendingBatch):
        return Link(batch=member.plan(builder, where, batch, ids))
    whole = member if isinstance(member, PendingChain) else chain(member)
    return whole.as_link(builder, where, batch, ids)


def batch(members: Iterable[Member] = (), **options: Unpack[BatchOptions]) -> PendingBatch:
    """Many jobs as one; see the module. Nothing happens before `dispatch`. Raises `InvalidInput` for other options."""
    if unknown := options.keys() - BatchOptions.__annotations__.keys():
        raise InvalidInput(
            f"A batch has no option {shown(min(unknown))}.", hint=f"It has {', '.join(BatchOptions.__annotations__)}."
        )
    pending = PendingBatch((), id=options.get("id"), title=options.get("name", "")).add(*members)
    pending = pending.allow_failures(options.get("allow_failures", False))
    for name in ("before", "progress", "then", "catch", "finally_"):
        jobs: Jobs = options.get(name, ())  # type: ignore[assignment]  # one of those that are jobs
        pending = pending._calling(name, [jobs] if isinstance(jobs, Sendable) else jobs)
    return pending


def find_batch(batch_id: str, *, connection: str | None = None) -> BatchInfo:
    """Return the batch with this id as it stands, from `connection` or the default one; times are epoch ms.

    Raises `BatchNotFound`, `BackendError`; `ConfigError` for a connection that keeps no batches.
    """
    return current_manager().batches(connection).get(batch_id)


async def afind_batch(batch_id: str, *, connection: str | None = None) -> BatchInfo:
    """Return the batch with this id as it stands, awaited; takes and raises what `find_batch` does."""
    return await current_manager().abatches(connection).get(batch_id)
