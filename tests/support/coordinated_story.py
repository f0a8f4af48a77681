"""Chains and batches drawn by a seed, nested in each other, and the workers, relays and people who handle them.

All of them are flows on a `Loom`: every command is a step, in an order that the seed draws, and each of them may be
killed before any of its commands. What ran, and how each run ended, is written down by the story itself, so what must
hold can be said without a word of what is kept in Redis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from delayq.core import envelope as envelopes
from delayq.core import follow
from delayq.core.envelope import Envelope
from delayq.core.errors import BatchNotFound, Conflict
from delayq.core.followups import Link, Plan, Send
from delayq.core.options import Options
from delayq.core.outcome import Ack, GiveUp
from delayq.core.signals import Fail
from delayq.jobs.batch import PendingBatch, batch
from delayq.jobs.chain import PendingChain, chain
from delayq.jobs.coordinated import RunningChain
from delayq.jobs.coordination import ManagerCoordinator
from delayq.jobs.current import current_manager
from delayq.jobs.dispatch import Dispatch, named
from delayq.jobs.links import NOWHERE, Builder, Where
from delayq.jobs.member_ids import Ids
from delayq.jobs.plans import Element, Member, links_of
from delayq.manager import Manager
from delayq.redis.batch_verbs import BatchVerbs
from delayq.redis.callbacks import Bound
from delayq.redis.called_off import called_off
from delayq.redis.calls import deliver
from delayq.redis.calls.call import Command, text
from delayq.redis.calls.deliver import Held
from delayq.redis.calls.follow import carried, owed, todo_of
from delayq.redis.follow_verbs import FollowVerbs
from delayq.redis.hand_verbs import HandVerbs
from delayq.redis.presence import Record
from delayq.redis.settling import Ending, calls
from delayq.redis.verbs import Flow, Verbs
from tests.support.steps import QUEUES, elsewhere

CALLED = (".then.", ".catch.", ".finally_.")


@dataclass(slots=True)
class Made:
    """A batch as it was written: the names of its own steps, added ones too, and the batches in it."""

    id: str
    allow: bool
    outer: Made | None
    steps: list[str] = field(default_factory=list)
    inner: list[Made] = field(default_factory=list)
    perhaps: list[str] = field(default_factory=list)
    """Steps that somebody began to add: known to the batch or not, if he was killed before he had an answer."""

    @property
    def own(self) -> list[str]:
        """Its steps, and those that may be."""
        return [*self.steps, *self.perhaps]

    @property
    def below(self) -> list[str]:
        """All steps in it, at any depth."""
        return [*self.own, *(step for made in self.inner for step in made.below)]

    @property
    def waited_for(self) -> list[str]:
        """As `below`, without batches that allow failures: these are done with their first end, whatever is retried."""
        return [*self.own, *(step for made in self.inner if not made.allow for step in made.waited_for)]


@dataclass(frozen=True, slots=True)
class Growth:
    """What a step puts into its chain when it ends well: behind itself, or at the end. `made`: it is a batch."""

    name: str
    element: Element
    next: bool
    outer: Made | None
    made: Made | None = None

    def happens(self) -> None:
        """The batch around it has it from now on."""
        if self.outer is not None and self.made is not None:
            self.outer.inner.append(self.made)
        elif self.outer is not None:
            self.outer.steps.append(self.name)


@dataclass(slots=True)
class Run:
    """One run of a step: when it began, and when and how it ended ("" = its process was killed)."""

    began: int
    job: str
    queue: str
    entry: str
    ended: int = 0
    how: str = ""


class Story:
    """What was drawn: batches by their ids, chains as the names of their steps in order."""

    def __init__(self, rand: Random, manager: Manager) -> None:
        self._rand = rand
        self.manager = manager
        self.batches: dict[str, Made] = {}
        self.orders: list[list[str]] = []
        self.caught: list[tuple[str, list[str]]] = []
        self.adds: dict[str, tuple[str, Made]] = {}
        self.grows: dict[str, Growth] = {}

    def step(self, name: str) -> Dispatch:
        return elsewhere(named("step", {"name": name}).having(tries=1, queue=self._rand.choice(QUEUES)))

    def batch(self, path: str, depth: int, outer: Made | None = None) -> PendingBatch:
        """A batch of some members, with its callbacks."""
        made = Made(path, self._rand.random() < 0.5, outer)
        self.batches[path] = made
        if outer is not None:
            outer.inner.append(made)
        members = [self._member(f"{path}.{n}", depth, made) for n in range(self._rand.randint(1, 4))]
        called: Any = {name: self.step(f"{path}:{name}") for name in ("then", "catch", "finally_")}
        return batch(members, id=path, allow_failures=made.allow, **called)

    def chain(self, path: str, depth: int) -> PendingChain:
        """A chain by itself, which tells of each failure."""
        elements, order = self._elements(path, depth, None)
        self.caught.append((f"{path}:caught", [name for name in order if name not in self.batches]))
        return chain(elements).catch(self.step(f"{path}:caught"))

    def _member(self, path: str, depth: int, made: Made) -> Member:
        drawn = self._rand.random()
        if drawn < 0.5 or depth == 0:
            if growth := self._growth(path, 0, made):
                self.orders.append([path, growth.name])
            return self._own(path, made)
        if drawn < 0.85:
            return chain(self._elements(path, depth, made)[0])
        return self.batch(path, depth - 1, made)

    def _elements(self, path: str, depth: int, made: Made | None) -> tuple[list[Element], list[str]]:
        elements: list[Element] = []
        order: list[str] = []
        last: list[str] = []
        for n in range(self._rand.randint(2, 3)):
            name = f"{path}.{n}"
            order.append(name)
            if n and depth and self._rand.random() < 0.25:
                elements.append(self.batch(name, depth - 1, made))
            else:
                elements.append(self._own(name, made))
                if growth := self._growth(name, depth, made):
                    (order if growth.next else last).append(growth.name)
        self.orders.append([*order, *last])
        return elements, [*order, *last]

    def _growth(self, name: str, depth: int, outer: Made | None) -> Growth | None:
        drawn, new = self._rand.random(), f"{name}*"
        if drawn > 0.25:
            return None
        if drawn < 0.05 and depth:
            pending = self.batch(new, depth - 1)
            made = self.batches[new]
            made.outer = outer
            growth = Growth(new, pending, drawn < 0.03, outer, made)
        else:
            growth = Growth(new, self.step(new), drawn < 0.15, outer)
        self.grows[name] = growth
        return growth

    def _own(self, name: str, made: Made | None) -> Dispatch:
        if made is not None:
            made.steps.append(name)
            if self._rand.random() < 0.15:
                self.adds[name] = (f"{name}+", made)
        return self.step(name)

    # -- as it travels -----------------------------------------------------------------------------------------------

    def plan(self, pending: PendingBatch) -> Plan:
        return pending.plan(Builder(self.manager), NOWHERE, None)

    def head(self, pending: PendingChain, path: str) -> Bound:
        sent = follow.launch(pending.as_link(Builder(self.manager), NOWHERE, None, Ids(path)), 0)
        assert isinstance(sent, Send)
        return Bound(f"{path}.head", sent)

    def added(self, name: str, job_id: str, batch_id: str) -> list[Link]:
        where = Where(queue=QUEUES[0])
        return links_of(
            [named("step", {"name": name}).having(tries=1)],
            Builder(self.manager),
            where,
            batch_id,
            Ids(job_id).at("add0"),
        )


class World:
    """The server, what ran on it, and the actors."""

    def __init__(self, client: Any, rand: Random, story: Story) -> None:
        self.client, self.rand, self.story = client, rand, story
        self.now, self.steps, self.breaks = 1_800_000_000_000, 0, 0.3
        self.runs: dict[str, list[Run]] = {}
        self.dead: list[Run] = []
        self.verbs = Verbs(Options(queue=QUEUES[0], tries=1), lambda: self.now)
        self.batches, self.by_hand = BatchVerbs(self.verbs), HandVerbs(self.verbs)
        self.follow = FollowVerbs(self.verbs)
        self._named = 0

    def check(self) -> None:
        """After each step."""
        self.steps += 1

    def prepare(self, queue: str) -> Flow[None]:
        """A worker does so once, so that it can wait for a queue that never had a job."""
        yield deliver.tidy(self.verbs.shard(queue))

    def worker(self, queue: str) -> Flow[None]:
        """Promote, take one, ask after its batch, run it, settle it: as a worker does."""
        scope = self.verbs.shard(queue)
        yield deliver.promote(scope)
        words = ("XREADGROUP", "GROUP", "delayq", "dq:x:1:a", "COUNT", 1, "STREAMS", scope.keys.of("stream"), ">")
        rows: list[Any] = yield Command(words, _rows)
        for entry, fields in rows:
            raw, job_id = fields[b"job"], text(fields[b"id"])
            part, run = follow.part_of(raw), Run(0, job_id, queue, text(entry))
            self.dead.append(run)  # until it has been settled
            off = False
            if part is not None and part.batch is not None:
                off = yield from called_off(self.verbs, part.batch, job_id, part.spared)
            envelope = envelopes.decode(raw)
            name = msgspec.json.decode(envelope.data)["name"]
            outcome = Ack(called_off=True) if off else (yield from self._run(name, part, run))
            growth = self.story.grows.get(name) if outcome == Ack() else None
            if growth is not None:
                outcome = Ack(chain=_grown(envelope, growth))
            ending = Ending(queue, job_id, run.entry, raw, outcome)
            [settle] = calls(self.verbs.shard, [ending], {0: Record()}, self.now)
            run.ended = self.steps  # the call is sent in the step in which it is handed over
            [mine] = yield settle.call
            assert mine, f"{name} was somebody else's when it was settled"
            self.dead.remove(run)
            run.how = "off" if off else "failed" if isinstance(outcome, GiveUp) else "done"
            if growth is not None:
                growth.happens()

    def _run(self, name: str, part: follow.Part | None, run: Run) -> Flow[Ack | GiveUp]:
        run.began = self.steps
        self.runs.setdefault(name, []).append(run)
        more = self.story.adds.get(name)
        first = len(self.runs[name]) == 1
        if more is not None and part is not None and part.batch is not None and (first or self.rand.random() < 0.5):
            yield from self._add(*more, run.job, part.batch)
        yield Command(("PING",), bool, True)
        breaks = ":" not in name and self.rand.random() < self.breaks
        return GiveUp(1, 1, Fail(f"{name} breaks")) if breaks else Ack()

    def _add(self, added: str, made: Made, job_id: str, batch_id: str) -> Flow[None]:
        """As a handler does, who may find that the batch takes no more."""
        if added not in made.own:
            made.perhaps.append(added)
        try:
            yield from self.batches.add(batch_id, self.story.added(added, job_id, batch_id))
        except (Conflict, BatchNotFound):
            return
        if added in made.perhaps:
            made.perhaps.remove(added)
            made.steps.append(added)

    def relay(self, queue: str) -> Flow[None]:
        """Carry a page of an outbox, as a relay does."""
        self._named += 1
        scope = self.verbs.shard(queue)
        page = yield owed(scope, f"relay-{self._named}", "-")
        ends = [(f"{queue}.{entry.entry}", todo_of(entry, self.now)) for entry in page.entries]
        if ends:
            arrived = yield from self.follow.do(ends)
            gone = [entry.entry for entry, there in zip(page.entries, arrived, strict=True) if there]
            yield carried(scope, gone)

    def janitor(self, alive: bool) -> Flow[None]:
        """What killed workers held goes back. `alive`: somebody may still be at it, so nothing is touched."""
        for run in [] if alive else list(self.dead):
            yield deliver.hand_back(self.verbs.shard(run.queue), [Held(run.job, run.entry)])
            self.dead.remove(run)

    def quiet(self) -> bool:
        """Whether nothing waits, runs or is to be carried."""
        pipe = self.client.pipeline(transaction=False)
        for keys in (self.verbs.shard(queue).keys for queue in QUEUES):
            pipe.xlen(keys.of("outbox"))
            pipe.zcard(keys.of("scheduled"))
            pipe.hlen(keys.of("entries"))
        return not any(pipe.execute()) and not self.dead

    def waiting(self) -> list[tuple[str, str]]:
        """Jobs that are there, with their queues."""
        return [
            (text(job), queue) for queue in QUEUES for job in self.client.hkeys(self.verbs.shard(queue).keys.of("jobs"))
        ]

    def steps_waiting(self) -> list[tuple[str, str]]:
        """As `waiting`, without what batches and chains send as they go along."""
        return [(job, queue) for job, queue in self.waiting() if not any(word in job for word in CALLED)]

    def ended(self, name: str, how: str) -> list[Run]:
        """The runs of a step that ended so."""
        return [run for run in self.runs.get(name, []) if run.how == how]


def _grown(envelope: Envelope, growth: Growth) -> bytes:
    """What is left of a chain, changed by a handler."""
    rest = RunningChain(envelope, ManagerCoordinator(current_manager))
    if growth.next:
        rest.prepend(growth.element)
    else:
        rest.append(growth.element)
    return rest.changed()


def _rows(reply: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    if not reply:
        return []
    pairs: Iterator[Any] = iter(reply.items() if isinstance(reply, dict) else reply)
    return [(entry, _pairs(fields)) for _, rows in pairs for entry, fields in rows if fields]


def _pairs(fields: Any) -> dict[bytes, bytes]:
    return fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
