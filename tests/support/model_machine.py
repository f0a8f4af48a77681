"""The state machine's frame: what it knows, and the step that every rule ends with.

Healthy ids are foretold exactly. Where an operator damaged data, the machine keeps a set of ids it cannot answer for
(`damaged`, and all that is in the stream while `frame`, because stream or group were taken away). They are only held to
what still must be true: not lost while their bytes are anywhere, never cancelled after delivery, never two holders of
one entry. An id leaves that set as soon as it is in one place again with all it needs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from delayq.core.shards import PLAIN
from delayq.redis.calls.call import Call, Scope
from tests.support.model_check import (
    Ledger,
    adopt,
    bytes_of,
    check_kept,
    check_sums,
    compare,
    compare_stream,
    learn_entries,
)
from tests.support.model_deliver import Delivery
from tests.support.model_queue import QueueModel
from tests.support.model_rig import HIGH_WATER, LEASE_MS, MAX_RECOVERIES, QUEUE, Rig
from tests.support.model_state import Place
from tests.support.model_view import View

T = TypeVar("T")

START_MS = 1_800_000_000_000
IDS = ("a", "b", "c", "d", "e")
DIGESTS = ("", "u1", "u2")
WHICH = st.integers(0, 9)


class QueueMachine(RuleBasedStateMachine):
    """What all rules share."""

    def __init__(self, rig: Rig, *, always_calm: bool = False) -> None:
        super().__init__()
        self.rig = rig
        rig.clear()
        self.model = QueueModel(LEASE_MS, MAX_RECOVERIES, HIGH_WATER, START_MS, START_MS)
        self.view = rig.view()
        self.ledger = Ledger()
        self.damaged: set[str] = set()
        self.frame = False
        # Ids that lost a row. When they are scheduled again before the janitor came, the script finds the id free: the
        # old entry still counts then, and rows of the old job may stay beside the new one's.
        self.scarred: set[str] = set()
        self.serial = 0
        self.layout = PLAIN  # as producers know it
        self.sent: list[tuple[Call[object], object]] = []
        self.names = ["dq:host:1:r1", "dq:host:2:r1", "plain"]
        self.knows: dict[str, list[Delivery]] = {name: [] for name in self.names}
        self.stale: list[tuple[str, Delivery]] = []
        self.intact = True
        self.calm = self.always_calm = always_calm

    @initialize(calm=st.booleans())
    def weather(self, calm: bool) -> None:
        """In half of the runs nobody damages anything: then every answer and every key is foretold exactly."""
        self.calm = calm or self.always_calm

    @property
    def scope(self) -> Scope:
        return self.rig.scope(self.model.now, self.layout)

    def number(self) -> int:
        """A number used once."""
        self.serial += 1
        return self.serial

    def envelope(self, job_id: str, *, digest: str = "", retention: int = 0, attempts: int = 0) -> bytes:
        """Bytes that a script which decodes them would spoil: an empty list, eighteen digits, what is not ASCII."""
        members: dict[str, object] = {"v": 1, "id": job_id, "name": "job", "queue": QUEUE}
        members["data"] = {"n": self.number(), "list": [], "big": 123456789012345678, "text": "ä\u2028"}
        members |= {"attempts": attempts, "created_ms": 0}
        members |= {"unique": digest} if digest else {}
        members |= {"retention_ms": retention} if retention else {}
        return json.dumps(members, ensure_ascii=False).encode()

    def known_id(self, which: int, *states: str) -> str:
        """An id that is taken (in one of `states`, if there is one), or now and then a free one."""
        known = [job_id for job_id in IDS if job_id in self.model.jobs]
        fitting = [job_id for job_id in known if self.model.state(job_id) in states] or known
        return fitting[which % len(fitting)] if fitting and which < 9 else IDS[which % len(IDS)]

    # -- certainty

    @property
    def muddled(self) -> bool:
        """Whether some id is in two places at once."""
        return any(self.view.places(job_id) > 1 for job_id in self.damaged)

    def unsure(self, job_ids: Iterable[str]) -> bool:
        """Whether the model cannot foretell what a verb on these ids answers."""
        return self.frame or self.muddled or not self.damaged.isdisjoint(job_ids)

    def expect(self, job_ids: Iterable[str], wanted: object, real: object) -> None:
        if not self.unsure(job_ids):
            assert real == wanted, f"the answer should be {wanted}, it is {real}"

    # -- the end of every step

    def settle(self, touched: Collection[str] = (), *, gone: Collection[str] = (), unchanged: bool = False) -> None:
        """Look at the queue and compare. `gone`: ids whose envelope this step was right to drop or rewrite."""
        old, new = self.view, self.rig.view()
        if unchanged:
            assert new == old, "a call that settled nothing changed something"
        unsure = self.damaged | (set(touched) if self.unsure(touched) else set())
        if self.frame:
            unsure |= self.in_stream(old) | self.in_stream(new) | set(self.model.awaited)
        learn_entries(self.model, old, new, self.ledger, unsure)
        compare(self.model, new, unsure)
        if not self.frame:
            compare_stream(self.model, new, unsure)
        check_kept(old, new, unsure, gone)
        self.forgive([job_id for job_id in unsure if self.ledger.owed.get(job_id, b"") not in bytes_of(new, job_id)])
        adopt(self.model, new, unsure)
        self.damaged = {job_id for job_id in unsure if not new.sound(job_id)}
        if not self.damaged and not self.frame and not new.strays:
            check_sums(new, self.model.pending.keys() - self.model.stream.keys())
        self.view = new
        self.intact = True

    def in_stream(self, view: View) -> set[str]:
        placed = {job.id for job in self.model.jobs.values() if job.place is Place.STREAM}
        return placed | set(view.entries) | {view.id_in(entry) for entry in view.stream} - {""}

    def set_score(self, job_id: str, due: int, text: str = "") -> None:
        """Somebody writes a due time past all scripts."""
        self.rig.raw("ZADD", self.rig.key("scheduled"), "XX", text or due, job_id)
        if job_id in self.model.jobs:
            self.model.jobs[job_id].due = due

    def begin(self) -> None:
        """Mark the start of a step: when it breaks, the teardown leaves the queue alone."""
        self.intact = False

    # -- holders

    def learn(self, consumer: str, got: Iterable[str]) -> list[Delivery]:
        """Note what a consumer was given, and check it: the right bytes, and nobody else's entry."""
        items = [Delivery(self.view.id_in(entry), entry) for entry in got]
        for item in items:
            self.ledger.deliver(item.entry, consumer)
            owed, carried = self.ledger.owed.get(item.id), self.fields(item.entry).get("job")
            if self.view.owned(item.entry) and item.id not in self.scarred:
                assert owed in (None, carried), f"{item.id} should arrive as {owed!r}, it is {carried!r}"
            if self.view.owned(item.entry) or owed == carried:
                self.ledger.owed.pop(item.id, None)
            if item not in self.knows[consumer]:
                self.knows[consumer].append(item)
        return items

    def let_go(self, name: str, item: Delivery) -> None:
        """The holder is done with it; the old token stays around for zombies to try."""
        self.knows[name].remove(item)
        self.stale.append((name, item))
        del self.stale[:-12]

    def check_free(self, job_id: str, answer: str) -> None:
        """A job that a worker was given is not taken away from under it, whatever was damaged."""
        entry = self.view.entries.get(job_id, "")
        if answer in ("cancelled", "rescheduled", "replaced", "postponed"):
            assert entry not in self.ledger.given, f"{job_id}: {answer}, though {self.ledger.given[entry]} has {entry}"

    def forgive(self, job_ids: Iterable[str]) -> None:
        """Nobody owes these jobs a delivery any more."""
        for job_id in job_ids:
            self.ledger.owed.pop(job_id, None)

    def fields(self, entry: str) -> Mapping[str, bytes]:
        return self.view.stream.get(entry, {})

    def teardown(self) -> None:
        if self.intact:
            self.drain()
        self.rig.clear()

    def drain(self) -> None:
        raise NotImplementedError
