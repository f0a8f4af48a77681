"""Queues that are not on the list of queues are found on all nodes of a cluster."""

from __future__ import annotations

import pytest

from delayq.core.shards import shard_of
from delayq.redis.keys import Globals
from tests.support.station import QUEUE, Station
from tests.support.topologies import Kind

SHARDS = 6


@pytest.fixture
def topology() -> Kind:
    return Kind.CLUSTER


def test_they_are_on_the_list_again(station: Station) -> None:
    station.client.queue_set(QUEUE, shards=SHARDS)
    station.client.schedule_many([{"name": "note", "id": f"j{n}", "delay": "1h"} for n in range(60)])
    names = [shard_of(QUEUE, number) for number in range(SHARDS)]
    assert station.driver.queues() == names
    station.connector.commands().delete(Globals("delayq").queues)
    assert station.driver.relist(), "few keys are one page of each node"
    assert station.driver.queues() == names
