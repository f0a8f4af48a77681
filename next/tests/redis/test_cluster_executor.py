"""The executor for a cluster with nodes in memory: how long it retries the calls of a node that hangs."""

from collections.abc import Sequence
from typing import Any

import pytest
from redis.crc import key_slot
from redis.exceptions import ResponseError

from delayq.core.errors import BackendUnavailable, LoginRefused, NodeUnavailable
from delayq.redis.calls.call import Call, read
from delayq.redis.connection.cluster import ClusterExecutor
from delayq.redis.connection.errors import refusal
from delayq.redis.connection.executor import Started
from delayq.redis.connection.leaf import drive
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.slot_map import SLOTS, ClusterAddress, SlotMap
from delayq.redis.connection.url import Address

TRY_TIMEOUT = 2.0
RETRY_TIMEOUT = 5.0
HANGING = "h1"
CALL = read("GET", "key", parse=lambda reply: reply)


class Cluster:
    """A cluster of two nodes, of which HANGING does not answer. `owner` has the slot of CALL."""

    def __init__(self, hosts: str = "h2,h1") -> None:
        self.now = 100.0
        self.owner = HANGING
        self.asked: list[str] = []
        self.refuses_login: set[str] = set()
        self.moves_keys = False
        self.lookup_seconds = 0.0
        self.down_until = 0.0
        address = ClusterAddress(f"redis+cluster://{hosts}")
        self.executor = ClusterExecutor(
            SlotMap(address, self._make_node, clock=lambda: self.now),
            where="a cluster",
            retry_timeout=RETRY_TIMEOUT,
            rest=0.0,
            sleep=self._sleep,
            clock=lambda: self.now,
        )

    def _make_node(self, address: Address) -> ServerExecutor:
        return Node(self, HANGING if HANGING in address.masked else "h2")  # type: ignore[return-value]

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds


class Node:
    """One node. A connection to a hanging node takes two seconds."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.where = name
        self._cluster = cluster

    async def ask(self, call: Call[Any], *, within: float) -> list[tuple[int, int, str, int]]:
        self._check_login()
        if self._cluster.now < self._cluster.down_until:
            raise BackendUnavailable("refused")
        if self.where == HANGING:
            self._cluster.now += self._cluster.lookup_seconds or min(within, TRY_TIMEOUT)
            raise BackendUnavailable("hangs")
        return [(0, 0, "h2", 6379), (1, SLOTS - 1, self._cluster.owner, 6379)]

    async def start(self, calls: Sequence[Call[Any]]) -> Started[Any]:
        self._cluster.asked.append(self.where)
        self._check_login()
        if self.where == HANGING:
            self._cluster.now += TRY_TIMEOUT
        return Started(calls, None)

    def _check_login(self) -> None:
        if self.where in self._cluster.refuses_login:
            raise LoginRefused(f"Redis at {self.where} refused the login.")

    async def finish(self, started: Started[Any], *, block: float = 0.0) -> list[Any]:
        if self._cluster.now < self._cluster.down_until:
            raise BackendUnavailable("refused")
        if self._cluster.moves_keys:
            return [refusal(call.name, ResponseError("TRYAGAIN"), self.where) for call in started.calls]
        if self.where == HANGING:
            raise BackendUnavailable("hangs")
        return ["value"] * len(started.calls)


def test_a_call_to_a_hanging_node_ends_in_time() -> None:
    cluster = Cluster()
    with pytest.raises(NodeUnavailable):
        drive(cluster.executor.run(CALL))
    assert cluster.now - 100 <= RETRY_TIMEOUT
    assert cluster.asked == [HANGING, HANGING]


def test_a_call_is_sent_to_a_node_that_took_over_at_the_last_moment() -> None:
    cluster = Cluster()

    async def sleep(seconds: float) -> None:
        cluster.now += seconds
        if len(cluster.asked) == 2:
            cluster.owner = "h2"

    cluster.executor._sleep = sleep
    assert drive(cluster.executor.run(CALL)) == "value"
    assert cluster.asked == [HANGING, HANGING, "h2"]


def test_a_call_waits_for_a_node_that_takes_over_until_the_deadline() -> None:
    cluster = Cluster()

    async def sleep(seconds: float) -> None:
        cluster.now += seconds
        if cluster.now >= 104.6:
            cluster.owner = "h2"

    cluster.executor._sleep = sleep
    assert drive(cluster.executor.run(CALL)) == "value"
    assert cluster.asked == [HANGING, HANGING, "h2"]


def test_a_command_waits_for_a_node_only_once() -> None:
    cluster = Cluster()
    cluster.executor.skip_failed_nodes(30)
    for _ in range(3):
        with pytest.raises(NodeUnavailable):
            drive(cluster.executor.run(CALL))
    assert cluster.now - 100 <= RETRY_TIMEOUT
    assert cluster.asked == [HANGING, HANGING]
    cluster.owner = "h2"
    cluster.now += 1
    assert drive(cluster.executor.run(CALL)) == "value"
    cluster.owner = HANGING
    cluster.executor._slots.expire()
    cluster.now += 30
    with pytest.raises(NodeUnavailable):
        drive(cluster.executor.run(CALL))
    assert cluster.asked == [HANGING, HANGING, "h2", HANGING, HANGING]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_call_waits_while_no_node_answers(is_known: bool) -> None:
    cluster = Cluster()
    cluster.owner = "h2"
    if is_known:
        assert drive(cluster.executor.run(CALL)) == "value"
    cluster.down_until = 103
    assert drive(cluster.executor.run(CALL)) == "value"
    assert 103 <= cluster.now < 103.5
    cluster.down_until = 200
    began = cluster.now
    with pytest.raises(BackendUnavailable):
        drive(cluster.executor.run(CALL))
    assert RETRY_TIMEOUT - 0.5 <= cluster.now - began <= RETRY_TIMEOUT


@pytest.mark.parametrize("nodes", [1, 2, 6, 40])
def test_a_call_ends_in_time_while_all_nodes_hang(nodes: int, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(",".join(f"{HANGING}{n}" for n in range(nodes)))
    caplog.set_level("DEBUG", "delayq.redis.waiting")
    for _ in range(2):
        with pytest.raises(BackendUnavailable, match="No node of the Redis Cluster answered"):
            drive(cluster.executor.run(CALL))
        assert RETRY_TIMEOUT - 0.5 <= cluster.now - 100 <= RETRY_TIMEOUT
        assert "Trying again …" in caplog.messages[0]
        cluster.now = 100.0


def test_a_slow_lookup_of_one_host_leaves_the_others_their_time() -> None:
    """In a container, a name server that is away answers for a stopped node only after its own time limit."""
    cluster = Cluster(f"{HANGING},h2")
    cluster.owner = "h2"
    cluster.lookup_seconds = 10.0
    assert drive(cluster.executor.run(CALL)) == "value"
    assert cluster.now == 110.0


def test_the_nodes_that_did_not_answer_are_asked_last_in_the_next_call() -> None:
    cluster = Cluster(",".join([*(f"{HANGING}{n}" for n in range(20)), "h2"]))
    cluster.owner = "h2"
    with pytest.raises(BackendUnavailable):
        drive(cluster.executor.run(CALL))
    began = cluster.now
    while cluster.now < began + 3 * RETRY_TIMEOUT:
        try:
            assert drive(cluster.executor.run(CALL)) == "value"
            break
        except BackendUnavailable:
            pass
    else:
        pytest.fail("the node that answers was never asked")


def test_a_loop_does_not_wait_while_no_node_answers() -> None:
    cluster = Cluster()
    cluster.executor._rest = 2.0
    cluster.down_until = 200
    with pytest.raises(BackendUnavailable):
        drive(cluster.executor.run(CALL))
    assert cluster.now == 100


def test_a_node_that_moves_some_keys_has_not_failed() -> None:
    cluster = Cluster()
    cluster.owner = "h2"
    cluster.moves_keys = True
    with pytest.raises(NodeUnavailable, match="it is moving these keys") as raised:
        drive(cluster.executor.run(CALL))
    assert raised.value.node == ""
    cluster.moves_keys, cluster.owner = False, HANGING
    cluster.executor._slots.expire()
    cluster.now += 1
    with pytest.raises(NodeUnavailable) as raised:
        drive(cluster.executor.run(CALL))
    assert (raised.value.node, raised.value.was_skipped) == ("h1:6379", False)
    cluster.executor._rest = 2.0
    with pytest.raises(NodeUnavailable) as raised:
        drive(cluster.executor.run(CALL))
    assert (raised.value.node, raised.value.was_skipped) == ("h1:6379", True)


def test_a_node_that_refuses_the_login_fails_its_own_calls_only() -> None:
    cluster = Cluster()
    elsewhere = read("GET", "{3560}", parse=lambda reply: reply)
    assert key_slot(b"{3560}") == 0
    cluster.refuses_login = {HANGING}
    failed, value = drive(cluster.executor.run_all([CALL, elsewhere]))
    assert isinstance(failed, NodeUnavailable)
    assert (failed.message, failed.node) == ("Redis at h1 refused the login.", "h1:6379")
    assert value == "value"
    assert cluster.now == 100
    cluster.refuses_login = {HANGING, "h2"}
    cluster.now += 1
    with pytest.raises(LoginRefused):
        drive(cluster.executor.run(elsewhere))
