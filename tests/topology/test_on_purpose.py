"""A primary behind sentinels that an operator replaces while jobs flow and nobody holds on: what that costs.

After `SENTINEL FAILOVER` the old primary lives, and takes jobs until sentinels demote it; a shutdown waits for its
replicas. The figures stand in docs/guarantees.md; the sentinels' own waits make this long, so it is in the full tier.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest

from delayq.core.errors import DelayqError
from delayq.core.options import Options
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.keys import Keys
from tests.support.flavours import default_flavour, require
from tests.support.servers import LocalServer, connect
from tests.support.topologies import SERVICE, SentinelProcess, Sentinels, is_linked, is_primary
from tests.support.waiting import wait_until

ROUNDS = 5
QUEUE = "orders"
DURABILITIES = ("memory", "replicas:1", "replicas:2")
pytestmark = [
    pytest.mark.skipif(os.environ.get("DELAYQ_CHAOS") != "full", reason="DELAYQ_CHAOS=full"),
    pytest.mark.timeout(600),
]


class Producer:
    """Schedules jobs of one durability until it is closed; `taken` are those it was told yes for."""

    def __init__(self, client: Client, durability: str) -> None:
        self.taken: list[str] = []
        self._client, self._durability = client, durability
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def flow(self, more: int) -> None:
        """Wait until so many more were taken."""
        enough = len(self.taken) + more
        wait_until(lambda: len(self.taken) >= enough, timeout=60, what=f"{more} more of {self._durability}")

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        n = 0
        while not self._stop.wait(0.05):
            n += 1
            try:
                ref = self._client.schedule(
                    "x", id=f"{self._durability}-{n}", delay="1d", queue=QUEUE, durability=self._durability
                )
            except DelayqError:
                continue
            self.taken.append(ref.id)


def order_a_failover(group: Sentinels) -> None:
    before = group.primary()
    group.fail_over()
    wait_until(lambda: not is_primary(before), timeout=60, what="the old primary is demoted")


def shut_down(group: Sentinels) -> None:
    """It comes back when every sentinel names another: one that is back sooner still counts as the primary there."""
    before = group.primary()
    old = group.ports[group.servers.index(before)]
    before.shutdown()
    wait_until(lambda: all(_named(one) != old for one in group.sentinels), timeout=60, what="all name another")
    before.start()


def _named(sentinel: SentinelProcess) -> int:
    """The port of the primary in its list, which clients read; the address it tells changes sooner."""
    flat = sentinel.say("SENTINEL", "MASTER", SERVICE)
    return int(dict(zip(flat[::2], flat[1::2], strict=True))[b"port"])


@pytest.mark.parametrize(
    ("act", "keeps"),
    [(order_a_failover, {"replicas:2"}), (shut_down, set(DURABILITIES))],
    ids=["SENTINEL FAILOVER", "shut down"],
)
def test_what_a_replaced_primary_takes_with_it(
    act: Callable[[Sentinels], None],
    keeps: set[str],
    record_property: Callable[[str, object], None],
    request: pytest.FixtureRequest,
) -> None:
    lost = dict.fromkeys(DURABILITIES, 0)
    count = dict.fromkeys(DURABILITIES, 0)
    with closing(Sentinels(require(default_flavour()), persistent=True)) as group:
        for _ in range(ROUNDS):
            taken = _produce_while(group, partial(act, group))
            with connect(group.primary().url) as client:
                there = {name.decode() for name in client.hkeys(Keys(Options().prefix, QUEUE).of("jobs"))}
                client.flushall()
            for durability, ids in taken.items():
                count[durability] += len(ids)
                lost[durability] += len(set(ids) - there)
    told = ", ".join(f"{name} {lost[name]} of {count[name]}" for name in DURABILITIES)
    record_property("chaos", f"{request.node.callspec.id}, {ROUNDS} times, lost: {told}")
    assert {durability for durability in keeps if lost[durability]} == set()


def _follows(group: Sentinels, server: LocalServer) -> bool:
    """The one that came back is a primary of its own until sentinels demote it, after about ten seconds."""
    return server is group.primary() or (not is_primary(server) and is_linked(server))


def _produce_while(group: Sentinels, act: Callable[[], None]) -> dict[str, list[str]]:
    """What each durability was told yes for, from before that until all follow the new primary."""
    with closing(Connector(group.url)) as connector:
        producers = {name: Producer(Client(connector, Options()), name) for name in DURABILITIES}
        try:
            for one in producers.values():
                one.flow(10)
            act()
            group.wait_for_all()
            wait_until(lambda: all(_follows(group, server) for server in group.servers), timeout=60, what="all follow")
            for one in producers.values():
                one.flow(10)
        finally:
            for one in producers.values():
                one.close()
    return {name: one.taken for name, one in producers.items()}
