"""Chains and batches under kills of every process and restarts of Redis: each link and callback is sent once.

CHAOS_SEEDS says which runs (default 1,2,3), CHAOS_SECONDS how long each one is.
"""

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from pydantic import SecretStr

from delayq import DelayQ, Manager, Settings, batch, chain, set_manager
from delayq.jobs.dispatch import Sendable, _by_name
from tests.support.topologies import Server
from tests.support.waiting import wait_until
from tests.support.workers import Start, children_of, workers_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

SEEDS: Final = [int(seed) for seed in os.environ.get("CHAOS_SEEDS", "1,2,3").split(",")]
SECONDS: Final = float(os.environ.get("CHAOS_SECONDS", "180"))
CHAINS: Final = 300
BATCHES: Final = 60
MEMBERS: Final = 20
KILL_EVERY: Final = 2.0
QUEUES: Final = ("q", "r")

APP: Final = """
import os, time
from delayq import job

log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@job("work", tries=1)
def work(text: str, fails: bool = False) -> None:
    os.write(log, f"{text}\\n".encode())
    time.sleep(0.01)
    if fails:
        raise ValueError(text)
"""


class Load:
    """What is sent, and what must run because of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.expected: Counter[str] = Counter()

    def job(self, text: str, *, runs: bool = True, fails: bool = False, waits: bool = False) -> Sendable:
        if runs:
            self.expected[text] += 1
        data: dict[str, Any] = {"text": text, "fails": fails}
        delay = f"{self.random.randrange(int(SECONDS * 800))}ms" if waits else None
        return _by_name("work", data)._with(queue=self.random.choice(QUEUES), delay=delay)

    def send_chain(self, n: int) -> None:
        """Send a chain of three. In every fifth, the second link fails, and `catch` takes the place of the third."""
        fails = n % 5 == 0
        links = [
            self.job(f"c{n}.1", waits=True),
            self.job(f"c{n}.2", fails=fails),
            self.job(f"c{n}.3", runs=not fails),
        ]
        chain(*links).catch(self.job(f"c{n}.catch", runs=fails)).dispatch()

    def send_batch(self, n: int) -> str:
        """Send a batch of 20, one of them a chain; in every third, two members fail, which the batch allows."""
        fails = n % 3 == 0
        members: list[Any] = [self.job(f"b{n}.{m}", fails=fails and m < 2, waits=True) for m in range(MEMBERS - 1)]
        members.append(chain(self.job(f"b{n}.l1", waits=True), self.job(f"b{n}.l2")))
        return (
            batch(
                members,
                allow_failures=fails,
                before=self.job(f"b{n}.before"),
                then=self.job(f"b{n}.then", runs=not fails),
                catch=self.job(f"b{n}.catch", runs=fails),
                finally_=self.job(f"b{n}.finally"),
            )
            .dispatch()
            .id
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_each_link_and_callback_is_sent_once(seed: int, tmp_path: Path) -> None:
    server = Server(tmp_path, "--appendfsync", "always", password=None)
    url = f"redis://127.0.0.1:{server.port}/0"
    manager = Manager(Settings(url=SecretStr(url), queue="q"))
    set_manager(manager)
    load = Load(seed)
    try:
        for n in range(CHAINS):
            load.send_chain(n)
        batches = [load.send_batch(n) for n in range(BATCHES)]
        client = manager.connection().client
        with workers_of(APP, tmp_path, url, DELAYQ_LEASE="2s") as start:
            kills = kill_all(server, start, load.random)
            wait_until(lambda: is_over(client, server.client, batches), "the end of all jobs", patience=120)
        ran = Counter((tmp_path / "log").read_text().split())
        scheduled = sum(int(server.client.hget(f"delayq:{{{q}}}:meta", "scheduled_total") or 0) for q in QUEUES)
        print(f"seed {seed}: {dict(kills)}; {load.expected.total()} jobs, {ran.total() - len(ran)} ran again")
        assert set(ran) == set(load.expected)
        assert scheduled == load.expected.total()
        states = Counter(info.state for info in client.batches.list(1000))
        assert states == {"finished": 2 * BATCHES // 3, "failed": BATCHES // 3}
    finally:
        set_manager(None)
        manager.close()
        server.end()


def kill_all(server: Server, start: Start, chance: random.Random) -> Counter[str]:
    """Kill children, sidecars (with movers and relays) and whole workers for a while, and Redis twice."""
    kills: Counter[str] = Counter()
    workers = [start("--queue", ",".join(QUEUES), "--processes", "2") for _ in range(2)]
    began = time.monotonic()
    redis_at = [SECONDS / 3, SECONDS * 2 / 3]
    while (now := time.monotonic() - began) < SECONDS:
        time.sleep(chance.uniform(0.5, 1.5) * KILL_EVERY)
        if redis_at and now > redis_at[0]:
            redis_at.pop(0)
            server.process.kill()
            server.process.wait()
            server.start()
            kills["Redis"] += 1
            continue
        number = chance.randrange(len(workers))
        if chance.random() < 0.25:
            for pid in [workers[number].pid, *children_of(workers[number].pid)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            workers[number].wait()
            kills["workers"] += 1
        elif children := children_of(workers[number].pid):
            with suppress(ProcessLookupError):
                os.kill(chance.choice(children), signal.SIGKILL)
            kills["children and sidecars"] += 1
        if workers[number].poll() is not None:
            workers[number] = start("--queue", ",".join(QUEUES), "--processes", "2")
    return kills


def is_over(client: DelayQ, server: "redis.Redis", batches: list[str]) -> bool:
    waiting = sum(stats.scheduled + stats.ready + stats.reserved for stats in client.stats())
    outboxes = sum(server.xlen(f"delayq:{{{queue}}}:outbox") for queue in QUEUES)
    found = [info for info in client.batches.list(1000) if info.finished_ms is not None]
    return waiting == 0 and outboxes == 0 and len(found) == len(batches)
