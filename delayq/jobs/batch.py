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
from dataclasses import dataclass
from typing import TypeAlias, TypedDict, Unpack

from delayq.core.batches import BatchInfo
from delayq.core.errors import InvalidInput
from delayq.core.followups import Plan
from delayq.core.shown import shown
from delayq.jobs.current import current_manager
from delayq.jobs.links import NOWHERE, Builder
from delayq.jobs.message import Dispatchable
from delayq.jobs.plans import BatchPlan, Member

Jobs: TypeAlias = Dispatchable | Sequence[Dispatchable]


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
class PendingBatch(BatchPlan):
    """A batch that has not been dispatched. Immutable: every method that says more answers with another one."""

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

    def _built(self) -> tuple[Builder, Plan]:
        builder = Builder(current_manager())
        plan = self.plan(builder, NOWHERE, None)
        builder.refuse_after_commit("a batch")
        return builder, plan


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
        pending = pending._calling(name, [jobs] if isinstance(jobs, Dispatchable) else jobs)
    return pending


def find_batch(batch_id: str, *, connection: str | None = None) -> BatchInfo:
    """Return the batch with this id as it stands, from `connection` or the default one; times are epoch ms.

    Raises `BatchNotFound`, `BackendError`; `ConfigError` for a connection that keeps no batches.
    """
    return current_manager().batches(connection).get(batch_id)


async def afind_batch(batch_id: str, *, connection: str | None = None) -> BatchInfo:
    """Return the batch with this id as it stands, awaited; takes and raises what `find_batch` does."""
    return await current_manager().abatches(connection).get(batch_id)
