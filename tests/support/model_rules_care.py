"""Rules: the janitor, as the scripts' manuals tell it to work, and the clock."""

from __future__ import annotations

import json

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import replace

from delayq.redis.calls import deliver
from delayq.redis.calls.deliver import Sums
from tests.support.model_deliver import Delivery
from tests.support.model_machine import WHICH
from tests.support.model_rig import GROUP, LEASE_MS
from tests.support.model_rules_work import WorkRules
from tests.support.model_view import View

TICK_MS = 12_000
KEEP_FAILED_MS = 1_000_000
MOST_PASSES = 6


class CareRules(WorkRules):
    """reclaim, tidy, unsettled, mend, prune; time that passes, and time that jumps."""

    def take_back(self, limit: int = 500) -> None:
        """One tick of reclaim."""
        concerned = {self.view.id_in(entry) for entry in self.view.pending}
        unsure, there = self.unsure(concerned), self.view.stream_exists
        got = self.rig.send(deliver.reclaim(self.scope, limit))
        assert got.lease_ms == LEASE_MS
        if unsure or not there:
            self._take_back_unsure(concerned)
            return
        wanted = self.model.reclaim(limit)
        assert (got.back, got.failed, got.hold_ms) == (len(wanted.back), len(wanted.failed), wanted.hold)
        assert got.more or not wanted.left, "reclaim says that it is through, and is not"
        self.settle()

    def _take_back_unsure(self, concerned: set[str]) -> None:
        """Where the model cannot say what goes, it still can say what has to stay: who renewed in time."""
        left = self.rig.view().pending
        for entry in [entry for entry in self.model.pending if entry not in left]:
            row = self.model.pending.pop(entry)
            assert row.idle >= LEASE_MS, f"{entry} of {row.consumer} was taken back after {row.idle} ms"
        self.damaged |= concerned - {""}
        self.settle(concerned)
        meta = self.view.meta
        self.model.tick = int(meta["reclaim_tick"]) if "reclaim_tick" in meta else None
        self.model.hold = int(meta.get("reclaim_hold", "0"))

    def forget_old(self) -> None:
        unsure = self.unsure(self.damaged)
        got = self.rig.send(deliver.prune(self.scope, KEEP_FAILED_MS))
        if unsure:
            after = self.rig.view()
            gone = [job_id for job_id in self.view.ids if job_id not in after.ids]
            self.damaged |= set(gone)
        else:
            completed, failed = self.model.prune(KEEP_FAILED_MS)
            assert (got.completed, got.failed) == (len(completed), len(failed))
            gone = [*completed, *failed]
        self.forgive(gone)
        self.settle(gone, gone=gone)

    @precondition(lambda self: self.view.ids or self.view.stream or self.frame)
    @rule(thorough=st.booleans(), limit=st.sampled_from([1, 2, 500]))
    def janitor(self, thorough: bool, limit: int) -> None:
        """The janitor comes; when `thorough` until it finds nothing. It must get there."""
        self.begin()
        self.forget_old()
        passes = 1
        while self.clean(limit) and thorough:
            passes += 1
            assert passes <= MOST_PASSES, f"the janitor still finds something in pass {passes}"

    def clean(self, limit: int = 500) -> bool:
        """One full pass in pages of `limit` entries; answers whether there was anything to do."""
        sums = self.rig.send(deliver.tidy(self.scope))
        self._check_counts(sums, self.view)
        self.settle()
        assert self.view.last, "after a tidy there is no group"
        found = self._close(everything=not sums.agree, limit=limit)
        if not sums.agree:
            self._mend()
        dirty = found or sums.regrouped or not sums.agree
        if self.frame and not dirty:
            self.frame = False
            self.model.vanished.clear()
            self.settle()
        return dirty

    def _check_counts(self, sums: Sums, view: View) -> None:
        places = (view.scheduled, view.failed, view.completed)
        rows = (view.stream, view.entries, *places, view.jobs, view.unique, view.locks)
        wanted = [LEASE_MS, *(len(row) for row in rows)]
        assert list(sums[: len(wanted)]) == wanted, f"the sums should be {wanted}, they are {sums}"
        assert self.frame or not sums.regrouped, "tidy made the group anew, and nobody had touched it"

    def _close(self, *, everything: bool, limit: int = 500) -> bool:
        """One pass over what is delivered and no longer pending; each page is settled before the next is asked for."""
        self.model.record_consumers()
        wanted = {} if self.frame or self.damaged else self.model.verdicts(everything=everything)
        exact, after, marks = not self.frame and not self.damaged, "-", ""
        real: dict[str, str] = {}
        while after:
            call = deliver.unsettled(self.scope, after, marks, everything=everything)
            page = self.rig.send(replace(call, args=(call.args[0], limit, *call.args[2:])))
            after, marks = page.after, page.marks
            if not after and not page.entries:
                self.model.vanished.clear()
            self.settle()
            real |= {row.entry: row.verdict for row in page.entries}
            for row in page.entries:
                self._act(Delivery(row.id, row.entry), row.verdict)
        assert not exact or real == wanted, f"unsettled should find {wanted}, it found {real}"
        return bool(real)

    def _act(self, item: Delivery, verdict: str) -> None:
        if verdict == "garbage":
            assert not self.view.owned(item.entry), f"{item} is called garbage, and is a job's place"
            self.bury(item.entry)
        elif verdict == "again":
            self.end(item, "hand back")
        else:
            known = self.ledger.settled_outside | self.ledger.dropped
            assert item.entry in known, f"{item} is called done, but nobody acknowledged it"
            keep = json.loads(self.view.jobs.get(item.id, b"{}")).get("retention_ms", 0)
            self._ack_outside(item, keep)

    def _ack_outside(self, item: Delivery, keep: int) -> None:
        wanted = self.model.ack(item, keep, b"")
        got = self.rig.send(deliver.ack(self.scope, [deliver.Acked(deliver.Held(*item), keep)]))
        assert got == [wanted]
        self.settle([item.id], gone=[item.id])

    def _mend(self) -> None:
        """Walk everything, because the sums say that something is wrong somewhere."""
        ids = sorted(self.view.ids)
        words = self.rig.send(deliver.mend(self.scope, ids)) if ids else []
        assert len(words) == len(ids)
        for job_id, word in zip(ids, words, strict=True):
            assert word == "fine" or self.unsure([job_id]), f"mend says {word} of {job_id}, which was sound"
        self.settle(self.damaged)

    @precondition(lambda self: self.view.jobs)
    @rule(ms=st.sampled_from([1, 6000, 12_000, 12_000, 36_000, -1, -10_000, -60_000]))
    def clock(self, ms: int) -> None:
        """Time passes, or the server's clock is set back: leases do not grow younger by that."""
        self.begin()
        if ms > 0:
            self.pass_time(ms)
        else:
            self.model.now += ms
        self.settle()

    def pass_time(self, ms: int) -> None:
        """Let time go by, also for the leases: each pending entry grows as much older as the clock."""
        self.model.advance(ms)
        for entry, row in self.model.pending.items():
            if entry in self.view.stream:
                words = (0, entry, "IDLE", row.idle, "JUSTID")
                self.rig.raw("XCLAIM", self.rig.key("stream"), GROUP, row.consumer, *words)

    @precondition(lambda self: self.view.pending)
    @rule(ticks=st.integers(0, 5), beating=st.booleans(), limit=st.sampled_from([1, 500, 500]))
    def watch(self, ticks: int, beating: bool, limit: int) -> None:
        """Reclaim once, then time with a janitor at work; the living renew, if `beating`."""
        self.begin()
        self.take_back(limit)
        self.go_on(ticks, beating=beating)

    @precondition(lambda self: any(self.knows[name] for name in self.names))
    @rule(which=WHICH, ticks=st.sampled_from([0, 4, 4, 4]))
    def vanish(self, which: int, ticks: int) -> None:
        """A consumer that holds something dies; in four ticks the janitor finds out."""
        self.begin()
        holding = [slot for slot, name in enumerate(self.names) if self.knows[name]]
        self.die(holding[which % len(holding)])
        self.go_on(ticks, beating=True)
        self.settle()

    def go_on(self, ticks: int, *, beating: bool) -> None:
        for _ in range(ticks):
            self.pass_time(TICK_MS)
            for name in self.names if beating else ():
                held = [item for item in self.knows[name] if item.id]
                if held:
                    self.beat(name, held)
            self.take_back()
