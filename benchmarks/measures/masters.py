"""What a job costs the servers, and how far three primaries carry a sharded queue against one.

Client and servers share the cores of one machine, so its jobs per second say little about three machines: they are
bound by the client. What a primary can carry is what its one core has time for, and that is measured: the processor
time of each server for each job. The busiest primary of three fills up first; how much earlier is a matter of chance,
as a shard lies where the slot of its name lies. Not seen here: what the network between machines adds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.cluster import PrivateCluster
from benchmarks.figures import Report, Row, Samples, ratios
from benchmarks.plan import Plan
from benchmarks.server import PrivateServer
from benchmarks.work import QUEUE, specs
from delayq.core.options import Options
from delayq.core.outcome import DONE
from delayq.drivers.base import Delivery, Settlement
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis import resharding
from delayq.redis.client import Client
from delayq.redis.connect import Connector

NAME = "masters"
JOBS = 40_000
SHARDS: Final = 12
READ: Final = 250
STEPS: Final = ("schedule_many", "promote", "fetch and settle")


@dataclass(slots=True)
class Spent:
    """What one step took: the clock, this client, and the servers, each in seconds; bytes on the wire."""

    clock: float = 0.0
    client: float = 0.0
    servers: list[float] = field(default_factory=list)
    wire: int = 0


@dataclass(slots=True)
class Side:
    """One queue on some servers."""

    name: str
    servers: Sequence[PrivateServer]
    client: Client
    driver: RedisStreams

    def once(self, jobs: int) -> list[Spent]:
        """All steps of so many jobs."""
        wanted = specs(jobs, delay="1ms")
        steps: tuple[Callable[[], object], ...] = (
            lambda: self.client.schedule_many(wanted),
            self._promote,
            lambda: self._consume(jobs),
        )
        return [self._spent(step) for step in steps]

    def _promote(self) -> None:
        for shard in self.driver.queues():
            while self.driver.promote(shard).moved:
                pass

    def _consume(self, jobs: int) -> None:
        consumer, done = self.driver.consumer("dq:bench", [QUEUE]), 0
        held: Sequence[Delivery] = ()
        while done < jobs:
            fetched = consumer.fetch([Settlement(one, DONE) for one in held], READ)
            settled = (*fetched.settled, *(fetched.later().settled if fetched.later else ()))
            done, held = done + sum(answer is True for answer in settled), fetched.deliveries
        consumer.close()

    def _spent(self, step: Callable[[], object]) -> Spent:
        before, clock, client = [_used(one) for one in self.servers], time.perf_counter(), time.process_time()
        step()
        spent = Spent(time.perf_counter() - clock, time.process_time() - client)
        for (seconds, wire), server in zip(before, self.servers, strict=True):
            now, more = _used(server)
            spent.servers.append(now - seconds)
            spent.wire += more - wire
        return spent


def run(plan: Plan) -> Report:
    """One server alone, a cluster of one primary, and one of three, in turn; the last two with the same shards."""
    jobs = plan.size(JOBS)
    with (
        plan.server() as alone,
        PrivateCluster(plan.binary, 1) as one,
        PrivateCluster(plan.binary, 3) as three,
        _side("one server", alone.url, [alone]) as plain,
        _side("one primary", one.url, one.servers, SHARDS) as single,
        _side("three primaries", three.url, three.servers, SHARDS) as triple,
    ):
        sides = (plain, single, triple)
        found: dict[str, list[list[Spent]]] = {side.name: [] for side in sides}
        for turn in range(plan.runs + 1):
            for side in sides if turn % 2 else reversed(sides):
                spent = side.once(jobs)
                if turn:  # the first warms up
                    found[side.name].append(spent)
    return Report([*_costs(found[plain.name], jobs), *_against(found, jobs)], [_note(found[triple.name])])


@contextmanager
def _side(name: str, url: str, servers: Sequence[PrivateServer], shards: int = 1) -> Iterator[Side]:
    connector, options = Connector(url), Options(high_water=10_000_000, queue=QUEUE)
    client, driver = Client(connector, options), RedisStreams(connector, options)
    client.run(client.verbs.register(QUEUE))
    if shards > 1:
        layout = client.run(resharding.change(client.verbs, QUEUE, shards))
        client.run(resharding.end(client.verbs, QUEUE, layout))
    for shard in driver.queues():
        driver.tidy(shard)
    yield Side(name, servers, client, driver)
    client.close()
    connector.close()


def _used(server: PrivateServer) -> tuple[float, int]:
    """Processor seconds and bytes on the wire since it started."""
    with server.client() as client:
        told: dict[str, Any] = client.info()
    wire = int(told["total_net_input_bytes"]) + int(told["total_net_output_bytes"])
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"]), wire


def _costs(runs: Sequence[Sequence[Spent]], jobs: int) -> list[Row]:
    """Of one server, step by step."""
    rows = []
    for number, step in enumerate(STEPS):
        spent = [run[number] for run in runs]
        rows += [
            Row(f"one server, {step}: processor time of Redis", _each([sum(one.servers) for one in spent], jobs, 1e6)),
            Row(f"one server, {step}: bytes on the wire", _each([one.wire for one in spent], jobs, 1, "bytes/job")),
        ]
    whole = [sum(sum(one.servers) for one in run) for run in runs]
    client = [sum(one.client for one in run) for run in runs]
    return [
        *rows,
        Row("one server, all steps: processor time of Redis", _each(whole, jobs, 1e6)),
        Row("one server, all steps: processor time of the client", _each(client, jobs, 1e6)),
    ]


def _against(found: dict[str, list[list[Spent]]], jobs: int) -> list[Row]:
    """Three primaries against one, and both against a server alone."""
    carried = {name: _rate([max(_by_server(run)) for run in runs], jobs) for name, runs in found.items()}
    clock = {name: _rate([sum(one.clock for one in run) for run in runs], jobs) for name, runs in found.items()}
    plain, single, triple = found
    return [
        Row("until the busiest server's core is full: one server", carried[plain]),
        _row(f"the same: one primary with {SHARDS} shards, against it", carried[single], carried[plain]),
        _row(f"the same: three primaries with {SHARDS} shards, against one", carried[triple], carried[single]),
        _row("by the clock, all on this machine: three primaries against one", clock[triple], clock[single]),
    ]


def _row(what: str, ours: Samples, other: Samples) -> Row:
    return Row(what, ours, other, ratios(ours, other))


def _by_server(run: Sequence[Spent]) -> list[float]:
    return [sum(parts) for parts in zip(*(one.servers for one in run), strict=True)]


def _each(values: Sequence[float], jobs: int, scale: float, unit: str = "µs/job") -> Samples:
    return Samples(tuple(value / jobs * scale for value in values), unit)


def _rate(seconds: Sequence[float], jobs: int) -> Samples:
    return Samples(tuple(jobs / one for one in seconds), "jobs/s")


def _note(runs: Sequence[Sequence[Spent]]) -> str:
    totals = [sum(parts) for parts in zip(*(_by_server(run) for run in runs), strict=True)]
    shares = ", ".join(f"{total / sum(totals):.0%}" for total in totals)
    return f"Of the work of the three primaries each had {shares}; {SHARDS} shards lie where their names' slots lie."
