"""The jobs and batches that the fake has recorded, as a test reads them."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.chain import BatchPlan, Chain, Link, name_of, read_chain, read_membership
from delayq.core.encryption import payload_of
from delayq.manager import current_manager

Shape = str | list[Any]
"""The shape of a link or member, written as names. A job is represented by its name, a batch by the list of its
members, and a member that is a chain of several jobs by the list of their names."""


class FakeJob(msgspec.Struct):
    """A job that the fake has recorded.

    * `id`, `queue`, `due_ms`: the id, the queue, and the due time in epoch ms.
    * `delay_ms`: the time from the call to the due time, in ms; 0 = due at once.
    * `state`: "scheduled" or "ready"; "failed" after `archive`; "absent" after `cancel` or `forget`.
    * `raw`: the envelope, as Redis would get it.
    * `failure`: the failure that `archive` stores, as JSON; b'' = none.
    """

    id: str
    queue: str
    raw: bytes
    due_ms: int
    delay_ms: int
    state: Literal["scheduled", "ready", "failed", "absent"]
    failure: bytes = b""

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._envelope.name

    @property
    def data(self) -> Any:
        """The payload, decoded from JSON: dicts, lists, texts, numbers, booleans and None.

        An encrypted payload is decrypted with the keys of the settings. Raises NotDecrypted without a matching key.
        """
        return msgspec.json.decode(payload_of(self._envelope, current_manager().settings.options().key_ring))

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the job."""
        return self._envelope.headers or {}

    @property
    def tags(self) -> list[str]:
        """The tags of the job."""
        return self._envelope.tags or []

    @property
    def chain(self) -> list[Shape]:
        """The names of the jobs that follow in the chain of this job. A batch is the list of its members."""
        return shape_of_links(read_chain(self._envelope.chain))

    @property
    def batch_id(self) -> str | None:
        """The id of the batch of this member or callback, or None."""
        membership = read_membership(self._envelope.batch)
        return None if membership is None else membership.id

    @property
    def is_first_of_member(self) -> bool:
        """True if this job is a member of a batch, or the first job of a chain that is a member."""
        membership = read_membership(self._envelope.batch)
        return membership is not None and membership.member == self.id

    def __repr__(self) -> str:
        """Leave the payload out, because payloads do not belong in a log."""
        return f"FakeJob(id={self.id!r}, name={self.name!r}, queue={self.queue!r}, state={self.state!r})"

    @property
    def _envelope(self) -> envelopes.Envelope:
        return envelopes.decode(self.raw)


class FakeBatch(msgspec.Struct, frozen=True):
    """A batch that the fake has recorded.

    * `id`, `name`, `allow_failures`: the arguments of `batch`.
    * `members`: the name of each member; a member that is a chain of several jobs is a list of names.
    * `then`, `catch`, `finally_`: the names of the callbacks. The callbacks of `before` are sent at once, so the fake
      records them as jobs.
    * `after`: the names of the jobs that follow the batch in a chain.
    """

    id: str
    name: str
    allow_failures: bool
    members: list[Shape]
    then: list[Shape]
    catch: list[Shape]
    finally_: list[Shape]
    after: list[Shape]


def batch_of(plan: BatchPlan, jobs: Sequence[FakeJob]) -> FakeBatch:
    """Return a batch. `jobs`: all recorded jobs."""
    members = [job for job in jobs if job.batch_id == plan.id and job.is_first_of_member]
    return FakeBatch(
        plan.id,
        plan.name,
        plan.allow_failures,
        [_alone([job.name, *job.chain]) for job in members],
        [_shape(link) for link in plan.then],
        [_shape(link) for link in plan.catch],
        [_shape(link) for link in plan.finally_],
        shape_of_links(plan.after or Chain()),
    )


def shape_of_links(chain: Chain) -> list[Shape]:
    """Return the names of the links of a chain."""
    return [_shape(link) for link in chain.links]


def _shape(link: Link) -> Shape:
    if link.batch is None:
        return name_of(link)
    return [_alone(shape_of_links(member)) for member in link.batch.members]


def _alone(names: list[Shape]) -> Shape:
    return names[0] if len(names) == 1 else names
