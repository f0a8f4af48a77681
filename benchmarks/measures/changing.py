"""What a schedule costs while the number of a queue's shards changes, against one whose queue was never spread.

    never spread    one shard
    spread          4 shards, the change from 1 is over
    under way       4 shards, jobs may still lie by 1: each schedule asks there first

Round trips are what one client waits for; commands and processor time are the server's, whatever was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from benchmarks.figures import Report, Row, Samples, ratios
from benchmarks.plan import Plan, timed
from benchmarks.server import PrivateServer
from benchmarks.work import FAR, QUEUE, payload, specs
from benchmarks.work import NAME as JOB
from delayq.core.options import Options
from delayq.redis import resharding
from delayq.redis.client import Client
from delayq.redis.connect import Connector

NAME = "changing"
ONE: Final = 4_000
MANY: Final = 40_000
SHARDS: Final = 4
NOTE: Final = "In the column of the bare protocol stands the queue that was never spread."
STATES: Final = ("never spread", "spread", "under way")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one job: the client's time and the server's, in µs, and the server's commands, those inside scripts not."""

    clock: float
    server: float
    commands: float


def run(plan: Plan) -> Report:
    """One by one, and many at a time, in each of the states in turn."""
    one, many = plan.size(ONE), plan.size(MANY)
    with (
        plan.server() as plain,
        plan.server() as spread,
        plan.server() as under_way,
        _client(plain) as first,
        _client(spread, ended=True) as second,
        _client(under_way, ended=False) as third,
    ):
        sides = dict(zip(STATES, ((plain, first), (spread, second), (under_way, third)), strict=True))
        found: dict[tuple[str, str], list[Cost]] = {}
        for turn in range(plan.runs + 1):
            for state in STATES if turn % 2 else reversed(STATES):
                server, client = sides[state]
                costs = {
                    "one by one": _cost(server, one, partial(_each, client, one)),
                    "schedule_many": _cost(server, many, partial(client.schedule_many, specs(many))),
                }
                for way, cost in costs.items() if turn else ():  # the first warms up
                    found.setdefault((way, state), []).append(cost)
    return Report([row for way in ("one by one", "schedule_many") for row in _rows(way, found)], [NOTE])


def _rows(way: str, found: dict[tuple[str, str], list[Cost]]) -> Iterator[Row]:
    for what, part, unit in (
        ("a job, by the clock of its client", "clock", "µs"),
        ("processor time of Redis", "server", "µs/job"),
        ("calls", "commands", "/job"),
    ):
        values = [Samples(tuple(getattr(cost, part) for cost in found[way, state]), unit) for state in STATES]
        for state, ours in zip(STATES, values, strict=True):
            ratio = None if state == STATES[0] else ratios(ours, values[0])
            yield Row(f"{way}, {state}: {what}", ours, None if ratio is None else values[0], ratio)


@contextmanager
def _client(server: PrivateServer, *, ended: bool | None = None) -> Iterator[Client]:
    """A client of one queue: never spread, or with 4 shards and the change ended or not."""
    connector = Connector(server.url)
    client = Client(connector, Options(high_water=10_000_000, queue=QUEUE))
    client.run(client.verbs.register(QUEUE))
    client.schedule(JOB, payload(0), delay=FAR, queue=QUEUE)
    if ended is not None:
        layout = client.run(resharding.change(client.verbs, QUEUE, SHARDS))
        if ended:
            client.run(resharding.end(client.verbs, QUEUE, layout))
    yield client
    client.close()
    connector.close()


def _each(client: Client, jobs: int) -> None:
    for number in range(jobs):
        client.schedule(JOB, payload(number), delay=FAR, queue=QUEUE)


def _cost(server: PrivateServer, jobs: int, work: Callable[[], object]) -> Cost:
    before, seconds = _used(server), timed(work)
    after = _used(server)
    return Cost(seconds / jobs * 1e6, (after[0] - before[0]) / jobs * 1e6, (after[1] - before[1]) / jobs)


def _used(server: PrivateServer) -> tuple[float, int]:
    """Processor seconds, and scripts that were called."""
    with server.client() as client:
        told: dict[str, Any] = client.info("all")
    calls = sum(told.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"]), calls
