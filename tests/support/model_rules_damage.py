"""Rules: what operators and foreign programs do to a queue behind delayq's back."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.support.model_machine import IDS, WHICH, QueueMachine
from tests.support.model_rig import GROUP
from tests.support.model_view import score

GARBAGE = st.sampled_from(["fields", "bytes", "copy", "foreign id"])


class DamageRules(QueueMachine):
    """XACK, XDEL, XTRIM, DEL, XGROUP DESTROY and DELCONSUMER, HDEL, XADD of garbage."""

    @precondition(lambda self: self.view.pending)
    @rule(which=WHICH)
    def xack(self, which: int) -> None:
        """Somebody acknowledges an entry without a script, as a plain consumer does that knows none."""
        self.begin()
        entry = sorted(self.view.pending)[which % len(self.view.pending)]
        consumer = self.view.pending[entry]
        assert self.rig.raw("XACK", self.rig.key("stream"), GROUP, entry) == 1
        self.model.pending.pop(entry, None)
        self.ledger.settled_outside.add(entry)
        for item in [item for item in self.knows.get(consumer, []) if item.entry == entry]:
            self.let_go(consumer, item)
        self.settle()

    @precondition(lambda self: self.view.stream and not self.calm)
    @rule(which=WHICH, how=st.sampled_from(["XDEL", "XDEL", "XTRIM", "XTRIM", "DEL", "XGROUP DESTROY"]))
    def harm(self, which: int, how: str) -> None:
        """Somebody cuts the stream, or takes it or its group away."""
        self.begin()
        stream, entries = self.rig.key("stream"), list(self.view.stream)
        match how:
            case "XDEL":
                self._cut([entries[which % len(entries)]], "XDEL", stream, entries[which % len(entries)])
            case "XTRIM":
                self._cut(entries[: max(0, len(entries) - which)], "XTRIM", stream, "MAXLEN", which)
            case _:
                self.frame = True
                gone = self.in_stream(self.view) if how == "DEL" else set()
                self.rig.raw(*(("DEL", stream) if how == "DEL" else ("XGROUP", "DESTROY", stream, GROUP)))
                self.settle(gone=gone)

    def _cut(self, entries: list[str], *command: str | int) -> None:
        """Entries go; what they were the place of is damaged."""
        for entry in entries:
            job_id = self.model.stream.pop(entry, "")
            self.damaged |= {job_id} - {""}
        assert self.rig.raw(*command) == len(entries)
        self.settle(gone=[self.view.id_in(entry) for entry in entries])

    @precondition(lambda self: self.view.consumers)
    @rule(which=WHICH)
    def delete_consumer(self, which: int) -> None:
        self.begin()
        consumer = sorted(self.view.consumers)[which % len(self.view.consumers)]
        self.rig.raw("XGROUP", "DELCONSUMER", self.rig.key("stream"), GROUP, consumer)
        lost = [entry for entry, row in self.model.pending.items() if row.consumer == consumer]
        for entry in lost:
            del self.model.pending[entry]
        self.ledger.dropped |= set(lost)
        self.model.consumers.discard(consumer)
        self.settle()

    @precondition(lambda self: self.view.jobs and not self.calm)
    @rule(row=st.sampled_from(["jobs", "entries"]), which=WHICH)
    def delete_row(self, row: str, which: int) -> None:
        self.begin()
        job_id = self.known_id(which, "ready", "reserved")
        if self.rig.raw("HDEL", self.rig.key(row), job_id):
            self.damaged.add(job_id)
            self.scarred.add(job_id)
        self.settle(gone=[job_id])

    @precondition(lambda self: self.view.scheduled)
    @rule(which=WHICH, text=st.sampled_from(["+inf", "-inf", "1800000000000000000", "-5"]))
    def foreign_score(self, which: int, text: str) -> None:
        """Somebody writes a due time that is none, or in another unit."""
        self.begin()
        job_id = sorted(self.view.scheduled)[which % len(self.view.scheduled)]
        self.set_score(job_id, score(text.encode()), text)
        self.settle()

    @precondition(lambda self: self.view.jobs and not self.calm)
    @rule(kind=GARBAGE, job_id=st.sampled_from(IDS))
    def garbage(self, kind: str, job_id: str) -> None:
        self.begin()
        self.frame = self.frame or not self.view.last
        words: dict[str, tuple[str | bytes, ...]] = {
            "fields": ("colour", "blue"),
            "bytes": ("job", b"\xff\x00{"),
            "copy": ("id", job_id, "job", self.envelope(job_id), "due", "0", "recoveries", "0"),
            "foreign id": ("id", b"\xfe z", "job", "{}"),
        }
        entry = self.rig.raw("XADD", self.rig.key("stream"), "*", *words[kind]).decode()
        self.model.stream[entry] = ""
        self.settle()
