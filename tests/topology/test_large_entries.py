"""Entries that are too large to be read together, on two nodes of a cluster at once."""

from __future__ import annotations

import pytest

from delayq.core.errors import OutcomeUnknown
from delayq.core.options import Options
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis.connect import Connector
from tests.support.topologies import Group, Kind, say

QUEUES = ("orders", "vip")
MOST = Options(max_payload=1_024).max_envelope


@pytest.fixture
def topology() -> Kind:
    return Kind.CLUSTER


def test_they_are_read_one_by_one_of_every_node(group: Group) -> None:
    driver = RedisStreams(Connector(group.url), Options(max_payload=1_024))
    consumer = driver.consumer("reader", QUEUES)
    for queue in QUEUES:
        for name, size in (("large", MOST + 1), ("small", 10), ("larger", 2 * MOST)):
            words = ("id", f"{name}-{queue}", "job", b"x" * size, "due", "0", "recoveries", "0")
            url = f"{group.owner(queue).url}&protocol=2"
            say(url, "XADD", f"delayq:{{{queue}}}:stream", "*", *words)

    with pytest.raises(OutcomeUnknown, match="too large to be read at once"):
        consumer.fetch((), 9)
    consumer.fetch((), 9)
    found = consumer.replay()

    assert {(one.id, len(one.raw), bool(one.unreadable)) for one in found.deliveries} == {
        job
        for queue in QUEUES
        for job in ((f"large-{queue}", 0, True), (f"small-{queue}", 10, False), (f"larger-{queue}", 0, True))
    }
    assert (found.errors, found.more) == ([], False)
    consumer.close()
    driver.close()
