"""What carries follow-ups to where they belong, without I/O: jobs to their queues, notes and openings to batches.

Every step may be done twice. A job has an id of its own and a token that Redis remembers for a week, so what is sent
again after a crash is not a second job; a batch counts members, not notes.

    follow-up  send   schedule.lua, in the job's queue
               open   batch_open.lua, then its members are sent, then it is sealed
               add    batch_open.lua, then its members are sent
               note   batch_note.lua, then what is due of the batch is sent, then batch_told.lua
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from delayq.core import follow, followups
from delayq.core.ending import displaced, displaced_batch
from delayq.core.envelope import Envelope
from delayq.core.errors import Conflict
from delayq.core.follow import Part
from delayq.core.followups import Add, End, Link, Note, Open, Plan, Send, Todo, Word
from delayq.core.own_ids import are_siblings, is_the_same
from delayq.core.spec import Prepared
from delayq.core.states import Answer
from delayq.redis import callbacks
from delayq.redis.callbacks import CALLBACKS, Bound
from delayq.redis.called_off import called_off
from delayq.redis.calls import follow as calls
from delayq.redis.calls import produce
from delayq.redis.calls.call import Command, Scope, hash_page, pages, text
from delayq.redis.calls.follow import Counted, Standing, Told, told_by
from delayq.redis.follow_jobs import chunks, each, is_there, prepared, schedule_once
from delayq.redis.keys import Globals, Keys
from delayq.redis.placing import Batch, put
from delayq.redis.taken_ids import became_of, taken
from delayq.redis.unheard import Unheard
from delayq.redis.verbs import Flow, Verbs
from delayq.redis.walk import Walk

UNDER_WAY = 100
Chunks = Callable[[Scope, Sequence[Prepared]], Iterator[Batch]]

log = logging.getLogger("delayq.redis")


class FollowVerbs:
    """Carries follow-ups on one prefix."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def do(self, ends: Sequence[tuple[str, Todo]], walk: Walk | None = None) -> Flow[list[bool]]:
        """Carry everything that follows some ends; for each, False when a job of it has to wait for a unique key.

        The text beside each names that end: the same one every time it is carried. What is told of one batch travels
        together, in order.
        """
        walk = walk or Walk()
        for note in follow.joining(item for _, todo in ends for item in todo):
            for some in pages(told_by(note), produce.MAX_JOBS):
                yield calls.batch_note(self._place(note.batch), some)
        bound = [
            Bound(f"{token}.{n}", item) for token, todo in ends for n, item in enumerate(todo) if isinstance(item, Send)
        ]
        sent = dict(zip((job.token for job in bound), (yield from self.send(bound, walk)), strict=True))
        notes: dict[str, list[Told]] = {}
        for _, todo in ends:
            for item in todo:
                if isinstance(item, Open):
                    yield from self._begin(item.plan, walk)
                elif isinstance(item, Add):
                    yield from self.add(item.batch, item.members, walk)
                elif isinstance(item, Note):
                    notes.setdefault(item.batch, []).extend(told_by(item))
        for batch, members in notes.items():
            yield from self.note(batch, members, walk=walk)
        return [all(sent.get(f"{token}.{n}", True) for n in range(len(todo))) for token, todo in ends]

    def send(self, jobs: Sequence[Bound], walk: Walk | None = None) -> Flow[list[bool]]:
        """Schedule jobs; for each, False when it has to wait for the owner of its unique key."""
        sent: dict[int, bool] = {}
        for queue in sorted({bound.job.queue for bound in jobs}):
            yield from self._verbs.register(queue)
            numbers = [n for n, bound in enumerate(jobs) if bound.job.queue == queue]
            ready = [prepared(jobs[n].job) for n in numbers]
            tokens = {id(job): jobs[n].token for n, job in zip(numbers, ready, strict=True)}

            def make(scope: Scope, mine: Sequence[Prepared], tokens: dict[int, str] = tokens) -> Iterator[Batch]:
                return (Batch(schedule_once(scope, tokens[id(job)], [job]), [job]) for job in mine)

            refs = yield from put(self._verbs, queue, ready, make, under_way=UNDER_WAY)
            sent |= {n: is_there(ref, jobs[n].job) for n, ref in zip(numbers, refs, strict=True)}
            for n, ref in zip(numbers, refs, strict=True):
                if ref.outcome is Answer.KEPT and sent[n]:
                    yield from self._displaced(jobs[n], walk or Walk())
        return [sent[n] for n in range(len(jobs))]

    def _displaced(self, bound: Bound, walk: Walk) -> Flow[None]:
        """A job whose id was taken when its turn came: unless it was sent before, its batch and its chain are told.

        It does not run; whoever has the id is left alone.
        """
        job = bound.job
        _, info = yield from self._verbs.read(job.id, job.queue)
        there = info.envelope if info is not None else None
        if there is None or not is_the_same(bytes(job.envelope), there):
            yield from self._pass_by(bound.token, prepared(job), there, walk)

    def _pass_by(self, token: str, job: Prepared, there: Envelope | None, walk: Walk) -> Flow[None]:
        log.warning("the id %s was taken in the queue %s when its turn came; it does not run", job.id, job.queue)
        sibling = there is not None and are_siblings(job.envelope, there)
        todo = displaced(job.envelope, job.queue, (yield from self._verbs.server_ms()), sibling=sibling)
        yield from self.do([(f"{token}.displaced", todo)], walk)

    # -- batches -----------------------------------------------------------------------------------------------------

    def open(self, plan: Plan, walk: Walk | None = None) -> Flow[Standing]:
        """Begin a batch: members are known first, then sent, then it is sealed.

        Done again, it is the same batch: what was left undone is done, and one that is sealed answers as it stands.
        Raises `Conflict` when another batch has its id.
        """
        walk = walk or Walk()
        now_ms = yield from self._verbs.server_ms()
        yield Command(("ZADD", Globals(self._verbs.options.prefix).batches, "NX", now_ms, plan.id), int)
        known, members = followups.encode_plan(plan), follow.ids_of(plan.members)
        for some in pages(members, produce.MAX_JOBS) or [[]]:
            opened: calls.Opened = yield calls.batch_open(
                self._place(plan.id), known, some, allow=plan.allow_failures, origin=plan.origin
            )
            if opened.answer == "taken":
                raise taken(plan.id)
            if opened.answer == "sealed":
                return (yield from self._standing(plan, walk))
        # Who cancels the outer one now finds this one; who did so before it had its name may have missed it.
        if (yield from self._called_off(follow.part_of_batch(plan, 0))):
            yield from self.note(plan.id, cancel=True, walk=walk)
            return (yield from self._standing(plan, walk))
        yield from self.send(callbacks.before(plan, now_ms))
        yield from self._send_members(plan.id, plan.members, now_ms, partial(chunks, plan.id), walk)
        yield from self.note(plan.id, seal=True, walk=walk)
        standing = yield from self._standing(plan, walk)
        if standing.cancelled_ms is not None:  # while they were sent: some may have come to their queue after that
            unheard = Unheard(self._verbs, plan.id)
            yield from self._call_off(unheard, [(member, Counted(queue)) for member, queue in members], walk)
            standing = yield from self._standing(plan, walk)
        return standing

    def _standing(self, plan: Plan, walk: Walk) -> Flow[Standing]:
        """How a batch stands that is there; one that was forgotten this very moment is begun anew."""
        standing = yield from self.note(plan.id, walk=walk)
        return (yield from self.open(plan, walk)) if standing is None else standing

    def _begin(self, plan: Plan, walk: Walk) -> Flow[None]:
        """Open a batch whose turn has come, unless the one it is a member of was cancelled."""
        part = follow.part_of_batch(plan, 0)
        if not (yield from self._called_off(part)):
            try:
                yield from self.open(plan, walk)
            except Conflict:
                log.warning("the batch %s does not begin: its id was another one's when its turn came", plan.id)
                todo = displaced_batch(plan, (yield from self._verbs.server_ms()))
                yield from self.do([(f"{plan.origin}.{plan.id}.displaced", todo)], walk)
        elif (yield from self.note(plan.id, cancel=True, walk=walk)) is None:  # one that was begun tells how it ends
            todo = follow.follow_ups(part, End.CANCELLED, (yield from self._verbs.server_ms()))
            yield from self.do([(f"{plan.id}.skipped", todo)], walk)

    def _called_off(self, part: Part) -> Flow[bool]:
        if part.batch is None:
            return False
        return (yield from called_off(self._verbs, part.batch, part.id, part.spared))

    def add(self, batch: str, members: Sequence[Link], walk: Walk | None = None) -> Flow[str]:
        """Let a batch have more members; answers added, unknown, finished or cancelled.

        Done again with the same members, what was left undone is done. Each is sent for itself: what else is added
        with it may be another thing the second time.
        """
        now_ms = yield from self._verbs.server_ms()
        answer = ""
        for some in pages(follow.ids_of(members), produce.MAX_JOBS) or [[]]:
            opened: calls.Opened = yield calls.batch_open(self._place(batch), b"", some)
            if (answer := opened.answer) != "added":
                return answer
        yield from self._send_members(batch, members, now_ms, partial(each, batch), walk or Walk())
        return answer

    def _send_members(self, batch: str, members: Sequence[Link], now_ms: int, make: Chunks, walk: Walk) -> Flow[None]:
        """The heads of all members, queue by queue; batches in the batch are opened."""
        queues: dict[str, list[Prepared]] = {}
        for member in members:
            item = follow.launch(member, now_ms)
            if isinstance(item, Send):
                queues.setdefault(item.queue, []).append(prepared(item))
            elif isinstance(item, Open):
                yield from self._begin(item.plan, walk)
        for queue, jobs in sorted(queues.items()):
            yield from self._verbs.register(queue)
            refs = yield from put(self._verbs, queue, jobs, make, under_way=UNDER_WAY)
            kept = [job for ref, job in zip(refs, jobs, strict=True) if ref.outcome is not Answer.CREATED]
            told, passed_by = yield from became_of(self._verbs, kept)
            for some in pages(told, produce.MAX_JOBS):
                yield calls.batch_note(self._place(batch), some)
            for job, there in passed_by:
                yield from self._pass_by(f"{batch}.{job.id}", job, there, walk)

    def note(
        self,
        batch: str,
        members: Sequence[Told] = (),
        *,
        seal: bool = False,
        cancel: bool = False,
        walk: Walk | None = None,
    ) -> Flow[Standing | None]:
        """Write down what became of members, and send what is due because of it; None for a batch that is gone."""
        walk = walk or Walk()
        standing: Standing | None = None
        for some in pages(members, produce.MAX_JOBS) or [[]]:
            standing = yield calls.batch_note(self._place(batch), some, seal=seal, cancel=cancel)
        while standing is not None and standing.due and walk.may_settle(batch):
            walk.enter(batch)
            yield from self._settle(batch, standing, walk)
            if not walk.leave(batch) and "cancel" not in standing.due:  # members end because of a cancel
                break
            standing = yield calls.batch_note(self._place(batch))
        return standing

    def _settle(self, batch: str, standing: Standing, walk: Walk) -> Flow[None]:
        """Send what is due of a batch, and write down that it was sent."""
        plan, now_ms = followups.decode_plan(standing.plan), (yield from self._verbs.server_ms())
        part, told = follow.part_of_batch(plan, standing.round), callbacks.numbers(plan, standing)
        for name in standing.due:
            if name in CALLBACKS:
                yield from self.send(callbacks.called(name, plan, standing, now_ms))
            elif name == "cancel":
                yield from self._cancel_pending(batch, walk)
            elif name == "resumed":
                yield from self._resume(part, walk)
            else:
                todo = follow.follow_ups(part, _end(standing, well=name == "onward"), now_ms, told)
                yield from self.do([(f"{batch}.{name}.{standing.round}", todo)], walk)
        yield calls.batch_told(self._place(batch), standing.due, standing)

    def _resume(self, part: Part, walk: Walk) -> Flow[None]:
        """Tell the batch that this one is a member of that it goes on, and lift what cancelled that until now."""
        outer: Standing | None = None
        if part.batch is not None:
            outer = yield calls.batch_note(self._place(part.batch))
        if outer is not None and part.chain is not None:
            spared = msgspec.structs.replace(part.chain, spared=outer.cancels)
            yield from self.do([("", follow.taken_up(Part(part.id, spared, part.batch)))], walk)

    def _cancel_pending(self, batch: str, walk: Walk) -> Flow[None]:
        """Cancel the members that have not started; what runs goes on, and each tells by itself how it ended."""
        pending = Keys(self._verbs.options.prefix, f"batch:{batch}").of("pending")
        cursor, unheard = 0, Unheard(self._verbs, batch)
        while True:
            cursor, flat = yield Command(("HSCAN", pending, cursor, "COUNT", 500), hash_page, True)
            pairs = zip(flat[::2], flat[1::2], strict=True)
            yield from self._call_off(unheard, [(text(member), calls.counted(raw)) for member, raw in pairs], walk)
            if cursor == 0:
                return

    def _call_off(self, unheard: Unheard, members: Sequence[tuple[str, Counted]], walk: Walk) -> Flow[None]:
        """Cancel those of these members that have not started, and write down what became of all but those that run.

        A job that has taken a member's id, and is none, is left alone. Of those that are gone counts first what their
        queues have to say.
        """
        told: list[Told] = []
        gone: set[str] = set()
        ours = f'"batch":{text(bytes(followups.encode_membership(unheard.batch)))}'
        for member, (queue, retried) in members:
            if queue:
                done = yield from self._verbs.cancelled(member, queue, only=ours)
                word = calls.ENDED.get(done.answer)
                gone |= {queue} if done.answer is Answer.UNKNOWN else set()
            else:
                inner = yield from self.note(member, cancel=True, walk=walk)
                word = Word.SKIPPED if inner is None else inner.word
            if word is not None:
                told.append(Told(member, word, retried))
        heard = yield from unheard.of(gone)
        for some in pages([*heard, *told], produce.MAX_JOBS):
            yield calls.batch_note(self._place(unheard.batch), some)

    def _place(self, batch: str) -> Scope:
        return calls.place(self._verbs.scope(None), batch)


def _end(standing: Standing, *, well: bool) -> End:
    if well:
        return End.DONE
    return End.FAILED if standing.failed else End.CANCELLED
