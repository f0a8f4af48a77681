"""All scenarios, in the order in which the full tier plays them."""

from __future__ import annotations

from tests.chaos.engine import Scenario
from tests.chaos.scenarios import processes, servers, volume

_ALL = (
    Scenario(
        name="kills",
        holds="kill -9 of producers, movers and workers loses no job, and repeats only what the killed held",
        promises=("P1", "P7"),
        unit="kills",
        units=10_000,
        lot=250,
        smoke=20,
        play=processes.kills,
    ),
    Scenario(
        name="struck-off",
        holds="after 200 deaths of a worker its group knows no more than those that live, and five",
        promises=("P21",),
        unit="restarts",
        units=200,
        lot=200,
        play=processes.struck_off,
    ),
    Scenario(
        name="freezes",
        holds="a worker that was frozen for three leases changes nothing that is not its own",
        promises=("P8",),
        unit="SIGSTOPs",
        units=1_000,
        lot=250,
        smoke=5,
        play=processes.freezes,
    ),
    Scenario(
        name="recovery",
        holds="the job of a killed worker is started again within lease + tick + 2 s",
        promises=("P9",),
        unit="kills",
        units=100,
        lot=10,
        play=processes.recovery,
    ),
    Scenario(
        name="redis-kills",
        holds="kill -9 of the server under load loses nothing it acknowledged, with appendfsync always",
        promises=("P2", "P5"),
        unit="kills",
        units=200,
        lot=25,
        smoke=3,
        play=servers.redis_kills,
    ),
    Scenario(
        name="redis-kills-everysec",
        holds="the same with appendfsync everysec: what a running fsync held back is counted",
        promises=("P2", "P5"),
        unit="kills",
        units=200,
        lot=25,
        play=servers.redis_kills_everysec,
    ),
    Scenario(
        name="restarts",
        holds="after a restart of Redis workers consume again within five seconds, by themselves",
        promises=("P16",),
        unit="restarts",
        units=200,
        lot=25,
        smoke=2,
        play=servers.restarts,
    ),
    Scenario(
        name="stopped",
        holds="a Redis that stood still for two leases takes no live job back",
        promises=("P11",),
        unit="stops",
        units=60,
        lot=10,
        smoke=1,
        play=servers.stopped,
    ),
    Scenario(
        name="million",
        holds="without faults every job runs once, and none before it is due",
        promises=("P6", "P12"),
        unit="jobs",
        units=1_000_000,
        lot=250_000,
        smoke=2_000,
        play=volume.million,
    ),
    Scenario(
        name="herd",
        holds="what falls due in one millisecond is no burden to others: the p99 of foreign PINGs is at most 20 ms",
        promises=("P14", "P23"),
        unit="jobs",
        units=100_000,
        lot=100_000,
        play=volume.herd,
    ),
)

SCENARIOS: dict[str, Scenario] = {one.name: one for one in _ALL}
