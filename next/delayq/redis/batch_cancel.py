"""Cancels the waiting members of a batch, page by page, because a batch can have 100,000 members."""

from collections.abc import Sequence
from typing import Final, Self

import msgspec

from delayq.core.ids import new_id
from delayq.core.options import Options
from delayq.core.states import Answer
from delayq.redis.calls import batches
from delayq.redis.calls import jobs as calls
from delayq.redis.calls.call import Call, value_of
from delayq.redis.connection.executor import Executor
from delayq.redis.keys import Keys
from delayq.redis.shard_counts import ShardCounts

PAGES: Final = 8
"""Maximum number of pages in one call of `some`, so that the other loops of the process soon get their turn."""

START: Final = "0"


def note_members(
    keys: Keys, options: Options, batch_id: str, rows: Sequence[batches.Row], *, cancel: bool = False
) -> Call[batches.Noted]:
    """Return the call that records events of members; see batch_note.lua."""
    keep_ms = options.keep_batches_ms
    keep_broken_ms = max(options.keep_failed_ms, keep_ms)
    return batches.note_batch(keys, batch_id, rows, cancel=cancel, keep_ms=keep_ms, keep_broken_ms=keep_broken_ms)


class PresentJob(msgspec.Struct, frozen=True, gc=False):
    """The job of a pending member that runs, or waits for its turn.

    * `is_first`: True if the job is the first job of the member, and so not a later link of a chain.
    * `was_sent`: True if the job is known to have been stored. False = the job was never stored, or the program that
      has stored it died before it recorded this.
    """

    member: str
    queue: str
    id: str
    is_first: bool
    was_sent: bool

    @classmethod
    def of(cls, member: str, text: str) -> Self:
        """Return the present job of a member. `text`: the text of the member in `pending`; see batch_note.lua."""
        queue, *others = text.split(" ", 2)
        was_sent = len(others) == 2
        present = others[1] if was_sent else member
        return cls(member, queue, present, present == member, was_sent)


class BatchCancel:
    """Cancels batch members that wait in their queues. Remembers for each batch how far the cancellation has come."""

    def __init__(self, executor: Executor, keys: Keys, options: Options, counts: ShardCounts) -> None:
        self._executor = executor
        self._keys = keys
        self._options = options
        self._counts = counts
        self._cursors: dict[str, str] = {}

    async def some(self, batch_id: str) -> bool:
        """Check up to about 2,000 pending members, and cancel the waiting ones. Return True if all were checked."""
        cursor = self._cursors.pop(batch_id, START)
        for _ in range(PAGES):
            cursor = await self._page(batch_id, cursor)
            if cursor == START:
                return True
        self._cursors[batch_id] = cursor
        return False

    async def _page(self, batch_id: str, cursor: str) -> str:
        """Cancel the members of one page of pending members, and return the cursor of the next page."""
        after, places = await self._executor.run(batches.scan_members(self._keys, batch_id, "pending", cursor))
        members = [PresentJob.of(member, place) for member, place in places.items()]
        answers = await self.jobs(batch_id, [(job.queue, job.id) for job in members])
        absent = [job for job, answer in zip(members, answers, strict=True) if answer == "unknown" and job.is_first]
        lost = await self._without_record([job for job in absent if job.was_sent])
        skipped: list[batches.Row] = [
            (job.member, "skipped", "") for job in absent if not job.was_sent or job.member in lost
        ]
        if skipped:
            await self._executor.run(note_members(self._keys, self._options, batch_id, skipped))
        return after

    async def _without_record(self, absent: Sequence["PresentJob"]) -> set[str]:
        """Return the members whose end no relay will record, because the outbox of their queue is empty.

        The jobs of these members were sent, and are no longer in their queues. If the outbox has records, one of them
        may record the end of the member, and whether the member has succeeded.
        """
        shards = {job.member: self._counts.of_job(job.queue, job.id) for job in absent}
        names = [*dict.fromkeys(shards.values())]
        outcomes = await self._executor.run_all([batches.count_records(self._keys, shard) for shard in names])
        is_empty = {shard: value_of(outcome) == 0 for shard, outcome in zip(names, outcomes, strict=True)}
        return {member for member, shard in shards.items() if is_empty[shard]}

    async def jobs(self, batch_id: str, jobs: Sequence[tuple[str, str]]) -> list[Answer]:
        """Cancel the jobs that belong to a batch and wait in their queues. Return an answer for each job.

        `jobs`: queue and id of each job. A running job may finish, but does not run again.

        If a queue does not know a job, the number of shards of the queue may have changed, or may not be known here. So
        this number is read again, and if it has changed, the call is repeated.
        """
        answers = await self._answers(batch_id, jobs)
        unknown = dict.fromkeys(queue for (queue, _), answer in zip(jobs, answers, strict=True) if answer == "unknown")
        changed = [queue for queue in unknown if await self._counts.have_changed(queue)]
        again = [n for n, (queue, _) in enumerate(jobs) if queue in changed and answers[n] == "unknown"]
        for n, answer in zip(again, await self._answers(batch_id, [jobs[n] for n in again]), strict=True):
            answers[n] = answer
        return answers

    async def _answers(self, batch_id: str, jobs: Sequence[tuple[str, str]]) -> list[Answer]:
        cancelling = [self._cancel(batch_id, queue, job_id) for queue, job_id in jobs]
        return [value_of(outcome) for outcome in await self._executor.run_all(cancelling)]

    def _cancel(self, batch_id: str, queue: str, job_id: str) -> Call[Answer]:
        shard = self._counts.of_job(queue, job_id)
        only = '"batch":{"id":' + msgspec.json.encode(batch_id).decode()
        return calls.cancel(self._keys, shard, job_id, ends=True, token=new_id(), only=only)
