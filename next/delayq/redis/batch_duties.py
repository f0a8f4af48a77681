"""The part of batches in the relay: notes the ends of members, and fulfills the duties that result from them.

A duty is an event of a batch after which something has to be done once, such as sending its `then` jobs. The batch
repeats a duty in each answer until it is told that the duty is fulfilled.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from delayq.core.chain import BatchPlan, encode, places_of_members, read_plan, without_members
from delayq.core.errors import BackendError
from delayq.core.follow_up import FollowUps, jobs_of_duty, member_jobs
from delayq.core.options import Options
from delayq.redis.batch_cancel import BatchCancel, note_members
from delayq.redis.calls import batches as calls
from delayq.redis.calls.batches import Noted
from delayq.redis.calls.call import Call
from delayq.redis.connection.executor import Executor
from delayq.redis.follow_up_sender import Step
from delayq.redis.keys import Keys
from delayq.redis.shard_counts import ShardCounts

MEMBERS_PER_CALL: Final = 250

NO_FAILURE: Final[Mapping[str, str]] = {}


class BatchDuties:
    """Notes the ends of members, and fulfills the duties of their batches."""

    def __init__(self, executor: Executor, keys: Keys, options: Options, counts: ShardCounts) -> None:
        self._executor = executor
        self._keys = keys
        self._options = options
        self._cancel = BatchCancel(executor, keys, options, counts)

    async def note(self, steps: Sequence[Step]) -> None:
        """Note the ends of the members of these steps. Add the jobs of all duties to the steps."""
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
            elif outcome.state != "unknown":  # else the batch is no longer kept
                _stop_chains(of_batch, outcome)
                failed = next((step.follows.failed for step in of_batch if step.follows.failed), NO_FAILURE)
                await self.fulfill(of_batch[0], batch_id, outcome, failed)

    async def fulfill(self, step: Step, batch_id: str, noted: Noted, failed: Mapping[str, str] = NO_FAILURE) -> None:
        """Add the jobs of the due duties of a batch to a step. `failed`: the headers about the first failure."""
        plan = read_plan(noted.plan) if noted.due else None
        for duty in noted.due:
            assert plan is not None
            if duty == "cancel":
                if not await self._cancel.some(batch_id):
                    step.again_in = 0.0
                    continue
            else:
                jobs, next_batch = jobs_of_duty(
                    plan, duty, is_cancelled=noted.cancelled_ms is not None, failed=failed, now_ms=step.now_ms
                )
                step.add(jobs, f"{batch_id}.{duty}")
                if next_batch is not None:
                    await self.start(step, next_batch)
            step.told.append((batch_id, duty))

    async def start(self, step: Step, plan: BatchPlan) -> None:
        """Open a batch that is a link of a chain, and add its `before` jobs and its members to a step."""
        try:
            await self._executor.run(calls.list_batch(self._keys, plan.id, step.now_ms))
            cancelled = await self._open(plan)
        except BackendError as error:
            step.error = error
            return
        if cancelled:
            return
        jobs, _ = jobs_of_duty(plan, "before", is_cancelled=False, failed={}, now_ms=step.now_ms)
        step.add(jobs, f"{plan.id}.before")
        step.add(member_jobs(plan, now_ms=step.now_ms), f"{plan.id}.member")
        step.told.append((plan.id, "before"))

    async def tell(self, steps: Sequence[Step]) -> None:
        """Tell the batches about the duties that are fulfilled, because all jobs of their steps are stored."""
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

    async def _open(self, plan: BatchPlan) -> bool:
        """Store a batch and its members. Return True if the batch exists already and was cancelled."""
        members = places_of_members(plan)
        opened = None
        for start in range(0, len(members), MEMBERS_PER_CALL):
            page = members[start : start + MEMBERS_PER_CALL]
            opened = await self._executor.run(
                calls.open_batch(
                    self._keys,
                    plan.id,
                    plan=encode(without_members(plan)),
                    allow_failures=plan.allow_failures,
                    seal=start + MEMBERS_PER_CALL >= len(members),
                    members=page,
                )
            )
        return opened is not None and opened.cancelled_ms is not None

    def _note_call(self, batch_id: str, steps: Sequence[Step]) -> Call[Noted]:
        notes = [step.follows.note for step in steps]
        return self._call(batch_id, [(note.member, note.word, note.job) for note in notes if note is not None])

    def _call(self, batch_id: str, rows: Sequence[calls.Row]) -> Call[Noted]:
        return note_members(self._keys, self._options, batch_id, rows)


def _stop_chains(steps: Sequence[Step], noted: Noted) -> None:
    """Drop the next links of members that may not go on, because their batch was cancelled."""
    for step, may_go_on in zip(steps, noted.answers, strict=True):
        note = step.follows.note
        if note is not None and note.word == "next" and not may_go_on:
            step.follows = FollowUps(note)
