"""What carries follow-ups to where they belong, without I/O: jobs to their queues, notes and openings to batches.

Every step may be done twice. A job has an id of its own and a token that Redis remembers for a week, so what is sent
again after a crash is not a second job; a batch counts members, not notes.

    follow-up  send   schedule.lua, in the job's queue
               open   batch_open.lua, then its members are sent, then it is sealed
               note   batch_note.lua, then what is due of the batch is sent, then batch_told.lua
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from delayq.core import envelope as envelopes
from delayq.core import follow
from delayq.core.errors import BadEnvelope
from delayq.core.follow import ONCE_MS, End, Link, Note, Open, Part, Plan, Send, Todo, Word
from delayq.core.spec import Prepared
from delayq.core.states import Answer, OnConflict
from delayq.core.unique import word_of
from delayq.core.views import JobRef
from delayq.redis.calls import follow as calls
from delayq.redis.calls import produce
from delayq.redis.calls.call import Call, Command, Scope, pages, scanned, text
from delayq.redis.calls.follow import Standing
from delayq.redis.keys import Globals, Keys
from delayq.redis.placing import Batch, put, token_of
from delayq.redis.verbs import Flow, Verbs

UNDER_WAY = 100
CALLBACKS = ("progress", "catch", "finally", "then")


class Bound(NamedTuple):
    """A job to send and the token that makes it one job."""

    token: str
    job: Send


class FollowVerbs:
    """Carries follow-ups on one prefix."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def do(self, ends: Sequence[tuple[str, Todo]]) -> Flow[list[bool]]:
        """Carry everything that follows some ends; for each, False when a job of it has to wait for a unique key.

        The text beside each names that end: the same one every time it is carried. What is told of one batch travels
        together, in order.
        """
        bound = [
            Bound(f"{token}.{n}", item) for token, todo in ends for n, item in enumerate(todo) if isinstance(item, Send)
        ]
        sent = dict(zip((job.token for job in bound), (yield from self.send(bound)), strict=True))
        notes: dict[str, list[tuple[str, Word]]] = {}
        for _, todo in ends:
            for item in todo:
                if isinstance(item, Open):
                    yield from self._begin(item.plan)
                elif isinstance(item, Note):
                    notes.setdefault(item.batch, []).extend(item.members)
        for batch, members in notes.items():
            yield from self.note(batch, members)
        return [all(sent.get(f"{token}.{n}", True) for n in range(len(todo))) for token, todo in ends]

    def send(self, jobs: Sequence[Bound]) -> Flow[list[bool]]:
        """Schedule jobs; for each, False when it has to wait for the owner of its unique key."""
        sent: dict[int, bool] = {}
        for queue in sorted({bound.job.queue for bound in jobs}):
            yield from self._verbs.register(queue)
            numbers = [n for n, bound in enumerate(jobs) if bound.job.queue == queue]
            ready = [_prepared(jobs[n].job) for n in numbers]
            tokens = {id(job): jobs[n].token for n, job in zip(numbers, ready, strict=True)}

            def make(scope: Scope, mine: Sequence[Prepared], tokens: dict[int, str] = tokens) -> Iterator[Batch]:
                return (Batch(_schedule(scope, tokens[id(job)], [job]), [job]) for job in mine)

            refs = yield from put(self._verbs, queue, ready, make, under_way=UNDER_WAY)
            sent |= {n: _is_there(ref, jobs[n].job) for n, ref in zip(numbers, refs, strict=True)}
        return [sent[n] for n in range(len(jobs))]

    # -- batches -----------------------------------------------------------------------------------------------------

    def open(self, plan: Plan) -> Flow[Standing]:
        """Begin a batch: members are known first, then sent, then it is sealed.

        Done again, it is the same batch: what was left undone is done, and one that is sealed answers as it stands.
        """
        now_ms = yield from self._verbs.server_ms()
        yield Command(("ZADD", Globals(self._verbs.options.prefix).batches, "NX", now_ms, plan.id), int)
        known, members = follow.encode_plan(plan), follow.ids_of(plan.members)
        for some in pages(members, produce.MAX_JOBS) or [[]]:
            opened: calls.Opened = yield calls.batch_open(self._place(plan.id), known, some, allow=plan.allow_failures)
            if opened.answer == "sealed":
                return (yield from self._standing(plan))
        yield from self.send(_bound(f"{plan.id}.before", plan.callbacks.before, now_ms))
        yield from self._send_members(plan.id, plan.members, now_ms)
        yield from self.note(plan.id, seal=True)
        standing = yield from self._standing(plan)
        if standing.cancelled_ms is not None:  # while they were sent: some may have come to their queue after that
            yield from self._call_off(plan.id, members)
            standing = yield from self._standing(plan)
        return standing

    def _standing(self, plan: Plan) -> Flow[Standing]:
        """How a batch stands that is there; one that was forgotten this very moment is begun anew."""
        standing = yield from self.note(plan.id)
        return (yield from self.open(plan)) if standing is None else standing

    def _begin(self, plan: Plan) -> Flow[None]:
        """Open a batch whose turn has come, unless the one it is a member of was cancelled."""
        if plan.batch is not None and (yield from self._cancelled(plan.batch)):
            now_ms, part = (yield from self._verbs.server_ms()), Part(plan.id, plan.chain, plan.batch)
            yield from self.do([(f"{plan.id}.skipped", follow.follow_ups(part, End.CANCELLED, now_ms))])
            return
        yield from self.open(plan)
        if plan.batch is not None and (yield from self._cancelled(plan.batch)):  # before this one could be found
            yield from self.note(plan.id, cancel=True)

    def _cancelled(self, batch: str) -> Flow[bool]:
        plan = Keys(self._verbs.options.prefix, f"batch:{batch}").of("plan")
        found: bool = yield Command(("HEXISTS", plan, "cancelled_ms"), bool, True)
        return found

    def add(self, batch: str, members: Sequence[Link]) -> Flow[str]:
        """Let a batch have more members; answers added, unknown, finished or cancelled."""
        now_ms = yield from self._verbs.server_ms()
        answer = ""
        for some in pages(follow.ids_of(members), produce.MAX_JOBS) or [[]]:
            opened: calls.Opened = yield calls.batch_open(self._place(batch), b"", some)
            if (answer := opened.answer) != "added":
                return answer
        yield from self._send_members(batch, members, now_ms)
        return answer

    def _send_members(self, batch: str, members: Sequence[Link], now_ms: int) -> Flow[None]:
        """The heads of all members, chunk by chunk and queue by queue; batches in the batch are opened."""
        queues: dict[str, list[Prepared]] = {}
        for member in members:
            item = follow.launch(member, now_ms)
            if isinstance(item, Send):
                queues.setdefault(item.queue, []).append(_prepared(item))
            elif isinstance(item, Open):
                yield from self._begin(item.plan)
        for queue, jobs in sorted(queues.items()):
            yield from self._verbs.register(queue)
            yield from put(self._verbs, queue, jobs, partial(_members, batch))

    def note(
        self, batch: str, members: Sequence[tuple[str, Word]] = (), *, seal: bool = False, cancel: bool = False
    ) -> Flow[Standing | None]:
        """Write down what became of members, and send what is due because of it; None for a batch that is gone."""
        standing: Standing | None = None
        for some in pages(members, produce.MAX_JOBS) or [[]]:
            standing = yield calls.batch_note(self._place(batch), some, seal=seal, cancel=cancel)
        if standing is not None and standing.due:
            yield from self._settle(batch, standing)
            if "cancel" in standing.due:  # then members have ended because of it
                return (yield from self.note(batch))
        return standing

    def _settle(self, batch: str, standing: Standing) -> Flow[None]:
        """Send what is due of a batch, and write down that it was sent."""
        plan, now_ms = follow.decode_plan(standing.plan), (yield from self._verbs.server_ms())
        told = _numbers(batch, standing)
        for name in standing.due:
            if name in CALLBACKS:
                links = _callbacks(plan, name)
                again = f".{standing.round}.{standing.ended}" if name == "progress" else ""
                token = f"{batch}.{name}{again or f'.{standing.round}'}"
                yield from self.send(_bound(token, links, now_ms, told, again))
            elif name == "cancel":
                yield from self._cancel_pending(batch)
            elif name == "resumed":
                taken_up = follow.taken_up(Part(plan.id, plan.chain, plan.batch))
                yield from self.do([(f"{batch}.resumed.{standing.round}", taken_up)])
            else:
                end = _end(standing, well=name == "onward")
                part = Part(plan.id, plan.chain, plan.batch)
                todo = follow.follow_ups(part, end, now_ms, told)
                yield from self.do([(f"{batch}.{name}.{standing.round}", todo)])
        yield calls.batch_told(self._place(batch), standing.due, standing)

    def _cancel_pending(self, batch: str) -> Flow[None]:
        """Cancel the members that have not started; what runs goes on, and each tells by itself how it ended."""
        pending = Keys(self._verbs.options.prefix, f"batch:{batch}").of("pending")
        cursor = 0
        while True:
            cursor, flat = yield Command(("HSCAN", pending, cursor, "COUNT", 500), scanned, True)
            pairs = zip(flat[::2], flat[1::2], strict=True)
            yield from self._call_off(batch, [(text(member), text(queue)) for member, queue in pairs])
            if not cursor:
                return

    def _call_off(self, batch: str, members: Sequence[tuple[str, str]]) -> Flow[None]:
        """Cancel those of these members that have not started, and write down what became of all but those that run."""
        words: list[tuple[str, Word]] = []
        for member, queue in members:
            if queue:
                word = calls.ENDED.get((yield from self._verbs.cancel(member, queue, running=False)))
            else:
                inner = yield from self.note(member, cancel=True)
                word = Word.SKIPPED if inner is None else inner.word
            if word is not None:
                words.append((member, word))
        for some in pages(words, produce.MAX_JOBS):
            yield calls.batch_note(self._place(batch), some)

    def _place(self, batch: str) -> Scope:
        return calls.place(self._verbs.scope(None), batch)


def todo_of(owed: calls.Owed, now_ms: int) -> Todo:
    """What an entry of an outbox asks for. Raises `BadEnvelope`."""
    if "todo" in owed.fields:
        return follow.decode_todo(owed.fields["todo"])
    try:
        part, end = follow.part_of(owed.fields["job"]), End(text(owed.fields["ended"]))
    except (KeyError, ValueError):
        raise BadEnvelope(f"The entry {owed.entry} of an outbox is none of ours.") from None
    return follow.follow_ups(part, end, now_ms, {f"{follow.FAILED_HEADER}id": part.id}) if part else []


def _prepared(job: Send) -> Prepared:
    return Prepared(job.id, bytes(job.envelope), f"+{job.delay_ms}", word_of(job.unique), "", job.queue, own_id=True)


def _schedule(scope: Scope, token: str, jobs: Sequence[Prepared]) -> Call[produce.Scheduled]:
    """One call for jobs of one shard."""
    return produce.schedule(scope, jobs, OnConflict.KEEP, token, once_ms=ONCE_MS)


def _members(batch: str, scope: Scope, jobs: Sequence[Prepared]) -> Iterator[Batch]:
    """Members of a batch that belong to one shard, chunk by chunk."""
    for chunk in produce.chunks(jobs):
        yield Batch(_schedule(scope, token_of(f"{batch}.{chunk[0].id}", chunk), chunk), chunk)


def _is_there(ref: JobRef, job: Send) -> bool:
    return ref.outcome is Answer.CREATED or ref.id == job.id


def _bound(
    token: str, links: Iterable[Link], now_ms: int, headers: dict[str, str] | None = None, again: str = ""
) -> list[Bound]:
    """Callbacks as jobs; `again` makes another job of one that is sent more than once."""
    bound = []
    for n, link in enumerate(links):
        item = follow.launch(link, now_ms, headers)
        assert isinstance(item, Send)  # a callback is a job: the builder takes nothing else
        bound.append(Bound(f"{token}.{n}", _renamed(item, again) if again else item))
    return bound


def _renamed(job: Send, ending: str) -> Send:
    """The same under an id of its own, for what is sent more than once."""
    own_id = job.id + ending
    raw = msgspec.Raw(envelopes.rewrite(bytes(job.envelope), id=own_id))
    return msgspec.structs.replace(job, id=own_id, envelope=raw)


def _callbacks(plan: Plan, name: str) -> list[Link]:
    links: list[Link] = getattr(plan.callbacks, "finally_" if name == "finally" else name)
    return links


def _numbers(batch: str, standing: Standing) -> dict[str, str]:
    """Headers of what a batch sends: how it stands."""
    numbers = {"done": standing.done, "failed": standing.failed, "skipped": standing.skipped}
    numbers["total"] = standing.pending + standing.ended
    return {"delayq-batch-id": batch, **{f"delayq-batch-{name}": str(value) for name, value in numbers.items()}}


def _end(standing: Standing, *, well: bool) -> End:
    if well:
        return End.DONE
    return End.FAILED if standing.failed else End.CANCELLED
