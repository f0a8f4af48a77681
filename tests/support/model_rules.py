"""All rules together, and the end of every run: whatever was accepted comes out."""

from __future__ import annotations

from hypothesis.stateful import RuleBasedStateMachine

from delayq.redis.calls import deliver, inspect
from tests.support.model_rig import LEASE_MS, Rig
from tests.support.model_rules_care import KEEP_FAILED_MS, TICK_MS, CareRules
from tests.support.model_rules_damage import DamageRules
from tests.support.model_view import HASHES
from tests.support.waiting import wait_until

DRAIN = "dq:host:9:drain"
MOST_ROUNDS = 30
LAST_DUE_MS = 10**15


class DelayqMachine(CareRules, DamageRules):
    """Drives one queue on a real server, step by step, beside the model."""

    def drain(self) -> None:
        """Healed, taken back, promoted, read and done: nothing is left but the queue's own frame (I9)."""
        self.begin()
        assert self.rig.send(inspect.resume(self.scope)) == self.model.resume()
        for job_id in [job_id for job_id, due in self.view.scheduled.items() if due > LAST_DUE_MS]:
            self.set_score(job_id, self.model.now)
        self.settle()
        self.pass_time(max([0, *(due - self.model.now for due in self.view.scheduled.values())]))
        self.knows[DRAIN] = []
        for _ in range(MOST_ROUNDS):
            self.pass_time(TICK_MS)
            self.take_back()
            dirty = self.clean()
            while self.move(500):
                self._work_off()
            self._work_off()
            if not dirty and not self.view.scheduled and not self.view.entries and not self.view.stream:
                # Damage may hide behind the sums while they agree by chance; it shows when the rest is gone.
                self._forget_finished()
                if not self.view.jobs:
                    break
        else:
            raise AssertionError(f"after {MOST_ROUNDS} rounds there is still something left: {self.view}")
        self._end_rows_without_entry()
        self._retire_all()
        self._check_empty()

    def _work_off(self) -> None:
        for item in self.take(DRAIN, 100):
            if self.view.owned(item.entry):
                self.end(item, "ack")
            else:
                self.bury(item.entry)
        self.settle()

    def _end_rows_without_entry(self) -> None:
        """The clock cannot age a pending row whose entry is gone, so for these the lease becomes short."""
        if not self.view.pending:
            return
        for _ in range(LEASE_MS // TICK_MS + 2):
            self.pass_time(TICK_MS)
            self.take_back()
        self.rig.send(inspect.configure(self.scope, 1))

        def none_pending() -> bool:
            self.rig.send(deliver.reclaim(self.scope))
            return not self.rig.view().pending

        wait_until(none_pending, what="rows without an entry are acknowledged")
        self.rig.send(inspect.configure(self.scope, LEASE_MS))
        self.model.pending.clear()
        self.settle()

    def _forget_finished(self) -> None:
        self.model.now += KEEP_FAILED_MS + 100_000_000
        self.forget_old()

    def _retire_all(self) -> None:
        for consumer in sorted(self.view.consumers):
            assert self.rig.send(deliver.retire(self.scope, consumer, 0)), f"{consumer} holds something"
        self.model.consumers.clear()
        self.settle()

    def _check_empty(self) -> None:
        view = self.view
        assert not view.jobs, f"left: {view.jobs}"
        assert not any(map(view.places, view.ids)), f"left: {view.ids}"
        assert not view.stream, f"left in the stream: {view.stream}"
        beside = {job_id: view.side_rows(job_id) for job_id in (view.ids | set(view.unique.values())) - self.scarred}
        assert not beside, f"rows left of {beside}"
        assert not view.pending
        assert not view.consumers
        names = {name.decode() for name in self.rig.client.scan_iter(count=1000)}
        allowed = {self.rig.key("meta"), self.rig.key("stream")}
        allowed |= {self.rig.key(name) for name in HASHES if self.scarred}
        left = {name for name in names if name not in allowed and not name.startswith(self.rig.key("once:"))}
        assert not left, f"keys left: {left}"
        owed = self.ledger.owed.keys() - self.scarred
        assert not owed, f"accepted and never delivered: {owed}"
        self.take_away()


def machine(rig: Rig, *, always_calm: bool = False) -> type[RuleBasedStateMachine]:
    """The machine as Hypothesis wants it, a class to make afresh for each run, bound to one queue."""

    class Machine(DelayqMachine):
        def __init__(self) -> None:
            super().__init__(rig, always_calm=always_calm)

    return Machine
