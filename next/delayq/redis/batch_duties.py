"""Batches in the relay: records the ends of members, and fulfills the duties of their batches.

A duty is an event of a batch that requires an action, such as sending the `then` jobs. Each action is done once. The
script `batch_note` returns a duty in each answer until the relay reports the duty as fulfilled.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from delayq.core.chain import BatchPlan, encode, places_of_members, read_plan, without_members
from delayq.core.errors import BackendError, UnreadableEnvelope
from delayq.core.follow_up import Duty, FollowUps, jobs_of_duty, member_jobs
from delayq.core.job_spec import NewJob
from delayq.core.options import Options
from delayq.redis.batch_cancel import BatchCancel, note_members
from delayq.redis.calls import batches as calls
from delayq.redis.calls.batches import Noted, Opened
from delayq.redis.calls.call import Call, value_of
from delayq.redis.connection.executor import Executor
from delayq.redis.follow_up_sender import Step
from delayq.redis.keys import Keys
from delayq.redis.shard_counts import ShardCounts

logger: Final = logging.getLogger("delayq.loops")

MEMBERS_PER_CALL: Final = 250

LISTED_MS: Final = 30 * 86_400_000
"""How long after its creation a batch stays on the list of batches, in ms; `keep_failed_ms` is added. Older batches are
removed from the list when a new batch is added."""

NO_FAILURE: Final[Mapping[str, str]] = {}


class BatchDuties:
    """Records the ends of members, and fulfills the duties of their batches."""

    def __init__(self, executor: Executor, keys: Keys, options: Options, counts: ShardCounts) -> None:
        self._executor = executor
        self._keys = keys
        self._options = options
        self._cancel = BatchCancel(executor, keys, options, counts)

    async def note(self, steps: Sequence[Step]) -> None:
        """Record the ends of the members of these steps. Fulfill the due duties, and add their jobs to the steps."""
        by_batch: dict[str, list[Step]] = {}
        for step in steps:
            if step.follows.note is not None:
                by_batch.setdefault(step.follows.note.batch, []).append(step)
        noting = [self._note_call(batch_id, of_batch) for batch_id, of_batch in by_batch.items()]
        outcomes = await self._executor.run_all(noting)
        for (batch_id, of_batch), outcome in zip(by_batch.items(), outcomes, strict=True):
            if isinstance(outcome, BackendError):
                for step in of_batch:
                    step.error = outcome
            elif outcome.state != "unknown":  # else the batch was deleted
                try:
                    await self._stop_chains(batch_id, of_batch, outcome)
                    failed = next((step.follows.failed for step in of_batch if step.follows.failed), NO_FAILURE)
                    await self.fulfill(of_batch[0], batch_id, outcome, failed)
                except BackendError as error:
                    for step in of_batch:
                        step.error = error

    async def fulfill(self, step: Step, batch_id: str, noted: Noted, failed: Mapping[str, str] = NO_FAILURE) -> None:
        """Add the jobs of the due duties of a batch to a step. `cancel_due` fulfills the duty `cancel`.

        `failed`: the headers for `catch` jobs, which describe the first failure.
        """
        for duty in noted.due:
            if duty == "cancel":
                step.cancels.append(batch_id)
                continue
            jobs, next_batch = _jobs_of_duty(batch_id, duty, noted, failed, step.now_ms)
            step.add(jobs, f"{batch_id}.{duty}")
            if next_batch is not None:
                await self.start(step, next_batch)
            step.told.append((batch_id, duty))

    async def cancel_due(self, steps: Sequence[Step]) -> None:
        """Cancel the waiting members of the batches that these steps must cancel.

        This comes after the jobs of the other duties were sent, because the queue of a member may be damaged.
        """
        for step in steps:
            for batch_id in step.cancels:
                try:
                    if await self._cancel.some(batch_id):
                        step.told.append((batch_id, "cancel"))
                    else:
                        step.again_in = 0.0
                except BackendError as error:
                    step.error = error

    async def start(self, step: Step, plan: BatchPlan) -> None:
        """Open a batch that is a link of a chain, and add its `before` jobs and its members to a step."""
        try:
            before, _ = jobs_of_duty(plan, "before", is_cancelled=False, failed={}, now_ms=step.now_ms)
            members = member_jobs(plan, now_ms=step.now_ms)
            await self.enlist(plan.id, step.now_ms)
            opened, _ = await self.open(plan)
        except UnreadableEnvelope as error:
            logger.error("batch %s cannot be read, so it is not started, and its chain ends here: %s", plan.id, error)
            return
        except BackendError as error:
            step.error = error
            return
        if opened.cancelled_ms is not None:
            return
        step.add(before, f"{plan.id}.before")
        step.add(members, f"{plan.id}.member")
        step.members += [(plan.id, job) for job in members]
        step.told.append((plan.id, "before"))

    async def record_sent(self, batch_id: str, jobs: Sequence[NewJob]) -> bool:
        """Record that the first jobs of these members are stored. Return True if the batch was cancelled.

        If it was cancelled, also cancel all its waiting jobs. `jobs` are cancelled by their ids, because the
        cancellation may have skipped their members before these jobs were stored.
        """
        is_cancelled = False
        for start in range(0, len(jobs), MEMBERS_PER_CALL):
            page = jobs[start : start + MEMBERS_PER_CALL]
            noted = await self._executor.run(self._call(batch_id, [(job.id, "sent", "") for job in page]))
            if noted.cancelled_ms is not None:
                is_cancelled = True
                await self._cancel.jobs(batch_id, [(job.queue, job.id) for job in page])
        if is_cancelled:
            await self.cancel_waiting(batch_id)
        return is_cancelled

    async def record_all_sent(self, steps: Sequence[Step]) -> None:
        """Record the members that these steps have sent."""
        for step in steps:
            by_batch: dict[str, list[NewJob]] = {}
            for batch_id, job in step.members if step.is_over else ():
                by_batch.setdefault(batch_id, []).append(job)
            try:
                for batch_id, jobs in by_batch.items():
                    await self.record_sent(batch_id, jobs)
            except BackendError as error:
                step.error = error

    async def cancel_waiting(self, batch_id: str) -> None:
        """Cancel all members of a batch that wait in their queues."""
        while not await self._cancel.some(batch_id):
            pass

    async def cancel_late(self, steps: Sequence[Step]) -> None:
        """Cancel the links that these steps have sent, if their batch was cancelled in the meantime.

        This is needed because the cancellation may have searched for such a link before the link was stored.
        """
        by_batch: dict[str, list[Step]] = {}
        for step in steps:
            note = step.follows.note
            if note is not None and note.word == "next" and step.follows.jobs and step.error is None:
                by_batch.setdefault(note.batch, []).append(step)
        asking = [calls.is_cancelled(self._keys, batch_id) for batch_id in by_batch]
        outcomes = await self._executor.run_all(asking)
        for (batch_id, of_batch), outcome in zip(by_batch.items(), outcomes, strict=True):
            error = outcome if isinstance(outcome, BackendError) else None
            if outcome and error is None:
                try:
                    await self.cancel_waiting(batch_id)
                except BackendError as refused:
                    error = refused
            for step in of_batch:
                step.error = error

    async def enlist(self, batch_id: str, created_ms: int) -> None:
        """Add a batch to the list of batches."""
        oldest_ms = created_ms - self._options.keep_failed_ms - LISTED_MS
        for outcome in await self._executor.run_all(
            calls.list_batch(self._keys, batch_id, created_ms, oldest_ms=oldest_ms)
        ):
            value_of(outcome)

    async def open(self, plan: BatchPlan, *, is_new: bool = True) -> tuple[Opened, dict[str, bool]]:
        """Store the members of a batch. Return the last answer of Redis, and the pending members.

        The pending members are a dict by id. The value is True if the member is known to have been sent.

        `is_new`: False = add the members to an existing batch. If the batch was cancelled, or the members were refused,
        no more members are stored.
        """
        stored = encode(without_members(plan)) if is_new else b""
        members = places_of_members(plan)
        pending: dict[str, bool] = {}
        for start in range(0, len(members), MEMBERS_PER_CALL):
            page = members[start : start + MEMBERS_PER_CALL]
            opened = await self._executor.run(
                calls.open_batch(
                    self._keys,
                    plan.id,
                    plan=stored,
                    allow_failures=plan.allow_failures,
                    seal=is_new and start + MEMBERS_PER_CALL >= len(members),
                    members=page,
                )
            )
            if opened.answer != "opened" or opened.cancelled_ms is not None:
                break
            pending.update(
                (member, n in opened.sent)
                for n, ((member, _), is_left) in enumerate(zip(page, opened.pending, strict=True))
                if is_left
            )
        return opened, pending

    async def tell(self, steps: Sequence[Step]) -> None:
        """Report fulfilled duties to their batches. A duty is fulfilled when all jobs of its step are stored.

        If more duties are due by now, for example because the cancel of the waiting members has ended the batch, the
        steps are done again at once.
        """
        by_batch: dict[str, list[tuple[Step, str]]] = {}
        for step in steps:
            for batch_id, duty in step.told if step.is_over else ():
                by_batch.setdefault(batch_id, []).append((step, duty))
        telling = [
            self._call(batch_id, [(duty, "told", "") for _, duty in told]) for batch_id, told in by_batch.items()
        ]
        for told, outcome in zip(by_batch.values(), await self._executor.run_all(telling), strict=True):
            if isinstance(outcome, BackendError):
                for step, _ in told:
                    step.error = outcome
            elif outcome.due:
                for step, _ in told:
                    step.again_in = 0.0

    async def _stop_chains(self, batch_id: str, steps: Sequence[Step], noted: Noted) -> None:
        """Drop the next links of those members whose chain stops because their batch was cancelled.

        Another relay may have sent such a link before it died. The link is cancelled if it waits in its queue.
        """
        dropped: list[tuple[str, str]] = []
        for step, may_go_on in zip(steps, noted.answers, strict=True):
            note = step.follows.note
            if note is not None and note.word == "next" and not may_go_on:
                dropped += [(job.queue, job.id) for job in step.follows.jobs]
                step.follows = FollowUps(note)
        await self._cancel.jobs(batch_id, dropped)

    def _note_call(self, batch_id: str, steps: Sequence[Step]) -> Call[Noted]:
        notes = [step.follows.note for step in steps]
        return self._call(batch_id, [(note.member, note.word, note.job) for note in notes if note is not None])

    def _call(self, batch_id: str, rows: Sequence[calls.Row]) -> Call[Noted]:
        return note_members(self._keys, self._options, batch_id, rows)


def _jobs_of_duty(
    batch_id: str, duty: Duty, noted: Noted, failed: Mapping[str, str], now_ms: int
) -> tuple[list[NewJob], BatchPlan | None]:
    """Return the jobs of a duty, or none if another program has damaged the plan of the batch."""
    is_cancelled = noted.cancelled_ms is not None
    try:
        return jobs_of_duty(read_plan(noted.plan), duty, is_cancelled=is_cancelled, failed=failed, now_ms=now_ms)
    except (msgspec.MsgspecError, UnreadableEnvelope, UnicodeError, RecursionError) as error:
        logger.error("batch %s cannot be read, so its %s jobs are not sent: %s", batch_id, duty, error)
        return [], None
