"""Shards come and go and replies are lost, while producers replace and postpone the same jobs again and again."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

from delayq.core.errors import JobRunning, OutcomeUnknown
from delayq.core.shards import shard_of
from delayq.redis.client import Client
from delayq.redis.connect import Waits
from delayq.redis.keys import Keys
from tests.chaos.engine import Lot, Tally
from tests.chaos.scenarios.wire import again_and_again
from tests.chaos.world import client_of, crew, server
from tests.support.chaos_rig import QUEUE, is_idle
from tests.support.ledger import Ledger
from tests.support.proxy import Proxy
from tests.support.servers import connect
from tests.support.waiting import wait_until

SHARDS = (4, 2, 8, 1, 3)
PRODUCERS = 4
IDS = 40
IMPATIENT = Waits(answer_ms=200)
DELAYS = ("0s", "0s", "20ms", "100ms")


@dataclass
class Story:
    """What was asked for one id, version by version: (version, answer), in order."""

    id: str
    calls: list[tuple[int, str]] = field(default_factory=list)

    def judge(self, starts: Counter[int], ends: Counter[int]) -> list[str]:
        """What is wrong about what ran."""
        wrong = [f"{self.id}: version {g} ended {times} times" for g, times in ends.items() if times > 1]
        wrong += [f"{self.id}: version {g} was refused and ran" for g, answer in self.calls
                  if answer in ("refused", "postponed") and starts[g]]  # fmt: skip
        return wrong + [f"{self.id}: version {g} was taken and never ran" for g in self.owed() if not ends[g]]

    def owed(self) -> list[int]:
        """The versions that must have run: taken, and not certainly or possibly replaced by a later one."""
        taken: list[int] = []
        for g, answer in self.calls:
            if answer in ("replaced", "unknown"):
                taken = taken[:-1]
            if answer in ("created", "replaced"):
                taken.append(g)
        return taken


def replaced(lot: Lot) -> Tally:
    """Each version of a job ends once at most, one that was refused never starts, the last that was taken ends."""
    with server() as one, Proxy(one.socket) as proxy, crew(lot, one.url, lease_ms=30_000) as members, ExitStack() as st:
        plain, direct = st.enter_context(connect(one.url)), st.enter_context(client_of(members))
        direct.queue_set(QUEUE, shards=SHARDS[0])
        for _ in range(2):
            members.hire()
        rand = lot.rand
        clients = [
            st.enter_context(client_of(members, url=url, waits=IMPATIENT))
            for url in (proxy.url, one.url) * (PRODUCERS // 2)
        ]
        stories = [[Story(f"p{n}-{k}") for k in range(IDS)] for n in range(PRODUCERS)]

        def lose_one() -> None:
            if rand.random() < 0.5:
                proxy.cut(after=rand.randint(0, 10))
            else:  # the resend comes after the job may have run
                proxy.swallow(having=rand.choice((b"replaced", b"postponed", b"created")))

        with again_and_again(lose_one, 0.05), ThreadPoolExecutor(PRODUCERS) as pool:
            size = lot.units // PRODUCERS
            work = [pool.submit(_produce, clients[n], stories[n], size, lot.own_seed + n) for n in range(PRODUCERS)]
            for count in SHARDS[1:]:
                done = sum(len(story.calls) for some in stories for story in some)
                part = (lot.units - done) // len(SHARDS)
                wait_until(lambda: _calls(stories) >= done + part, timeout=240, what="more was asked for")  # noqa: B023
                direct.queue_set(QUEUE, shards=count)
            for one_of_them in work:
                one_of_them.result()
        proxy.heal()
        shards = [Keys("delayq", shard_of(QUEUE, n)) for n in range(max(SHARDS))]
        wait_until(lambda: all(is_idle(plain, keys) for keys in shards), timeout=60, what="all is done")
        return _judged([story for some in stories for story in some], members.ledger).add(replies_lost=proxy.lost)


def _calls(stories: list[list[Story]]) -> int:
    return sum(len(story.calls) for some in stories for story in some)


def _produce(client: Client, stories: list[Story], calls: int, seed: int) -> None:
    rand = random.Random(seed)
    for g in range(calls):
        story, verb = rand.choice(stories), rand.choice(("replace", "replace", "postpone"))
        try:
            ref = client.schedule(
                "version",
                {"g": g, "ms": rand.choice((0, 0, 30))},
                id=story.id,
                delay=rand.choice(DELAYS),
                on_conflict=verb,
            )
            story.calls.append((g, ref.outcome.value))
        except JobRunning:
            story.calls.append((g, "refused"))
        except OutcomeUnknown:
            story.calls.append((g, "unknown"))


def _judged(stories: list[Story], ledger: Ledger) -> Tally:
    starts: dict[str, Counter[int]] = {story.id: Counter() for story in stories}
    ends: dict[str, Counter[int]] = {story.id: Counter() for story in stories}
    for line in ledger.lines():
        phase, _, g = line.phase.partition("-")
        (starts if phase == "start" else ends)[line.job][int(g)] += 1
    wrong = [text for story in stories for text in story.judge(starts[story.id], ends[story.id])]
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"
    answers = Counter(answer for story in stories for _, answer in story.calls)
    return Tally().add(calls=answers.total(), **answers, run=sum(map(Counter.total, ends.values())))
