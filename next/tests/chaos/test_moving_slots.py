"""Slots move to another node of a cluster and back while jobs are scheduled and run. The figures are printed."""

import os
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from redis.crc import key_slot

from delayq import DelayQ
from tests.support.noting import Producer, due_of, errors_of, noting_worker, scheduling
from tests.support.topologies import ClusterGroup, Server, cluster_group, command
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

TIMES: Final = 5
QUEUE: Final = "moving"
KEYS: Final = (f"delayq:{{{QUEUE}}}:jobs", "delayq:queues", "delayq:control", "delayq:workers")
"""One key of each slot that moves."""

RATE: Final = 50
PRODUCERS: Final = 2
PAGE: Final = 10
"""Keys that move at once, as in redis-cli."""

SLOWLY: Final = 20
PAUSE: Final = 0.02
"""After each of the first SLOWLY pages of a slot, in seconds, so that some keys are on one node and some on the other.
"""


def move(source: Server, target: Server, slot: int) -> int:
    """Move a slot as redis-cli does, but first slowly. Return the number of moved keys."""
    command(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", command(source, "CLUSTER", "MYID"))
    command(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", command(target, "CLUSTER", "MYID"))
    moved = 0
    while keys := command(source, "CLUSTER", "GETKEYSINSLOT", slot, PAGE):
        command(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        moved += len(keys)
        if moved <= SLOWLY * PAGE:
            time.sleep(PAUSE)
    for server in (target, source):
        command(server, "CLUSTER", "SETSLOT", slot, "NODE", command(target, "CLUSTER", "MYID"))
    return moved


def move_there_and_back(group: ClusterGroup) -> int:
    primaries = group.servers[:3]
    moved = 0
    for key in KEYS:
        slot = key_slot(key.encode())
        source = group.owner_of_slot(slot)
        target = next(server for server in primaries if server is not source)
        moved += move(source, target, slot)
        time.sleep(0.3)
        moved += move(target, source, slot)
        time.sleep(0.3)
    return moved


def test_slots_move_to_and_fro(tmp_path: Path) -> None:
    with cluster_group() as group, noting_worker(tmp_path, group.url, [QUEUE], "--processes", "2") as runs:
        producers = [
            Producer(group.url, [QUEUE], numbers=(n, PRODUCERS), every=PRODUCERS / RATE) for n in range(PRODUCERS)
        ]
        began = time.monotonic()
        with scheduling(producers):
            wait_until(lambda: len(runs.read()) > RATE)
            moved = [move_there_and_back(group) for _ in range(TIMES)]
        took = time.monotonic() - began
        due = due_of(producers)
        with DelayQ(group.url) as client:
            wait_until(lambda: not any(s.scheduled or s.ready or s.reserved for s in client.stats()), patience=60)
            assert client.queues() == [QUEUE]
        counts = Counter(number for number, _ in runs.read())
        late = sorted(runs.latenesses(due).values())
    sent = sum(producer.sent for producer in producers)
    slowest = max(producer.slowest for producer in producers)
    lost = set(due) - set(counts)
    twice = sum(count > 1 for count in counts.values())
    print(
        f"\n{len(KEYS)} slots moved to and fro {TIMES} times ({sum(moved)} keys): {sent} calls in {took:.0f} s, "
        f"{sum(errors_of(producers).values())} failed {dict(errors_of(producers))}, {len(lost)} jobs lost, "
        f"{twice} ran more than once; slowest call {slowest:.2f} s; jobs ran at most {late[-1]:.2f} s late; "
        f"load {os.getloadavg()[0]:.1f}"
    )
    assert not errors_of(producers)
    assert not lost
    assert not twice
    assert late[0] >= 0
    assert sent / took > 0.8 * RATE
