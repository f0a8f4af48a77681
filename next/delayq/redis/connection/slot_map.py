"""The nodes of a Redis Cluster, and which node has which slot.

A slot is one of 16,384 groups of keys. The keys of one queue share a slot. Each slot belongs to one primary; slots move
to other nodes when an operator moves them, and when a replica replaces a primary.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from redis.crc import key_slot

from delayq.core.errors import BackendUnavailable, CallRefused, ConfigError, LoginRefused
from delayq.redis.calls.call import Call, read
from delayq.redis.connection.errors import hint_of_lost
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.several import SeveralServers, host_in_url, host_named_by
from delayq.redis.connection.url import CLUSTER_FORM, SINGLE_FORM, Address, form_like

SLOTS: Final = 16_384

READ_EVERY: Final = 0.25
"""Shortest interval between two reads of the map, in seconds."""

SHORTEST_QUESTION: Final = 0.5
"""Each node gets at least this many seconds to answer the request for the map. If less time is left, the node gets the
time that is left, but at least half of this value.
"""


class ClusterAddress:
    """The address of a cluster: `redis+cluster://user:password@host1:6379,host2`. Raises ConfigError.

    The hosts are some nodes of the cluster; they name the others. All nodes have the same login and options.
    """

    def __init__(self, url: str) -> None:
        self._servers = SeveralServers(url, default_port=6379, form=CLUSTER_FORM)
        self.masked = self._servers.masked
        self.hosts = self._servers.hosts
        if {self._servers.path, self._servers.database} - {"", "0"}:
            raise ConfigError(
                f"The url {self.masked!r} names a database, but a Redis Cluster has only database 0.",
                hint="Remove the database from the url. Use a prefix to separate applications: DELAYQ_PREFIX.",
                field="url",
            )
        for host in self.hosts:
            self.node(host)

    def node(self, host: str) -> Address:
        """Return the address of one node. `host`: its host and port, as in a url."""
        return self._servers.address(host)


class SlotMap:
    """The executors of the nodes, by slot.

    `make_node`: makes the executor of one node. Nodes that failed are asked last for the map.
    """

    def __init__(
        self,
        address: ClusterAddress,
        make_node: Callable[[Address], ServerExecutor],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._make_node = make_node
        self._clock = clock
        self._nodes: dict[str, ServerExecutor] = {}
        self._owners: list[str] = []
        self._failed_at: dict[str, float] = {}
        self._read_at = clock() - READ_EVERY
        self._is_stale = True

    def owner(self, key: str) -> str:
        """Return the node that has a key. Call `refresh` first."""
        return self._owners[key_slot(key.encode())]

    def primaries(self) -> list[str]:
        """Return the nodes that have slots, sorted by their last failure: first the nodes without a failure."""
        return sorted(set(self._owners), key=lambda node: (self._failed_at.get(node, 0.0), node))

    def executor(self, node: str) -> ServerExecutor:
        """Return the executor of a node."""
        executor = self._nodes.get(node)
        if executor is None:
            executor = self._nodes[node] = self._make_node(self._address.node(node))
        return executor

    def failed_at(self, node: str) -> float | None:
        """Return the time at which a node last failed, unless it has answered since."""
        return self._failed_at.get(node)

    def note_failure(self, node: str) -> None:
        """Record that a node did not answer. Another node may have its slots soon."""
        self._failed_at[node] = self._clock()
        self._is_stale = True

    def note_answer(self, node: str) -> None:
        """Record that a node answered."""
        if self._failed_at:
            self._failed_at.pop(node, None)

    def expire(self) -> None:
        """Let the next refresh read the map."""
        self._is_stale = True

    def assign(self, slot: int, host: str, port: int) -> None:
        """Record that a node named the owner of a slot. The owners of other slots may have changed too."""
        self._owners[slot] = host_in_url(host, port)
        self._is_stale = True

    async def refresh(self, until: float) -> None:
        """Read the map if it is unknown or stale, at most once in READ_EVERY seconds.

        `until`: the deadline, as a time of the clock. The nodes share the time until then; for the time that each node
        gets at least, see SHORTEST_QUESTION. After the deadline, no further node is asked, and the next read begins
        with the nodes that were not asked. The lookup of a host name has no time limit, so its time is not taken from
        the other nodes.

        Raises BackendUnavailable if no node answers, ConfigError if the server is not a cluster, and LoginRefused if
        the nodes that answer refuse the login.
        """
        if self._owners and (not self._is_stale or self._clock() < self._read_at + READ_EVERY):
            return
        self._read_at = self._clock()
        refusal: LoginRefused | None = None
        reasons: dict[str, None] = {}
        known = dict.fromkeys([*self.primaries(), *self._address.hosts])
        nodes = sorted(known, key=lambda node: self._failed_at.get(node, 0.0))
        for n, node in enumerate(nodes):
            left = until - self._clock()
            if n and left <= 0:
                break
            share = max(min(max(left / (len(nodes) - n), SHORTEST_QUESTION), left), SHORTEST_QUESTION / 2)
            asked_at = self._clock()
            try:
                ranges = await self.executor(node).ask(_SLOTS_CALL, within=share)
            except BackendUnavailable as error:
                reasons[str(error.__cause__ or error.message).removesuffix(".")] = None
                self.note_failure(node)
                until += max(self._clock() - asked_at - share, 0.0)
                continue
            except LoginRefused as error:
                self.note_failure(node)
                refusal = error
                continue
            except CallRefused as error:
                raise _not_a_node(self.executor(node).where, error) from error
            self.note_answer(node)
            self._fill(ranges, node)
            return
        if refusal is not None:
            raise refusal
        silent = ", ".join(self.executor(node).where for node in known if node in self._failed_at)
        reason = "; ".join(reasons)
        raise BackendUnavailable(
            f"No node of the Redis Cluster answered ({silent}): {reason}. The request was not sent.",
            hint=hint_of_lost(reason, silent),
        )

    async def close(self) -> None:
        """Close the idle connections of all nodes."""
        for executor in list(self._nodes.values()):
            await executor.close()

    def _fill(self, ranges: list[tuple[int, int, str, int]], asked: str) -> None:
        """Replace the map."""
        owners = [""] * SLOTS
        for first, last, host, port in ranges:
            node = host_in_url(host_named_by(asked, host), port)
            owners[first : last + 1] = [node] * (last + 1 - first)
        # Calls for slots without an owner go to the node that was asked, which answers CLUSTERDOWN.
        self._owners = [owner or asked for owner in owners]
        self._is_stale = False


def _not_a_node(where: str, error: CallRefused) -> ConfigError:
    """Return the error for a server that refused to name the nodes of its cluster."""
    if "cluster support disabled" not in error.message:
        return ConfigError(error.message, hint=error.hint, field="url")
    return ConfigError(
        f"Redis at {where} is not a node of a cluster: {error.message}",
        hint=f"Write the address of a single server: {form_like(where, SINGLE_FORM)}.",
        field="url",
    )


def _ranges(reply: list[Any]) -> list[tuple[int, int, str, int]]:
    return [(first, last, _host(primary), primary[1]) for first, last, primary, *_ in reply]


def _host(primary: list[Any]) -> str:
    """Return the host of a node; '' = unknown.

    If the cluster prefers host names, but this node has none, return its IP address.
    """
    host, _, _, *more = primary
    if host == b"?" and more:
        host = dict(zip(more[0][::2], more[0][1::2], strict=True)).get(b"ip")
    return (host or b"").decode()


_SLOTS_CALL: Final[Call[list[tuple[int, int, str, int]]]] = read("CLUSTER", "SLOTS", parse=_ranges)
