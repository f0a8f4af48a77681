"""The operations on batches, available as `client.batches`."""

import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from delayq.core import clock
from delayq.core.batch_info import BatchInfo, MissingJob
from delayq.core.chain import BatchPlan, Chain, id_of, read_plan
from delayq.core.display import shown
from delayq.core.errors import (
    BackendError,
    BatchNotFound,
    CallRefused,
    Conflict,
    DelayqError,
    JobNotFailed,
    JobNotFound,
    NotConfirmed,
    replace_hint,
)
from delayq.core.follow_up import FollowUps, member_jobs
from delayq.core.job_spec import check_whole_number
from delayq.core.names import check_batch_id
from delayq.redis.batch_cancel import PresentJob, note_members
from delayq.redis.batch_duties import BatchDuties
from delayq.redis.calls import batches as calls
from delayq.redis.calls import inspect
from delayq.redis.calls import jobs as job_calls
from delayq.redis.calls.batches import Noted
from delayq.redis.calls.call import Call, value_of
from delayq.redis.calls.jobs import ShardsChanged
from delayq.redis.follow_up_sender import TOKEN_MS, FollowUpSender, Step
from delayq.redis.operations.base import Told
from delayq.redis.operations.jobs import JobOperations
from delayq.redis.session import Session
from delayq.redis.shard_counts import PATIENCE
from delayq.redis.trips import in_trips

MAX_LISTED: Final = 1_000


class BatchOperations:
    """Operations on batches. `jobs`: the job operations of the same client."""

    def __init__(self, session: Session, jobs: JobOperations[Any]) -> None:
        self._session = session
        self._jobs = jobs
        self._duties = BatchDuties(session.executor, session.keys, session.options, session.shards)
        self._sender = FollowUpSender(session.executor, session.keys, session.options, session.shards)

    async def get(self, id: str) -> BatchInfo | None:
        """Return the counts of a batch, or None if the id is unknown or the batch was deleted.

        Raises InvalidInput.
        """
        check_batch_id(id)
        values = await self._session.executor.run_all(calls.read_batch(self._session.keys, id))
        return _info(id, [value_of(value) for value in values])

    async def require(self, id: str) -> BatchInfo:
        """Return the counts of a batch. Raises BatchNotFound and InvalidInput."""
        info = await self.get(id)
        if info is None:
            raise _not_found(id)
        return info

    async def list(self, limit: int = 100) -> Sequence[BatchInfo]:
        """Return the counts of the newest batches, newest first. `limit`: 1 to 1,000 batches. Raises InvalidInput."""
        check_whole_number("limit", limit, least=1, most=MAX_LISTED)
        keys, executor = self._session.keys, self._session.executor
        while True:
            ids = await executor.run(calls.newest_batches(keys, limit))
            reads = [call for batch_id in ids for call in calls.read_batch(keys, batch_id)]
            values = [value_of(value) for value in await executor.run_all(reads)] if reads else []
            size = len(reads) // len(ids) if ids else 0
            infos = [_info(batch_id, values[n * size : (n + 1) * size]) for n, batch_id in enumerate(ids)]
            gone = [batch_id for batch_id, info in zip(ids, infos, strict=True) if info is None]
            if not gone or not await self._unlist(gone):
                return [info for info in infos if info is not None]

    async def failed(self, id: str, limit: int = 100) -> Sequence[tuple[str, str]]:
        """Return queue and id of the failed jobs of a batch, in no order. `limit`: maximum number of jobs, at least 1.

        A job that failed and was deleted later is in the list too. Raises BatchNotFound and InvalidInput.
        """
        check_whole_number("limit", limit, least=1)
        await self.require(id)
        jobs: list[tuple[str, str]] = []
        cursor = calls.FROM_START
        while len(jobs) < limit:
            cursor, broken = await self._session.executor.run(
                calls.scan_members(self._session.keys, id, "broken", cursor)
            )
            jobs += [_queue_and_id(job) for job in broken.values()]
            if cursor == calls.FROM_START:
                break
        return jobs[:limit]

    async def without_job(self, id: str, limit: int = 100) -> Sequence[MissingJob]:
        """Return the pending members that have no job, in no order. `limit`: maximum number of members, at least 1.

        Raises BatchNotFound and InvalidInput.
        """
        check_whole_number("limit", limit, least=1)
        await self.require(id)
        session = self._session
        missing: dict[MissingJob, None] = {}
        cursor = calls.FROM_START
        while len(missing) < limit:
            cursor, places = await session.executor.run(calls.scan_members(session.keys, id, "pending", cursor))
            present = [PresentJob.of(member, place) for member, place in places.items()]
            jobs = [(job.queue, job.id) for job in present]
            await session.shards.read_all([*dict.fromkeys(queue for queue, _ in jobs)])
            asking = [inspect.has_job(session.keys, session.shards.of_job(*job), job[1]) for job in jobs]
            has_job = [value_of(outcome) for outcome in await session.executor.run_all(asking)]
            missing |= {_missing(job): None for job, has in zip(present, has_job, strict=True) if not has}
            if cursor == calls.FROM_START:
                break
        return [*missing][:limit]

    async def cancel(self, id: str) -> BatchInfo:
        """Cancel a batch: its waiting members are cancelled. Running members may finish, but do not run again.

        Raises BatchNotFound, InvalidInput, and Conflict if the batch has finished. After another error, members that
        are not cancelled yet wait in their queues, and run unless the call is repeated.
        """
        info = await self.require(id)
        if info.finished_ms is not None:
            await self._catch_up(id)  # an earlier call may have failed before it could send all callbacks
            raise _finished(id)
        noted = await self._note(id, cancel=True)
        if noted.state == "unknown":
            raise _not_found(id)
        if noted.cancelled_ms is None:  # it has finished since it was read
            raise _finished(id)
        try:
            await self._catch_up(id)
        except BackendError as error:
            replace_hint(error, f"The cancellation of the batch {id!r} is not complete. Cancel the batch again later.")
            raise
        return await self.require(id)

    async def retry(self, id: str, *, progress: Told | None = None) -> int:
        """Retry the failed members of a batch, and return their number.

        Failed members that were retried or deleted before do not count. `progress` is called after each retry, with
        the number of retried members.

        Raises BatchNotFound and InvalidInput. If a member cannot be retried, for example because its payload is lost,
        the first such error is raised after all other members were retried.
        """
        await self.require(id)
        retried = 0
        errors: list[DelayqError] = []
        cursor = calls.FROM_START
        while True:
            cursor, broken = await self._session.executor.run(
                calls.scan_members(self._session.keys, id, "broken", cursor)
            )
            for queue, job_id in map(_queue_and_id, broken.values()):
                try:
                    await self._jobs.retry(job_id, queue=queue)
                except (JobNotFound, JobNotFailed):
                    continue
                except (Conflict, CallRefused) as error:
                    errors.append(error)
                    continue
                except NotConfirmed as error:  # the job was retried
                    errors.append(error)
                retried += 1
                if progress is not None:
                    progress(retried)
            if cursor == calls.FROM_START:
                break
        if errors:
            raise errors[0]
        return retried

    async def send(self, plan: BatchPlan) -> BatchInfo:
        """Store a batch and send its members; see PendingBatch.dispatch. Complete a batch that was sent in part."""
        session = self._session
        if session.create_storage is not None:
            session.create_storage()
        await self._duties.enlist(plan.id, int(clock.time() * 1000))
        pending = await self._open(plan, is_new=True)
        await self._catch_up(plan.id)
        await self._send_members(plan, pending, f"{plan.id}.member")
        return await self._sent(plan.id, pending)

    async def add(self, id: str, members: Sequence[Chain]) -> BatchInfo:
        """Add members to a running batch; see RunningBatch.add."""
        plan = BatchPlan(id, members=members)
        pending = await self._open(plan, is_new=False) if members else {}
        if pending:
            await self._send_members(plan, pending, f"{id}.{id_of(members[0].links[0])}")
        return await self._sent(id, pending)

    async def _sent(self, id: str, pending: Collection[str]) -> BatchInfo:
        return msgspec.structs.replace(await self.require(id), outcome="created" if pending else "kept")

    async def _open(self, plan: BatchPlan, *, is_new: bool) -> Mapping[str, bool]:
        """Store the members of a batch. Return the pending members as `BatchDuties.open` does.

        If the batch was cancelled, return no members.
        """
        opened, pending = await self._duties.open(plan, is_new=is_new)
        if opened.answer == "unknown":
            raise _not_found(plan.id)
        if opened.answer == "finished":
            raise Conflict(f"The batch {plan.id!r} has finished, so no members can be added.", field="id")
        return {} if opened.cancelled_ms is not None else pending

    async def _send_members(self, plan: BatchPlan, pending: Mapping[str, bool], token: str) -> None:
        """Send the pending members that were not sent yet. If the batch is cancelled in the meantime, stop.

        After each round trip, the batch records which members were sent, so that a repeated call does not send them
        again. If the program dies before it records this, the repeated call is still safe if it has the same members:
        then its round trips and their tokens are the same. Round trips with other members have other tokens.
        """
        session = self._session
        now_ms = await session.executor.run(inspect.server_time_ms())
        jobs = member_jobs(plan, now_ms=now_ms, when_now=True)
        until = time.monotonic() + PATIENCE
        unsent = {member for member, was_sent in pending.items() if not was_sent}
        trips = list(in_trips(enumerate(jobs), session.shards))
        if await self._has_stopped(plan.id):
            return
        while trips:
            shard, count, rows = trips[0]
            left = [job for _, job in rows if job.id in unsent]
            if not left:
                trips.pop(0)
                continue
            call = job_calls.schedule(
                session.keys,
                shard,
                left,
                taken="kept",
                high_water=session.options.high_water,
                lease_ms=session.options.lease_ms,
                token=f"{token}.{_digest([job.id for _, job in rows])}",
                once_ms=TOKEN_MS,
                shards=count,
            )
            try:
                await session.write(call, shard, may_create=True)
            except ShardsChanged:
                await session.shards.follow(jobs[rows[0][0]].queue, until=until)
                trips = list(in_trips(enumerate(jobs), session.shards))
                continue
            trips.pop(0)
            unsent.difference_update(job.id for job in left)
            if await self._duties.record_sent(plan.id, left):
                return

    async def _has_stopped(self, batch_id: str) -> bool:
        """Return True if a batch was cancelled. Then also cancel its waiting members."""
        if not await self._session.executor.run(calls.is_cancelled(self._session.keys, batch_id)):
            return False
        await self._duties.cancel_waiting(batch_id)
        return True

    async def _catch_up(self, batch_id: str) -> None:
        """Fulfill the duties of a batch that are due now."""
        while True:
            step = Step("", int(clock.time() * 1000), FollowUps())
            await self._duties.fulfill(step, batch_id, await self._note(batch_id))
            await self._sender.send([step])
            await self._duties.cancel_due([step])
            await self._duties.tell([step])
            if step.error is not None:
                raise step.error
            if step.again_in != 0.0:
                return

    async def _unlist(self, gone: Sequence[str]) -> bool:
        """Remove batches from the list of batches. Return False if none was removed.

        Reasons are that the Redis user may only read, or that the ids come from another program and are not UTF-8.
        """
        try:
            return await self._session.executor.run(calls.unlist_batches(self._session.keys, gone)) > 0
        except CallRefused:
            return False

    async def _note(self, batch_id: str, *, cancel: bool = False) -> Noted:
        call: Call[Noted] = note_members(self._session.keys, self._session.options, batch_id, (), cancel=cancel)
        return await self._session.executor.run(call)


def _info(batch_id: str, values: Sequence[Any]) -> BatchInfo | None:
    row = calls.batch_row(batch_id, values)
    if row is None:
        return None
    return BatchInfo(
        id=row.id,
        name=_name_of(row.plan),
        total=row.total,
        pending=row.pending,
        succeeded=row.succeeded,
        failed=row.broken,
        skipped=row.skipped,
        allows_failures=row.allow_failures,
        created_ms=row.created_ms,
        cancelled_ms=row.cancelled_ms,
        finished_ms=row.finished_ms,
    )


def _name_of(plan: bytes) -> str:
    """Return the name in a plan, or '' for a plan that another program has damaged."""
    try:
        return read_plan(plan).name
    except (msgspec.MsgspecError, UnicodeError):
        return ""


def _digest(ids: Sequence[str]) -> str:
    return hashlib.blake2b("\0".join(ids).encode(), digest_size=8).hexdigest()


def _missing(job: PresentJob) -> MissingJob:
    if not job.was_sent:
        return MissingJob(job.queue, job.id, job.member, "unsent")
    return MissingJob(job.queue, job.id, job.member, "ended" if job.is_first else "next")


def _queue_and_id(job: str) -> tuple[str, str]:
    queue, _, job_id = job.partition(" ")
    return queue, job_id


def _finished(batch_id: str) -> Conflict:
    return Conflict(f"The batch {batch_id!r} has finished.", hint="Only a running batch can be cancelled.", field="id")


def _not_found(batch_id: str) -> BatchNotFound:
    return BatchNotFound(
        f"No batch has the id {shown(batch_id)}.",
        hint="A batch is kept for 7 days after its end, and longer if members have failed.",
        field="id",
    )
