"""The checks after each step: what a view must look like, by the model and by the invariants alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tests.support.model_queue import QueueModel
from tests.support.model_state import ANYTHING, Job, Place, Row
from tests.support.model_view import NOWHERE, View, delivered

T = TypeVar("T")


@dataclass(slots=True)
class Ledger:
    """What nobody may forget."""

    given: dict[str, str] = field(default_factory=dict)
    """Who was given which entry."""
    tokens: dict[str, str] = field(default_factory=dict)
    """Every entry that a job was ever in."""
    owed: dict[str, bytes] = field(default_factory=dict)
    """Accepted jobs that nobody was given yet, with the envelope they must arrive in."""
    settled_outside: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    """Entries whose pending row went with a deleted consumer."""

    def deliver(self, entry: str, consumer: str) -> None:
        """I7: an entry has one holder in its whole life."""
        holder = self.given.setdefault(entry, consumer)
        assert holder == consumer, f"the entry {entry} was given to {holder} and then to {consumer}"


def learn_entries(model: QueueModel, old: View, view: View, ledger: Ledger, unsure: Collection[str]) -> None:
    """Give the jobs that should have joined the stream their entries, and check those."""
    fresh = [entry for entry in view.stream if entry not in old.stream]
    tail = [(entry, view.id_in(entry)) for entry in fresh if view.owned(entry)]
    sure = [(entry, job_id) for entry, job_id in tail if job_id not in unsure]
    wanted = [job_id for job_id in model.awaited if job_id not in unsure]
    assert [job_id for _, job_id in sure] == wanted, f"should have joined the stream: {wanted}; joined: {sure}"
    for entry, job_id in tail:
        check_fresh(model, view, entry, job_id)
        if job_id not in unsure:
            _same(f"recoveries of {job_id}", view.recoveries.get(job_id, 0), int(view.stream[entry]["recoveries"]))
        assert entry not in ledger.tokens, f"{job_id} joins the entry {entry}, where {ledger.tokens[entry]} was before"
        ledger.tokens[entry] = job_id
    for entry, job_id in sure:
        _same(f"stop of {job_id}", job_id in view.cancel, "stop" in view.stream[entry])
        _same(f"due of {job_id}", model.jobs[job_id].due, int(view.stream[entry]["due"]))
        model.jobs[job_id].entry = entry
        model.stream[entry] = job_id
    model.awaited.clear()


def check_fresh(model: QueueModel, view: View, entry: str, job_id: str) -> None:
    """What a new entry must carry. I6: nothing is in the stream before it is due."""
    fields = view.stream[entry]
    assert set(fields) - {"stop"} == {"id", "job", "due", "recoveries"}, (
        f"the entry of {job_id} has the fields {set(fields)}"
    )
    assert int(fields["due"]) <= model.latest, f"{job_id}, due at {fields['due']!r}, is in the stream at {model.latest}"
    assert "stop" not in fields or job_id in view.cancel, f"the entry of {job_id} says stop, and nobody asked for that"
    assert fields["job"] == view.jobs.get(job_id), f"the entry of {job_id} carries other bytes than its envelope"


def compare(model: QueueModel, view: View, unsure: Collection[str]) -> None:
    """Everything the model foretells, but for the ids in `unsure`."""

    def seen(row: Mapping[str, T]) -> dict[str, T]:
        return {job_id: value for job_id, value in row.items() if job_id not in unsure}

    jobs = [job for job in model.jobs.values() if job.id not in unsure]
    placed = {place: [job for job in jobs if job.place is place] for place in Place}
    _same("jobs", _known({job.id: job.raw for job in jobs}, view.jobs), seen(view.jobs))
    _same("scheduled", {job.id: job.due for job in placed[Place.SCHEDULED]}, seen(view.scheduled))
    _same("entries", {job.id: job.entry for job in placed[Place.STREAM]}, seen(view.entries))
    _same("failed", {job.id: job.at for job in placed[Place.FAILED]}, seen(view.failed))
    _same("completed", {job.id: job.at for job in placed[Place.COMPLETED]}, seen(view.completed))
    _same("recoveries", {job.id: job.recoveries for job in jobs if job.recoveries}, seen(view.recoveries))
    _same("errors", _known({job.id: job.failure for job in jobs if job.failure}, view.errors), seen(view.errors))
    _same("results", {job.id: job.result for job in jobs if job.result}, seen(view.results))
    _same("locks", {job.id: job.digest for job in jobs if job.digest}, seen(view.locks))
    owners = {digest: job_id for digest, job_id in model.owners.items() if job_id not in unsure}
    _same("unique", owners, {digest: job_id for digest, job_id in view.unique.items() if job_id not in unsure})
    _same("cancel", {job.id for job in jobs if job.asked}, set(seen(view.cancel)))


def compare_stream(model: QueueModel, view: View, unsure: Collection[str]) -> None:
    """The stream and its pending list, but for the entries of the ids in `unsure`."""
    labels = {entry: job_id for entry, job_id in model.stream.items() if job_id not in unsure}
    real = {entry: view.id_in(entry) if view.owned(entry) else "" for entry in view.stream}
    kept = {entry: job_id for entry, job_id in real.items() if job_id not in unsure}
    shaky = {entry for entry in real if real[entry] in unsure or model.stream.get(entry) in unsure}
    shaky |= {model.jobs[job_id].entry for job_id in unsure if job_id in model.jobs}
    shaky |= {view.entries[job_id] for job_id in unsure if job_id in view.entries}
    labels = {entry: job_id for entry, job_id in labels.items() if entry not in shaky}
    kept = {entry: job_id for entry, job_id in kept.items() if entry not in shaky}
    _same("stream", list(labels.items()), list(kept.items()))
    held = {entry: row.consumer for entry, row in model.pending.items() if entry not in shaky}
    _same("pending", held, {entry: who for entry, who in view.pending.items() if entry not in shaky})
    # A stream and its group are made when somebody needs them; the model does not say when.
    expected = (model.last,) if model.last else ("", NOWHERE)
    assert view.last in expected, f"last delivered: should be {model.last}, is {view.last}"


def _known(wanted: dict[str, bytes], real: Mapping[str, bytes]) -> dict[str, bytes]:
    """Bytes the model does not foretell, as they are."""
    return {job_id: real.get(job_id, b"missing") if raw == ANYTHING else raw for job_id, raw in wanted.items()}


def _same(what: str, wanted: object, real: object) -> None:
    assert wanted == real, f"{what}: should be {wanted}, is {real}"


def check_sums(view: View, ghosts: Collection[str]) -> None:
    """Rule 1 and I1 to I5, from the view alone; only while nobody damaged anything.

    `ghosts`: pending rows whose entry an operator deleted and that were no job's; they end with their lease.
    """
    placed = len(view.scheduled) + len(view.entries) + len(view.failed) + len(view.completed)
    _same("XLEN stream and HLEN entries", len(view.stream), len(view.entries))
    _same("places and jobs", placed, len(view.jobs))
    for job_id in view.ids:
        assert view.sound(job_id), f"{job_id} is not in one place with all it needs: {view.places(job_id)} places"
    for entry in set(view.pending) - set(ghosts):
        assert view.owned(entry), f"the pending entry {entry} is no job's"
        assert delivered(entry, view.last), f"the entry {entry} is pending and not delivered"


def check_kept(old: View, new: View, unsure: Collection[str], gone: Collection[str]) -> None:
    """What was damaged may be delivered again, but it is not lost while its bytes are anywhere."""
    for job_id in unsure:
        if job_id in gone or not bytes_of(old, job_id):
            continue
        dead = {new.jobs[other] for other in new.failed if other in new.jobs}
        assert bytes_of(old, job_id) & (bytes_of(new, job_id) | dead), f"{job_id} was lost in this step"


def bytes_of(view: View, job_id: str) -> set[bytes]:
    """Every copy of a job's envelope that there is."""
    copies = {fields["job"] for entry, fields in view.stream.items() if "job" in fields and view.id_in(entry) == job_id}
    return copies | ({view.jobs[job_id]} if job_id in view.jobs else set())


def adopt(model: QueueModel, view: View, unsure: Collection[str]) -> None:
    """Take over what became of the ids that the model cannot answer for."""
    for job_id in unsure:
        model.jobs.pop(job_id, None)
        for digest in [digest for digest, owner in model.owners.items() if owner == job_id]:
            del model.owners[digest]
        if view.places(job_id):
            model.jobs[job_id] = _adopted(view, job_id)
    model.owners |= {digest: owner for digest, owner in view.unique.items() if owner in unsure}
    rows = model.pending
    model.stream = {entry: view.id_in(entry) if view.owned(entry) else "" for entry in view.stream}
    model.pending = {entry: rows.get(entry, Row(who)) for entry, who in view.pending.items()}
    for entry, row in model.pending.items():
        row.consumer = view.pending[entry]
    model.last, model.consumers = view.last, set(view.consumers)


def _adopted(view: View, job_id: str) -> Job:
    entry, digest = view.entries.get(job_id, ""), view.locks.get(job_id, "")
    if entry:
        place = Place.STREAM
    elif job_id in view.scheduled:
        place = Place.SCHEDULED
    else:
        place = Place.FAILED if job_id in view.failed else Place.COMPLETED
    return Job(
        job_id,
        view.jobs.get(job_id, b""),
        place,
        due=view.scheduled.get(job_id, 0)
        if place is Place.SCHEDULED
        else int(view.stream.get(entry, {}).get("due", 0)),
        entry=entry,
        at=view.failed.get(job_id, view.completed.get(job_id, 0)),
        recoveries=view.recoveries.get(job_id, 0),
        digest=digest if view.unique.get(digest) == job_id else "",
        asked=job_id in view.cancel,
        failure=view.errors.get(job_id, b""),
        result=view.results.get(job_id, b""),
    )
