"""Rules: movers and consumers, live, crashed and come back from the dead."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from redis.exceptions import ResponseError

from delayq.core.states import OnConflict
from delayq.redis.calls import deliver
from tests.support.model_deliver import Delivery
from tests.support.model_machine import DIGESTS, IDS, WHICH
from tests.support.model_rig import GROUP, LEASE_MS
from tests.support.model_rules_produce import ProducerRules, Wish
from tests.support.model_state import ANYTHING

SLOT = st.integers(0, 2)
HOW = st.sampled_from(["ack", "keep", "twice", "release", "release", "rewrite", "fail", "fail", "hand back", "bury"])
FAILURE = b'{"type":"Oops","message":"no"}'
PLAIN = "plain"


class WorkRules(ProducerRules):
    """promote, read, replay, renew, settle, crash, zombie, retire."""

    @precondition(lambda self: self.view.scheduled)
    @rule(limit=st.sampled_from([1, 2, 500, 500]))
    def promote(self, limit: int) -> None:
        self.begin()
        self.move(limit)

    def move(self, limit: int) -> int:
        """Promote once and check; answers how many jobs left the set."""
        concerned = {job.id for job in self.model.waiting if job.due <= self.model.now}
        unsure = self.unsure(concerned)
        got = self.rig.send(deliver.promote(self.scope, limit))
        if unsure:
            assert got.moved + got.lost <= limit
            self.damaged |= concerned
        moved = self.model.promote(limit)
        self.expect(concerned, (len(moved), 0), (got.moved, got.lost))
        assert unsure or got.wait_us in self.model.waits(), f"wait_us {got.wait_us}, not in {self.model.waits()}"
        self.settle(concerned)
        return got.moved + got.lost

    @precondition(lambda self: self.view.stream)
    @rule(slot=SLOT, count=st.integers(1, 3))
    def read(self, slot: int, count: int) -> None:
        self.begin()
        self.take(self.names[slot], count)

    @rule(slot=SLOT, jobs=st.integers(1, 3), digest=st.sampled_from(DIGESTS))
    def arrive(self, slot: int, jobs: int, digest: str) -> None:
        """The way most work goes: scheduled, moved when due, and read."""
        self.begin()
        free = [job_id for job_id in IDS if job_id not in self.view.ids]
        if free:
            self.ask([Wish(job_id, digest=digest) for job_id in free[:jobs]], OnConflict.KEEP)
        self.move(500)
        self.take(self.names[slot], 3)

    def take(self, consumer: str, count: int) -> list[Delivery]:
        """XREADGROUP; answers what came."""
        got = self._read(consumer, count, ">")
        if self.frame:
            self.settle()
        else:
            wanted = self.model.read(consumer, count)
            assert got == wanted, f"{consumer} should get {wanted}, it got {got}"
            self.settle()
        return self.learn(consumer, got)

    @precondition(lambda self: self.view.consumers)
    @rule(slot=SLOT, replay=st.booleans())
    def live_on(self, slot: int, replay: bool) -> None:
        """A consumer renews what it holds; or reads its own pending entries again, as after a read error."""
        self.begin()
        consumer = self.names[slot]
        if replay:
            self.learn(consumer, self._replayed(consumer))
            return
        lost = self.beat(consumer, [item for item in self.knows[consumer] if item.id])
        for item in [item for item in self.knows[consumer] if item.id in lost]:
            self.let_go(consumer, item)

    def _read(self, consumer: str, count: int, after: str) -> list[str]:
        """Entries that are read; rows of deleted ones come back empty and are left out."""
        words = ("XREADGROUP", "GROUP", GROUP, consumer, "COUNT", count, "STREAMS", self.rig.key("stream"), after)
        if not self.view.last:
            with pytest.raises(ResponseError, match="NOGROUP"):
                self.rig.raw(*words)
            return []
        reply = self.rig.raw(*words)
        return [entry.decode() for entry, fields in reply[0][1] if fields] if reply else []

    def _replayed(self, consumer: str) -> list[str]:
        got = self._read(consumer, 100, "0")
        if not self.frame:
            wanted = self.model.replayed(consumer)
            assert got == wanted, f"{consumer} should find {wanted}, it found {got}"
        self.settle()
        return got

    def beat(self, consumer: str, held: list[Delivery]) -> set[str]:
        """Renew some deliveries, as delayq's workers do or as a plain consumer does; answers what is lost."""
        if consumer == PLAIN:
            return self._claim(held)
        got = self.rig.send(deliver.renew(self.scope, consumer, [deliver.Held(*item) for item in held]))
        real = {item.id for item in held if self.view.entries.get(item.id) != item.entry}
        assert got.lease_ms == LEASE_MS
        assert set(got.lost) == real, f"lost should be {real}, is {got.lost}"
        lost, asked = self.model.renew(consumer, held)
        wanted = (lost, asked, self.model.count(consumer))
        self.expect({item.id for item in held}, wanted, (set(got.lost), set(got.asked_to_stop), got.pending))
        self.settle({item.id for item in held})
        return set(got.lost)

    def _claim(self, held: list[Delivery]) -> set[str]:
        """A plain consumer knows neither ids nor scripts: it claims what it thinks it holds."""
        if not self.view.last:
            self.settle()
            return set()
        for item in held:
            row = self.model.pending.get(item.entry)
            # The server takes a pending row away when its entry is gone, which a later check would have to excuse.
            if item.entry in self.view.stream:
                self.rig.raw("XCLAIM", self.rig.key("stream"), GROUP, PLAIN, 0, item.entry, "JUSTID")
            if row is not None and item.entry in self.view.stream:
                assert row.consumer == PLAIN or self.frame, "a plain consumer thinks it holds another's entry"
                row.idle = 0
        self.settle()
        return set()

    @precondition(lambda self: any(self.knows.values()))
    @rule(which=WHICH, how=HOW)
    def finish(self, which: int, how: str) -> None:
        """A holder settles one of its deliveries."""
        self.begin()
        held = [(name, item) for name, items in self.knows.items() for item in items]
        consumer, item = held[which % len(held)]
        self.end(item, how)
        self.let_go(consumer, item)

    @precondition(lambda self: self.view.stream)
    @rule(slot=SLOT, how=HOW)
    def work(self, slot: int, how: str) -> None:
        """A consumer reads what there is and is done with it at once."""
        self.begin()
        for item in self.take(self.names[slot], 3):
            self.end(item, how)
            self.let_go(self.names[slot], item)
        self.settle()

    @precondition(lambda self: self.stale)
    @rule(which=WHICH, how=HOW | st.just("renew"))
    def zombie(self, which: int, how: str) -> None:
        """Somebody tries again with a token that it held once."""
        self.begin()
        consumer, item = self.stale[which % len(self.stale)]
        if how == "renew":
            self.beat(consumer, [item])
        else:
            self.end(item, how)

    def end(self, item: Delivery, how: str) -> bool:
        """Settle one delivery, and check that only the owner of the entry changes anything."""
        owner = self.view.entries.get(item.id) == item.entry
        if how == "bury":
            return self.bury(item.entry)
        wanted = self._foretell_end(item, how)
        settled = self._send_end(item, how)
        assert settled[0] == owner or (self.unsure([item.id]) and how == "hand back"), f"{how} {item}: {settled}"
        self.expect([item.id], wanted, settled)
        if not any(settled):
            self.settle(unchanged=True)
            return False
        gone = [item.id] if how != "hand back" else []
        if how in ("ack", "keep", "twice"):
            owed = self.ledger.owed.keys() - self.scarred
            assert item.id not in owed, f"{item.id} is done, but nobody was given its last envelope"
        self.settle([item.id], gone=gone)
        return True

    def _foretell_end(self, item: Delivery, how: str) -> list[bool]:
        model = self.model
        match how:
            case "ack":
                return [model.ack(item, 0, b"")]
            case "keep":
                return [model.ack(item, 20_000, b'{"ok":[]}')]
            case "twice":
                return [model.ack(item, 0, b"")]
            case "release":
                return [model.release(item, 5_000, b"", b"")]
            case "rewrite":
                return [model.release(item, 0, self._rewritten(item), FAILURE)]
            case "fail":
                return [model.fail(item, self._rewritten(item), FAILURE)]
            case _:
                return [model.hand_back(item)]

    def _send_end(self, item: Delivery, how: str) -> list[bool]:
        held = deliver.Held(*item)
        match how:
            case "ack":
                return self.rig.send(deliver.done(self.scope, [held.id], [held.entry]))
            case "keep":
                return self.rig.send(deliver.ack(self.scope, [deliver.Acked(held, 20_000, b'{"ok":[]}')]))
            case "twice":
                # The same delivery twice in one call: it may be called settled or fenced the second time.
                return self.rig.send(deliver.ack(self.scope, [deliver.Acked(held)] * 2))[:1]
            case "release":
                return self.rig.send(deliver.release(self.scope, [deliver.Released(held, 5_000)]))
            case "rewrite":
                back = deliver.Released(held, 0, self._rewritten(item), FAILURE)
                return self.rig.send(deliver.release(self.scope, [back]))
            case "fail":
                return self.rig.send(deliver.fail(self.scope, [deliver.Failed(held, self._rewritten(item), FAILURE)]))
            case _:
                return self.rig.send(deliver.hand_back(self.scope, [held]))

    def _rewritten(self, item: Delivery) -> bytes:
        """The envelope a worker sends back: what it read, with one more attempt."""
        carried = self.view.jobs.get(item.id) or b'{"attempts": 0}'
        return carried.replace(b'"attempts": 0', b'"attempts": 1')

    def bury(self, entry: str) -> bool:
        """Dead-letter an entry that is no job of ours."""
        fields = self.fields(entry)
        job_id = self.view.id_in(entry)
        known, placed = job_id in self.view.jobs, self.view.places(job_id) > 0
        got = self.rig.send(deliver.bury(self.scope, [(entry, FAILURE)]))
        wanted = self.model.bury(entry, fields.get("job", ANYTHING), FAILURE, known=known, placed=placed)
        assert got == [wanted], f"bury {entry}: should be {wanted}, is {got}"
        self.settle(unchanged=wanted == "left")
        return wanted != "left"

    def die(self, slot: int) -> None:
        consumer = self.names[slot]
        for item in list(self.knows[consumer]):
            self.let_go(consumer, item)
        if consumer != PLAIN:
            self.names[slot] = f"dq:host:{slot + 1}:r{self.number() + 1}"
            self.knows[self.names[slot]] = []

    @precondition(lambda self: self.view.consumers)
    @rule(which=WHICH)
    def retire(self, which: int) -> None:
        """A consumer of delayq's own, alive or dead, leaves the group if it holds nothing."""
        self.begin()
        names = sorted(name for name in {*self.view.consumers, *self.names} if name != PLAIN)
        consumer = names[which % len(names)]
        wanted = self.model.count(consumer) == 0
        got = self.rig.send(deliver.retire(self.scope, consumer, 0))
        assert got == wanted or self.frame, f"retire {consumer}: should be {wanted}, is {got}"
        if got:
            self.model.consumers.discard(consumer)
            self.model.recorded.discard(consumer)
        self.settle()
        assert not got or consumer not in self.view.consumers, f"{consumer} retired and is still there"
