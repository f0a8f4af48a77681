"""The context of a job that runs in a worker: it also has the chain and the batch of the job."""

import msgspec

from delayq.core.chain import Membership, read_chain, read_membership
from delayq.core.envelope import decode
from delayq.core.errors import DelayqError
from delayq.jobs.batch import RunningBatch
from delayq.jobs.chain import RunningChain
from delayq.jobs.context import JobContext


class WorkerContext(JobContext):
    """A JobContext in a worker. Chain and batch are read only when needed, because most handlers use neither."""

    _batch: RunningBatch | None = None

    @property
    def chain(self) -> RunningChain:
        """The jobs that follow this job."""
        if self.used_chain is None:
            try:
                links = read_chain(decode(self.raw).chain)
            except msgspec.MsgspecError as error:
                raise DelayqError(f"The chain of the job {self.id!r} cannot be read: {error}.") from None
            membership = self._membership()
            is_member = membership is not None and membership.member != ""
            self.used_chain = RunningChain(self.id, links, is_member=is_member)
        return self.used_chain

    @property
    def batch(self) -> RunningBatch | None:
        """The batch of the job, or None."""
        if self._batch is None and (membership := self._membership()) is not None:
            self._batch = RunningBatch(membership.id, self.id)
        return self._batch

    def _membership(self) -> Membership | None:
        if b'"batch":' not in self.raw:
            return None
        try:
            return read_membership(decode(self.raw).batch)
        except msgspec.MsgspecError as error:
            raise DelayqError(f"The batch of the job {self.id!r} cannot be read: {error}.") from None
