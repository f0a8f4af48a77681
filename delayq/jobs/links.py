"""From jobs to links: what travels of a job whose turn comes later, in a chain or as a callback of a batch.

Everything wrong with a link is found here, before anything is sent. Ids are made here too, once: see `member_ids`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from delayq.core.errors import ConfigError, InvalidInput
from delayq.core.followups import Chain, Link
from delayq.core.spec import Delay, JobSpec, Limit, prepare
from delayq.core.views import JobRef
from delayq.core.when import duration_ms
from delayq.drivers.connection import Refuses
from delayq.jobs.member_ids import NEW, Ids
from delayq.jobs.message import Dispatchable, Parcel, PendingDispatch, dispatch_of
from delayq.jobs.options import Dispatched
from delayq.jobs.sending import compose

if TYPE_CHECKING:
    from delayq.manager import Manager


@dataclass(frozen=True, slots=True)
class Where:
    """What the links of a chain or the members of a batch are given that say nothing themselves."""

    connection: str | None = None
    queue: str | None = None

    def over(self, outer: Where) -> Where:
        """The inner one's word goes before the outer one's."""
        return Where(self.connection or outer.connection, self.queue or outer.queue)


NOWHERE = Where()


class Builder:
    """Makes links for one dispatch; all of them must go over one connection, because one relay carries them on."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.after_commit = False
        self.said: Dispatched = {}
        self._connections: dict[str, str] = {}

    @property
    def connection(self) -> str | None:
        """The one connection; None before the first link is made."""
        return next(iter(self._connections), None)

    def parcel(self, job: Dispatchable, where: Where, ids: Ids = NEW) -> Parcel:
        """A job as it would be sent, with an id of its own. Raises `InvalidInput` for one that vetoes itself."""
        dispatch = dispatch_of(job)
        found = compose(dispatch.message, _with(dispatch, where), self.manager)
        name = dispatch.message.name
        if isinstance(found, JobRef):
            raise InvalidInput(
                f"The job {name!r} says no to its own dispatch (prepare_for_dispatch).",
                hint="Leave it out of the chain or the batch.",
            )
        if found.spec.debounce is not None:
            raise InvalidInput(
                f"The job {name!r} is debounced, and a chain or a batch waits for every one of its jobs.",
                hint="Dispatch it by itself.",
            )
        self._same(self.manager.connection(found.connection).name, name)
        self.after_commit = self.after_commit or found.after_commit
        if dispatch.said.get("within") is not None:
            self.said = {"within": dispatch.said["within"]}
        return found._replace(spec=_with_id(found.spec, ids))

    def link(
        self,
        job: Dispatchable,
        where: Where = NOWHERE,
        ids: Ids = NEW,
        *,
        chain: Chain | None = None,
        batch: str | None = None,
        first_of_batch: bool = False,
    ) -> Link:
        """A job whose turn comes later; `first_of_batch`: together with its batch, where nobody waits for a key."""
        parcel = self.parcel(job, where, ids)
        spec, connection = parcel.spec, self.manager.connection(parcel.connection)
        if isinstance(connection, Refuses):
            connection.refuse(spec)
        if first_of_batch and spec.unique is not None:
            raise InvalidInput(
                f"The job {spec.name!r} has a unique key, and a batch would wait for its owner for ever.",
                hint="Dispatch it by itself, or put it behind another link of a chain.",
            )
        if spec.at is not None:
            raise InvalidInput(
                f"The job {spec.name!r} has a time (at), and when its turn comes is not known.",
                hint="Give a delay; it counts from its turn.",
            )
        deadline, deadline_after = _after(spec.deadline)
        until, until_after = _after(spec.retry_until)
        spec = msgspec.structs.replace(spec, deadline=deadline, retry_until=until, chain=chain, batch=batch)
        made = prepare(spec, self.manager.settings.options(), time.time_ns() // 1_000_000)
        return Link(
            job=msgspec.Raw(made.envelope),
            delay_ms=int(made.when),
            deadline_after_ms=deadline_after,
            retry_until_after_ms=until_after,
        )

    def links(self, jobs: Iterable[Dispatchable], where: Where = NOWHERE, ids: Ids = NEW) -> list[Link]:
        """Jobs, each by itself."""
        return [self.link(job, where, ids.at(n)) for n, job in enumerate(jobs)]

    def refuse_after_commit(self, what: str) -> None:
        """Raises `InvalidInput` when one of the jobs waits for a commit, which `what` cannot."""
        if self.after_commit:
            raise InvalidInput(
                f"A job in it waits for a commit, and {what} cannot.",
                hint="Dispatch it in the transaction's own after-commit hook, or its jobs with after_commit(False).",
            )

    def _same(self, connection: str, name: str) -> None:
        self._connections.setdefault(connection, name)
        if len(self._connections) > 1:
            (first, other), *_ = self._connections.items()
            raise ConfigError(
                f"The job {name!r} goes over the connection {connection!r}, and {other!r} over {first!r}.",
                hint="The parts of a chain or a batch share one connection: name it with on_connection.",
            )


def _with(dispatch: PendingDispatch, where: Where) -> Dispatched:
    """What is said of a job, and for what neither it nor its declaration says, where its chain or batch goes."""
    said, declared = dispatch.said, dispatch.message.options
    added: Dispatched = {}
    if where.queue and said.get("queue") is None and declared.queue is None:
        added["queue"] = where.queue
    if where.connection and said.get("connection") is None and declared.connection is None:
        added["connection"] = where.connection
    return {**said, **added}


def _with_id(spec: JobSpec, ids: Ids) -> JobSpec:
    return spec if spec.id is not None else msgspec.structs.replace(spec, id=ids.make())


def _after(limit: Limit | None) -> tuple[Limit | None, int | None]:
    """A limit that is a point in time as it is; one that counts from when the job is due, in ms."""
    if isinstance(limit, timedelta) or (isinstance(limit, str) and "-" not in limit):
        return None, duration_ms(limit)
    return limit, None


def with_delay(job: Dispatchable, delay: Delay | None) -> Dispatchable:
    """The job after that long, unless it has a delay of its own."""
    dispatch = dispatch_of(job)
    own = dispatch.said.get("delay") is not None or dispatch.said.get("at") is not None
    return job if delay is None or own or dispatch.message.options.delay is not None else dispatch.having(delay=delay)
