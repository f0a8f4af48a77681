"""Rules: what producers and operators ask of delayq."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from delayq.core.shards import PLAIN, Layout
from delayq.core.spec import Prepared
from delayq.core.states import OnConflict, State
from delayq.core.views import JobRef
from delayq.redis.calls import inspect, produce
from delayq.redis.calls.call import Call
from delayq.redis.calls.inspect import NO_WORD
from tests.support.model_machine import DIGESTS, IDS, START_MS, WHICH, QueueMachine
from tests.support.model_produce import Ask, Said, Told, sha1
from tests.support.model_rig import QUEUE
from tests.support.model_state import exact
from tests.support.model_view import order

ARCHIVED = b'{"type":"Archived","message":"no"}'
WHENS = st.sampled_from(["+0", "+0", "+0", "+4000", "+20000", str(START_MS - 5000), str(START_MS + 30_000)])


class Wish(NamedTuple):
    """A job to schedule: id, when, unique digest, retention in ms."""

    id: str
    when: str = "+0"
    digest: str = ""
    keep: int = 0


WISHES = st.builds(
    Wish, st.sampled_from(IDS), when=WHENS, digest=st.sampled_from(DIGESTS), keep=st.sampled_from([0, 0, 15_000])
)


class ProducerRules(QueueMachine):
    """schedule, cancel, archive, reschedule, run_now, retry, forget, clear, pause, resume, remove, and the views."""

    @rule(asks=st.lists(WISHES, min_size=1, max_size=2), conflict=st.sampled_from(OnConflict), resend=st.booleans())
    def schedule(self, asks: list[Wish], conflict: OnConflict, resend: bool) -> None:
        self.begin()
        self.ask(asks, conflict, resend=resend)

    def ask(self, wishes: Sequence[Wish], conflict: OnConflict, *, resend: bool = False) -> None:
        """Schedule some jobs in one call; perhaps the reply is lost and the same call sent again."""
        jobs = [Ask(wish.id, self._envelope_for(wish), wish.when, wish.digest) for wish in wishes]
        prepared = [Prepared(job.id, job.raw, job.when, job.digest, "job", QUEUE, own_id=True) for job in jobs]
        concerned = {job.id for job in jobs} | {self.model.owners.get(job.digest, job.id) for job in jobs}
        token = f"t{self.number()}"
        call = produce.schedule(self.scope, prepared, conflict, token)
        got = self.rig.send(call)
        assert (got.moved is not None) == (self.model.layout > self.layout.epoch), f"layout: {got.moved}"
        if got.moved is not None:
            self.settle(unchanged=True)
            self.layout = got.moved
            call = produce.schedule(self.scope, prepared, conflict, token)
            got = self.rig.send(call)
        self.model.layout = self.layout.epoch
        told = [_told(ref) for ref in got.refs]
        self.expect(concerned, self._foretell(jobs, conflict), told)
        assert got.new_queue == ("schema" not in self.view.meta), f"the queue is said to be new: {got.new_queue}"
        for job, answer in zip(jobs, told, strict=True):
            if answer.answer in ("created", "replaced"):
                self.ledger.owed[job.id] = job.raw
            if len({other.id for other in jobs}) == len(jobs):
                self.check_free(job.id, answer.answer)
        self.settle(
            concerned, gone=[answer.id for answer in told if answer.answer in ("created", "replaced", "postponed")]
        )
        if any(key.endswith(f"once:{token}") for key in call.keys):
            self.sent_it(call, got, resend=resend)

    def sent_it(self, call: Call[Any], got: object, *, resend: bool) -> None:
        """Perhaps the reply is lost, and the call sent again: at once, or when other things have happened."""
        if resend:
            assert self.rig.send(call) == got, "the same command, sent again, was answered differently"
            self.settle(unchanged=True)
        if self.rig.answers().intersection(call.keys):
            self.sent.append((call, got))

    @precondition(lambda self: self.sent)
    @rule(which=WHICH)
    def resend(self, which: int) -> None:
        """A reply was lost long ago. The call is answered as it was, and does nothing, whatever happened since."""
        self.begin()
        call, got = self.sent[which % len(self.sent)]
        assert self.rig.send(call) == got, "the same command, sent again later, was answered differently"
        self.settle(unchanged=True)

    def _envelope_for(self, wish: Wish) -> bytes:
        return self.envelope(wish.id, digest=wish.digest, retention=wish.keep)

    def _foretell(self, jobs: list[Ask], conflict: OnConflict) -> list[Told]:
        match conflict:
            case OnConflict.KEEP:
                return self.model.schedule(jobs, "kept")
            case OnConflict.ERROR:
                return self.model.schedule(jobs, "conflict")
            case OnConflict.REPLACE:
                return self.model.replace(jobs, "replaced")
            case OnConflict.POSTPONE:
                return self.model.replace(jobs, "postponed")

    @precondition(lambda self: self.view.jobs)
    @rule(which=WHICH, running=st.booleans(), resend=st.booleans())
    def cancel(self, which: int, running: bool, resend: bool) -> None:
        self.begin()
        job_id = self.known_id(which)
        call = produce.cancel(self.scope, job_id, running=running, token=f"t{self.number()}")
        answer = self.rig.send(call)
        self.expect([job_id], self.model.cancel(job_id, running=running), answer)
        self.check_free(job_id, answer)
        gone = [job_id] if answer == "cancelled" else []
        self.forgive(gone)
        self.settle([job_id], gone=gone)
        self.sent_it(call, answer, resend=resend)

    @precondition(lambda self: self.view.jobs)
    @rule(which=WHICH, resend=st.booleans())
    def archive(self, which: int, resend: bool) -> None:
        self.begin()
        job_id = self.known_id(which, "scheduled", "ready")
        call = produce.archive(self.scope, job_id, "no", token=f"t{self.number()}")
        got = self.rig.send(call)
        self.expect([job_id], self.model.archive(job_id, ARCHIVED), got.answer)
        assert got.job == b"", "nothing follows these jobs"
        self.check_free(job_id, "cancelled" if got.answer == "archived" else got.answer)
        self.forgive([job_id] if got.answer == "archived" else [])
        self.settle([job_id])
        self.sent_it(call, got, resend=resend)

    @precondition(lambda self: self.view.jobs)
    @rule(which=WHICH, when=WHENS)
    def reschedule(self, which: int, when: str) -> None:
        self.begin()
        job_id = self.known_id(which, "scheduled", "ready")
        got = _said(self.rig.send(produce.reschedule(self.scope, job_id, when)))
        self.expect([job_id], self.model.reschedule(job_id, when), got)
        self.check_free(job_id, got.answer)
        self.settle([job_id], gone=[job_id] if got.answer == "rescheduled" else [])

    @precondition(lambda self: self.view.jobs)
    @rule(which=WHICH)
    def run_now(self, which: int) -> None:
        self.begin()
        job_id = self.known_id(which, "scheduled")
        got = _said(self.rig.send(produce.run_now(self.scope, job_id)))
        self.expect([job_id], self.model.run_now(job_id), got)
        self.settle([job_id])

    @precondition(lambda self: self.view.failed)
    @rule(which=WHICH, stale=st.booleans(), digest=st.sampled_from(DIGESTS))
    def retry(self, which: int, stale: bool, digest: str) -> None:
        self.begin()
        job_id = self.known_id(which, "failed")
        read = b"something older" if stale else self.view.jobs.get(job_id, b"")
        raw = self.envelope(job_id, digest=digest)
        concerned = {job_id, self.model.owners.get(digest, job_id)}
        got = _said(self.rig.send(produce.retry(self.scope, job_id, sha1(read), raw, digest)))
        self.expect(concerned, self.model.retry(job_id, read, raw, digest), got)
        if got.answer == "scheduled":
            self.ledger.owed[job_id] = raw
        self.settle(concerned, gone=[job_id] if got.answer == "scheduled" else [])

    @precondition(lambda self: self.view.failed or self.view.completed)
    @rule(several=st.lists(WHICH, min_size=1, max_size=2), buried=st.booleans())
    def forget(self, several: list[int], buried: bool) -> None:
        self.begin()
        job_ids = [self.known_id(which, "failed", "completed") for which in several]
        self.drop_ended(job_ids + ([job_id for job_id in self.view.failed if job_id not in IDS] if buried else []))

    def drop_ended(self, asked: list[str]) -> None:
        """Forget what failed or is completed."""
        got = self.rig.send(produce.forget(self.scope, asked))
        self.expect(asked, self.model.forget(asked), got)
        gone = [job_id for job_id, answer in zip(asked, got, strict=True) if answer == "forgotten"]
        self.forgive(gone)
        self.settle(asked, gone=gone)

    @precondition(lambda self: self.view.scheduled)
    @rule(limit=st.sampled_from([1, 500]))
    def clear(self, limit: int) -> None:
        self.begin()
        self.drop_waiting(limit)

    def drop_waiting(self, limit: int) -> None:
        dropped = self.rig.send(inspect.clear(self.scope, limit))
        while (more := self.rig.send(inspect.clear(self.scope, limit))) > 0:
            assert more <= limit
            dropped += more
        left = self.rig.view()
        gone = [job_id for job_id in self.view.ids if left.places(job_id) < self.view.places(job_id)]
        wanted = self.model.clear()
        self.expect(self.damaged, (len(wanted), set(wanted)), (dropped, set(gone)))
        for job_id in self.view.entries.keys() - left.entries.keys():
            self.check_free(job_id, "cancelled")
        self.forgive(gone)
        self.settle(gone, gone=gone)

    @precondition(lambda self: self.view.meta)
    @rule(emptied=st.booleans(), look=st.sampled_from([False, False, True]))
    def remove(self, emptied: bool, look: bool) -> None:
        """Forget the queue if it holds nothing; perhaps all that may be dropped was dropped before."""
        self.begin()
        if emptied:
            self.drop_waiting(500)
            self.drop_ended([*self.view.failed, *self.view.completed])
        self.take_away(look=look)

    def take_away(self, *, look: bool = False) -> None:
        """Remove the queue, and check what is left: all of it when it holds anything, else nothing."""
        view = self.view
        counts = [len(row) for row in (view.scheduled, view.entries, view.failed, view.completed)]
        counts[1] = max(counts[1], len(view.stream))
        wanted = [*counts, max(0, len(view.jobs) - sum(counts)), 0, 0]
        got = self.rig.send(inspect.remove(self.scope, look=look))
        assert list(got) == wanted, f"the queue should hold {wanted}, it holds {got}"
        if look or any(wanted):
            self.settle(unchanged=True)
            return
        self.model.remove()
        self.frame = False
        self.settle()
        left = {name.decode() for name in self.rig.client.scan_iter(count=1000)} - self.rig.answers()
        assert not left, f"a removed queue leaves {left}"
        self.rig.outlive(max(self.ledger.tokens, key=order, default="0-0"))

    @rule(count=st.sampled_from([1, 2, 4]))
    def lay_out(self, count: int) -> None:
        """The queue is spread anew, as its first shard is told; no producer has heard of it."""
        self.begin()
        self.rig.send(inspect.configure(self.scope, None))
        layout = Layout(count, self.number())
        seen = self.rig.send(inspect.lay_out(self.scope, PLAIN, NO_WORD))
        assert seen.layout.epoch == self.model.layout
        assert self.rig.send(inspect.lay_out(self.scope, layout, seen, instead=True)).layout == layout
        self.model.layout = layout.epoch
        self.settle()

    @precondition(lambda self: self.view.scheduled)
    @rule(for_ms=st.sampled_from([0, 7000, 100_000]))
    def pause_or_resume(self, for_ms: int) -> None:
        self.begin()
        if self.model.paused:
            assert self.rig.send(inspect.resume(self.scope)) == self.model.resume()
        else:
            assert self.rig.send(inspect.pause(self.scope, for_ms)) == self.model.pause(for_ms)
        self.settle()

    @precondition(lambda self: self.view.jobs)
    @rule(which=WHICH, flush=st.booleans())
    def look(self, which: int, flush: bool) -> None:
        """Look at a job and at the counts; with `flush` after somebody emptied the server's script cache."""
        self.begin()
        if flush:
            self.rig.forget_scripts()
        job_id = self.known_id(which)
        if not self.unsure([job_id]):
            self._look_at(job_id)
        if not self.unsure(self.damaged) and not self.view.strays:
            self._count()
            for state in (State.SCHEDULED, State.READY, State.RESERVED, State.FAILED, State.COMPLETED):
                self._list(state)
        self.settle(unchanged=True)

    def _look_at(self, job_id: str) -> None:
        info, job = self.rig.send(inspect.get(self.scope, job_id)), self.model.jobs.get(job_id)
        if job is None or info is None:
            assert (info is None) == (job is None), f"{job_id}: should be {job}, is {info}"
            return
        row = self.model.pending.get(job.entry)
        wanted = (self.model.state(job_id), job.raw, job.recoveries, job.entry, row.consumer if row else "")
        assert (info.state, info.raw, info.recoveries, info.entry, info.consumer) == wanted
        assert (info.cancel_asked_ms is not None) == job.asked
        if info.state is State.SCHEDULED:
            assert info.due_ms == exact(job.due)

    def _count(self) -> None:
        stats, model = self.rig.send(inspect.stats(self.scope)), self.model
        wanted = [
            sum(model.state(job_id) == state for job_id in model.jobs) for state in ("scheduled", "failed", "completed")
        ]
        assert [stats.scheduled, stats.failed, stats.completed] == wanted
        if model.pending.keys() <= model.stream.keys():
            assert (stats.ready, stats.reserved) == (len(model.stream) - len(model.pending), len(model.pending))
        assert stats.paused == model.paused

    def _list(self, state: State) -> None:
        """Page by page; the sets in their order, ready and reserved in the order of the stream."""
        cursor, pages = "", []
        while True:
            page = self.rig.send(inspect.list_jobs(self.scope, state, cursor, 2))
            pages += [job.id for job in page.jobs]
            if not (cursor := page.cursor):
                break
        found = [job for job in self.model.jobs.values() if self.model.state(job.id) == state]
        match state:
            case State.READY | State.RESERVED:
                wanted = sorted(found, key=lambda job: order(job.entry))
            case State.SCHEDULED:
                wanted = sorted(found, key=lambda job: (job.due, job.id))
            case _:
                wanted = sorted(found, key=lambda job: (job.at, job.id))
        assert pages == [job.id for job in wanted], f"list {state}: should be {wanted}, is {pages}"


def _told(ref: JobRef) -> Told:
    return Told(str(ref.outcome), str(ref.state), ref.due_ms, ref.id)


def _said(outcome: produce.Outcome) -> Said:
    return Said(str(outcome.answer), outcome.due_ms, outcome.owner)
