"""Operations that send chains."""

from delayq.core import clock
from delayq.core.batch_info import BatchInfo
from delayq.core.chain import Chain
from delayq.core.follow_up import next_link
from delayq.redis.operations.base import RefT
from delayq.redis.operations.batches import BatchOperations
from delayq.redis.operations.jobs import JobOperations
from delayq.redis.operations.scheduling import SchedulingOperations


class ChainOperations(SchedulingOperations[RefT], JobOperations[RefT]):
    """Operations that send chains."""

    async def send_chain(self, chain: Chain) -> RefT | BatchInfo:
        """Send the first link of a chain. Return a reference to its job, or the counts of its batch.

        `PendingChain.dispatch` calls this operation, and describes the errors.
        """
        first = chain.links[0]
        has_limits = first.deadline_ms is not None or first.retry_until_ms is not None
        now_ms = await self._server_ms() if has_limits else int(clock.time() * 1000)
        job, batch = next_link(chain, now_ms=now_ms, when=f"+{first.delay_ms}")
        if batch is not None:
            return await BatchOperations(self._session, self).send(batch)
        assert job is not None
        (ref,) = await self._place_all([job], "keep")
        return ref
