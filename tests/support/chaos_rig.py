"""A chaos run: workers, movers and a producer at work, and somebody who kills or freezes one of them now and then."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerProcess
from typing import Any

from delayq.redis.keys import GROUP, Keys
from tests.support.chaos_producer import ProducerLog, plan, produce
from tests.support.crew import Crew, Duty, runs, whole
from tests.support.snapshot import word
from tests.support.waiting import wait_until

QUEUE = "orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a run is. `more` are options of its workers."""

    jobs: int
    seconds: float
    longest_ms: int
    workers: int = 3
    movers: int = 2
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Post:
    """One place in the crew, and who fills it now."""

    life: Callable[[Duty], None] | None
    duty: Duty
    holder: ForkServerProcess
    thaw_at: float = 0.0

    @property
    def pid(self) -> int:
        assert self.holder.pid is not None
        return self.holder.pid

    @property
    def is_worker(self) -> bool:
        return self.life is None and self.duty.worker


@dataclass(slots=True)
class Rig:
    """One run. `client` is a plain one, to look at Redis from outside."""

    crew: Crew
    client: Any
    seed: int
    size: Size
    posts: list[Post] = field(default_factory=list)
    struck: int = 0
    held: int = 0
    """Jobs that were in the hands of those killed, counted in Redis at the moment of each death."""
    rand: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.rand.seed(self.seed)
        duty = self.crew.duty
        worker = replace(duty, more={"mover": False, **self.size.more})
        mover = replace(duty, worker=False)
        size = self.size
        orders = {"seed": self.seed, "jobs": size.jobs, "longest_ms": size.longest_ms, "seconds": size.seconds * 0.8}
        producer = replace(duty, more=orders)
        for life, one, count in ((None, worker, size.workers), (None, mover, size.movers), (produce, producer, 1)):
            self.posts += [Post(life, one, self.crew.hire(one, life)) for _ in range(count)]

    @property
    def keys(self) -> Keys:
        return Keys("delayq", QUEUE)

    @property
    def log(self) -> ProducerLog:
        return ProducerLog(self.crew.duty.folder)

    def jobs(self) -> list[Any]:
        """What the producer was to schedule."""
        return plan(self.seed, self.size.jobs, self.size.longest_ms)

    # -- what is done to them ----------------------------------------------------------------------------------------

    def kill_now_and_then(self, every_s: float, at_least: int) -> None:
        """Until the time is over: kill -9 somebody, and put another in the place at once."""
        end = time.monotonic() + self.size.seconds
        while time.monotonic() < end or self.struck < at_least:
            time.sleep(every_s)
            self.kill(self.rand.choice(self.posts))

    def kill(self, *posts: Post) -> None:
        """SIGKILL to all of them at once; a producer that had finished stays finished."""
        living = [post for post in posts if post.holder.is_alive()]
        pids = [pid for post in living for pid in whole(post.pid)]
        for post in living:
            os.kill(post.pid, signal.SIGKILL)
        for post in living:
            post.holder.join(30)
        self.struck += len(living)
        wait_until(lambda: not any(map(runs, pids)), what="their children die with them")
        self.held += self._held_by(pids)
        for post in living:
            post.holder = self.crew.hire(post.duty, post.life)

    def kill_child(self, post: Post) -> None:
        """SIGKILL to a process that runs handlers; its supervisor sees to the rest. It runs one job at a time."""
        below = whole(post.pid)[1:]
        if post.holder.is_alive() and below:
            os.kill(below[-1], signal.SIGKILL)
            self.struck += 1
            self.held += 1

    def freeze_now_and_then(self, every_s: float, for_s: float, at_least: int) -> None:
        """Until the time is over: freeze somebody for so long; one worker always stays awake."""
        end = time.monotonic() + self.size.seconds
        while time.monotonic() < end or self.struck < at_least:
            time.sleep(every_s)
            self._thaw_all(time.monotonic())
            awake = [post for post in self.posts if not post.thaw_at and post.holder.is_alive()]
            workers = [post for post in awake if post.is_worker]
            post = self.rand.choice(awake)
            if post not in workers or len(workers) > 1:
                self.signal(post, signal.SIGSTOP)
                post.thaw_at = time.monotonic() + for_s
                self.struck += 1
        wait_until(lambda: not self._thaw_all(time.monotonic()), timeout=for_s + 20, what="all are thawed")

    def freeze_many(self, freezes: int, for_s: float, awake: int) -> None:
        """So many freezes, of whoever is awake; so many workers always are."""
        while self.struck < freezes:
            self._thaw_all(time.monotonic())
            free = [post for post in self.posts if not post.thaw_at and post.holder.is_alive()]
            workers = [post for post in free if post.is_worker]
            # Mostly workers: who waits for a frozen producer or mover holds nothing that could be taken from him.
            post = self.rand.choice(workers if self.rand.random() < 0.9 else free)
            if post not in workers or len(workers) > awake:
                self.signal(post, signal.SIGSTOP)
                post.thaw_at = time.monotonic() + for_s
                self.struck += 1
            time.sleep(self.rand.uniform(0, 0.1))
        wait_until(lambda: not self._thaw_all(time.monotonic()), timeout=for_s + 20, what="all are thawed")

    def consumers(self) -> int:
        """How many consumers the queue's group knows."""
        return len(self.client.xinfo_consumers(self.keys.stream, GROUP))

    def _thaw_all(self, now: float) -> bool:
        """Thaw those whose time is over; whether some are frozen still."""
        for post in self.posts:
            if post.thaw_at and now >= post.thaw_at:
                self.signal(post, signal.SIGCONT)
                post.thaw_at = 0.0
        return any(post.thaw_at for post in self.posts)

    def signal(self, post: Post, number: signal.Signals) -> None:
        """To a post and all below it."""
        for pid in whole(post.pid):
            os.kill(pid, number)

    def _held_by(self, pids: Sequence[int]) -> int:
        """What is in the hands of these processes."""
        if not self.client.exists(self.keys.stream):
            return 0
        names = set(map(str, pids))
        rows = self.client.xinfo_consumers(self.keys.stream, GROUP)
        return sum(row["pending"] for row in rows if word(row["name"]).split(":")[2] in names)

    # -- the end -----------------------------------------------------------------------------------------------------

    def wait_for_the_producer(self, timeout: float = 120.0) -> None:
        """Until it has asked for everything."""
        wait_until(lambda: len(self.log.asked()) == self.size.jobs, timeout=timeout, what="all is scheduled")
        producer = self.posts[-1].holder
        producer.join(40)
        assert not producer.is_alive(), "the producer did not end"

    def finish(self, timeout: float = 60.0) -> None:
        """Wait until the producer has asked for everything and all of it is done."""
        self.wait_for_the_producer(timeout)
        wait_until(lambda: is_idle(self.client, self.keys), timeout=timeout, what="all is done")


def is_idle(client: Any, keys: Keys) -> bool:
    """Whether nothing waits and nothing runs, asked in one moment: a retry goes from the one place to the other."""
    with client.pipeline(transaction=True) as pipe:
        pipe.zcard(keys.of("scheduled"))
        pipe.hlen(keys.of("entries"))
        return not any(pipe.execute())
