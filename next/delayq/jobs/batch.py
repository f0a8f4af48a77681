"""Batches: many jobs that run at the same time, with callbacks for the events of the whole batch.

    batch([ImportPage(page=n) for n in range(40)], then=Publish(), catch=Alarm(), finally_=CleanUp()).dispatch()

A callback is a job too. Each callback is sent once: `before` when the batch starts, `catch` at the first failure,
`then` when all members have succeeded, `finally_` when all members have ended.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from delayq.core.batch_info import BatchInfo
from delayq.core.chain import MAX_BATCH_IN_CHAIN, MAX_MEMBERS, BatchPlan, Chain, Link, check_size
from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.core.ids import derived_id, new_id
from delayq.core.job_spec import check_bool
from delayq.core.names import check_batch_id
from delayq.jobs.dispatch import Sendable
from delayq.jobs.links import AsLink, AsMember, Jobs, LinkMaker, Member
from delayq.jobs.transactions import NOTHING_SAID, Commit, batch_after_commit
from delayq.jobs.unsent import Unsent
from delayq.manager import Connection, Manager, current_manager


def batch(
    members: Iterable[Member],
    *,
    id: str | None = None,
    name: str = "",
    allow_failures: bool = False,
    before: Jobs = None,
    then: Jobs = None,
    catch: Jobs = None,
    finally_: Jobs = None,
) -> "PendingBatch":
    """Return a batch of jobs. Nothing is sent before `dispatch` is called.

    * `members`: 1 to 100,000 jobs. A chain counts as one member.
    * `id`: 1 to 200 printable ASCII characters without spaces. If the program died during the dispatch, a second
      dispatch with the same id sends only the members that were not sent yet. Default: a new id.
    * `name`: a name for people.
    * `allow_failures`: False = the first failed member cancels the batch: waiting members are cancelled, and running
      members may finish. True = a failed member does not stop the others.
    * `before`, `then`, `catch`, `finally_`: the callbacks, each a job or a list of jobs. `before` is sent when the
      batch starts, `then` when all members have succeeded, even if some of them were retried, `catch` when the first
      member has failed for good, and `finally_` when all members have ended.

        batch([ImportPage(page=n) for n in range(40)], then=Publish()).dispatch()
    """
    return PendingBatch(tuple(_checked_members(members)), id, name, allow_failures, before, then, catch, finally_)


@dataclass(frozen=True)
class PendingBatch(AsLink):
    """A batch that has not been sent."""

    members: tuple[Member, ...]
    id: str | None
    name: str
    allow_failures: bool
    _before: Jobs
    _then: Jobs
    _catch: Jobs
    _finally: Jobs
    _commit: Commit = NOTHING_SAID
    _unsent: Unsent = field(default_factory=lambda: Unsent("A batch"), compare=False, repr=False)

    def after_commit(self) -> "PendingBatch":
        """Return a batch that waits for the commit of a transaction; see `delayq.within`."""
        return self._with(Commit(after_commit=True))

    def within(self, session: Any) -> "PendingBatch":
        """Return a batch that waits for the commit of the transaction of this session; see `delayq.within`."""
        return self._with(Commit(session=session))

    def dispatch(self) -> BatchInfo:
        """Send the batch, and return its counts.

        The batch waits for the commit of a database transaction if the batch itself, one of its jobs, the block `with
        within(...)` or the connection requires this. The `outcome` of the answer is then "after commit".

        Members and callbacks whose `prepare_for_dispatch` returns False are left out. If all members are left out, and
        no batch has this id, InvalidInput is raised. The `outcome` of the answer is "created". It is "kept" if all
        members are left out, or if a batch with the same id has finished or was cancelled: then nothing is sent.

        Raises InvalidInput and ConfigError before anything is sent, and the errors of DelayQ.schedule. After an error
        of DelayQ.schedule, a second dispatch with the same id sends the missing members.
        """
        maker, plan = self._plan(current_manager())
        if plan is None:
            return self._kept(None if self.id is None else maker.connection.client.batches.get(self.id))
        if maker.wait_for_commit("The batch", self._commit, plan):
            return batch_after_commit(plan)
        return maker.connection.client.batches.send(plan)

    async def adispatch(self) -> BatchInfo:
        """Send the batch in an event loop; see `dispatch`."""
        maker, plan = self._plan(current_manager())
        if plan is None:
            return self._kept(None if self.id is None else await maker.connection.aclient.batches.get(self.id))
        if await maker.await_commit("The batch", self._commit, plan):
            return batch_after_commit(plan)
        return await maker.connection.aclient.batches.send(plan)

    def _with(self, commit: Commit) -> "PendingBatch":
        self._unsent.is_used = True
        return replace(self, _unsent=Unsent("A batch"), _commit=commit)

    def _plan(self, manager: Manager) -> tuple[LinkMaker, BatchPlan | None]:
        self._unsent.is_used = True
        maker = LinkMaker(manager)
        return maker, self._plan_with(maker, new_id() if self.id is None else check_batch_id(self.id))

    def _kept(self, info: BatchInfo | None) -> BatchInfo:
        """Return the answer if all members were left out. Raises InvalidInput for a batch that does not exist."""
        if info is None:
            raise InvalidInput(
                "The batch has no members, because `prepare_for_dispatch` of all its jobs returned False.",
                hint="If this can happen, check it before the dispatch.",
                field="members",
            )
        return msgspec.structs.replace(info, outcome="kept")

    def _as_link(self, maker: LinkMaker, batch_id: str | None) -> Link | None:
        self._unsent.is_used = True
        if self.id is not None:
            raise InvalidInput(
                f"The batch {self.id!r} is a link of a chain, and has an id.",
                hint="Leave out id=: a chain makes the ids of its batches.",
                field="id",
            )
        if len(self.members) > MAX_BATCH_IN_CHAIN:
            raise InvalidInput(
                f"A batch in the chain has {len(self.members):,} members; the limit is {MAX_BATCH_IN_CHAIN:,}.",
                hint="Dispatch a larger batch in a job of the chain.",
                field="members",
            )
        plan = self._plan_with(maker, batch_id or new_id())
        return None if plan is None else Link(batch=plan)

    def _plan_with(self, maker: LinkMaker, batch_id: str) -> BatchPlan | None:
        """Return the plan, or None if `prepare_for_dispatch` of all members returned False. Raises InvalidInput."""
        check_bool("allow_failures", self.allow_failures)
        if not isinstance(self.name, str) or len(self.name) > 255:
            raise InvalidInput(f"name is {shown(self.name)}.", hint="Use a text of up to 255 characters.", field="name")
        members = chains_of_members(self.members, maker, [f"{batch_id}.{n}" for n in range(len(self.members))])
        if self.members and not members:
            return None
        if not members or len(members) > MAX_MEMBERS:
            raise InvalidInput(
                f"The batch has {len(members):,} members.",
                hint=f"Give 1 to {MAX_MEMBERS:,} jobs. Split a larger batch into several.",
                field="members",
            )
        plan = BatchPlan(
            batch_id,
            self.name,
            self.allow_failures,
            members,
            before=maker.links(self._before, what="before"),
            then=maker.links(self._then, what="then"),
            catch=maker.links(self._catch, what="catch"),
            finally_=maker.links(self._finally, what="finally_"),
        )
        callbacks = [*plan.before, *plan.then, *plan.catch, *plan.finally_]
        check_size(Chain(catch=callbacks), what="callbacks of the batch", field="then")
        return plan


class RunningBatch:
    """The batch of a running job, as its handler sees it. Async handlers use the coroutine methods, such as `ainfo`."""

    def __init__(self, batch_id: str, job_id: str) -> None:
        self.id = batch_id
        self._job_id = job_id
        self._added = 0

    def info(self) -> BatchInfo:
        """Read the counts of the batch. Raises BatchNotFound if the batch was deleted."""
        return current_manager().connection().client.batches.require(self.id)

    async def ainfo(self) -> BatchInfo:
        """Read the counts of the batch in an event loop; see `info`."""
        return await current_manager().connection().aclient.batches.require(self.id)

    def cancelled(self) -> bool:
        """Return True if the batch was cancelled, by a caller or by its first failure."""
        info = current_manager().connection().client.batches.get(self.id)
        return info is not None and info.is_cancelled

    async def acancelled(self) -> bool:
        """Return True if the batch was cancelled; see `cancelled`."""
        info = await current_manager().connection().aclient.batches.get(self.id)
        return info is not None and info.is_cancelled

    def cancel(self) -> BatchInfo:
        """Cancel the batch: its waiting members are cancelled. Running members may finish, but do not run again."""
        return current_manager().connection().client.batches.cancel(self.id)

    async def acancel(self) -> BatchInfo:
        """Cancel the batch in an event loop; see `cancel`."""
        return await current_manager().connection().aclient.batches.cancel(self.id)

    def add(self, members: Iterable[Member]) -> BatchInfo:
        """Add up to 100,000 members to the batch, and send them at once.

        If the batch was cancelled, nothing is added, and the `outcome` of the answer is "kept". If the members were
        sent, the outcome is "created".

        If the job that calls this method is run again, no member is added twice, as long as the job adds the same
        members in the same order. Raises InvalidInput, BatchNotFound if the batch was deleted, and Conflict if the
        batch has finished.
        """
        connection, chains = self._plan(members)
        return connection.client.batches.add(self.id, chains)

    async def aadd(self, members: Iterable[Member]) -> BatchInfo:
        """Add members in an event loop; see `add`."""
        connection, chains = self._plan(members)
        return await connection.aclient.batches.add(self.id, chains)

    def _plan(self, members: Iterable[Member]) -> tuple[Connection, list[Chain]]:
        manager = current_manager()
        maker = LinkMaker(manager, connection=manager.settings.connection)
        given = list(_checked_members(members))
        if len(given) > MAX_MEMBERS:
            raise InvalidInput(
                f"{len(given):,} members are to be added in one call; the limit is {MAX_MEMBERS:,}.",
                hint="Use several calls.",
                field="members",
            )
        ids = [derived_id(self._job_id, self._added + n) for n in range(len(given))]
        self._added += len(given)
        return maker.connection, chains_of_members(given, maker, ids)


def find_batch(batch_id: str) -> BatchInfo | None:
    """Return the counts of a batch of the default connection, or None for an unknown id."""
    return current_manager().connection().client.batches.get(batch_id)


async def afind_batch(batch_id: str) -> BatchInfo | None:
    """Return the counts of a batch in an event loop; see `find_batch`."""
    return await current_manager().connection().aclient.batches.get(batch_id)


def _checked_members(members: Iterable[Member]) -> Iterable[Member]:
    if isinstance(members, Sendable | AsLink | AsMember | type) or not isinstance(members, Iterable):
        raise InvalidInput(f"members is {shown(members)}.", hint="Use a list of jobs: [A(), B()].", field="members")
    return members


def chains_of_members(members: Iterable[object], maker: LinkMaker, ids: Iterable[str]) -> list[Chain]:
    """Return each member as a chain. Leave out members whose `prepare_for_dispatch` returned False.

    `ids`: the id of the first job of each member. Raises InvalidInput.
    """
    chains = []
    for member, job_id in zip(members, ids, strict=True):
        if isinstance(member, AsLink):
            member._unsent.is_used = True
            raise InvalidInput(
                "A member of the batch is a batch.",
                hint="Put the members of both batches into one batch, or use a chain of batches.",
                field="members",
            )
        if isinstance(member, AsMember):
            member_chain = member._as_member(maker, job_id)
        else:
            link = maker.link(member, job_id=job_id, what="members")
            member_chain = None if link is None else Chain([link])
        if member_chain is not None:
            chains.append(_without_key(member_chain))
    return chains


def _without_key(member: Chain) -> Chain:
    """Return a member; raises InvalidInput if its first job has a unique key, because the key might be taken."""
    first = member.links[0].job
    if b'"unique":' in bytes(first) and (members := msgspec.json.decode(first)).get("unique"):
        raise InvalidInput(
            f"The member {members['name']!r} of the batch has a unique key.",
            hint="Leave out the key, or dispatch this job without the batch.",
            field="unique",
        )
    return member
