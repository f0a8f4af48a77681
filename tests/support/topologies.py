"""Servers that belong together, started by the suite itself on loopback: a cluster, or a primary with sentinels.

    Standalone      one server
    Sentinels       1 primary, 2 replicas, 3 sentinels
    RedisCluster    3 primaries with 16384 slots between them, a replica for each

Each is stopped by the pids of its own processes; none outlives the test process.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import redis

from delayq.redis.server_binary import ServerBinary
from delayq.redis.server_process import start_child
from tests.support.servers import LocalServer, ServerGroup, connect
from tests.support.waiting import wait_until

HOST = "127.0.0.1"
NODE_TIMEOUT_MS = 1_000
DOWN_AFTER_MS = 1_000
SLOTS = 16_384
SERVICE = "main"


class Kind(StrEnum):
    """The three ways servers may belong together."""

    STANDALONE = "standalone"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


class Group(ServerGroup, Protocol):
    """What a test needs to know of any of them."""

    kind: Kind

    def owner(self, queue: str) -> LocalServer:
        """The one that has the keys of a queue."""


class Standalone:
    """One server."""

    kind = Kind.STANDALONE

    def __init__(self, binary: ServerBinary) -> None:
        self._server = LocalServer(binary)
        self._server.start()
        self.url = self._server.url

    def primaries(self) -> list[LocalServer]:
        return [self._server]

    def owner(self, queue: str) -> LocalServer:
        return self._server

    def pids(self) -> set[int]:
        return {self._server.pid}

    def close(self) -> None:
        self._server.close()


class RedisCluster:
    """`servers` are the primaries and then their replicas, in the same order, as long as nothing has failed over."""

    kind = Kind.CLUSTER

    def __init__(
        self, binary: ServerBinary, *, replicas: bool = True, options: Mapping[str, str] | None = None
    ) -> None:
        self.ports = free_ports(6 if replicas else 3)
        self.url = f"redis+cluster://{','.join(f'{HOST}:{port}' for port in self.ports[:3])}"
        more = {"cluster-enabled": "yes", "cluster-node-timeout": str(NODE_TIMEOUT_MS), "cluster-config-file": "nodes"}
        more |= {"bind": HOST, "repl-diskless-sync-delay": "0", "cluster-replica-validity-factor": "0"}
        self.servers = [LocalServer(binary, options={**more, "port": str(p), **(options or {})}) for p in self.ports]
        for server in self.servers:
            server.start()
        self._ids: dict[str, LocalServer] = {
            self.say(server, "CLUSTER", "MYID").decode(): server for server in self.servers
        }
        self._join()

    def primaries(self) -> list[LocalServer]:
        return list(dict.fromkeys(self._ids[str(node)] for _, _, node in self.slots()))

    def owner(self, queue: str) -> LocalServer:
        return self.owner_of(slot_of_queue(queue))

    def owner_of(self, slot: int) -> LocalServer:
        """The primary that has a slot."""
        return next(self._ids[node] for first, last, node in self.slots() if first <= slot <= last)

    def id_of(self, server: LocalServer) -> str:
        """Its name in the cluster."""
        names: dict[LocalServer, str] = {one: name for name, one in self._ids.items()}
        return names[server]

    def slots(self) -> list[tuple[int, int, str]]:
        """First, last, and the id of the primary, as some living node sees it."""
        alive = next(server for server in self.servers if server.is_alive() and server.is_ready())
        return [(int(a), int(b), node[2].decode()) for a, b, node, *_ in self.say(alive, "CLUSTER", "SLOTS")]

    def say(self, server: LocalServer, *words: Any) -> Any:
        """One command to one node."""
        return say(f"{server.url}&protocol=2", *words)

    @contextlib.contextmanager
    def moving(self, slot: int, to: LocalServer) -> Iterator[None]:
        """Move a slot key by key while others use it, as `redis-cli --cluster reshard` does.

        Inside the block one key is on the other side, and the rest are not.
        """
        source = self.owner_of(slot)
        self.say(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        self.say(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(to))
        self._migrate(slot, source, to, 1)
        yield
        while self._migrate(slot, source, to, 100):
            pass
        for server in (to, source, *(one for one in self.primaries() if one not in (to, source))):
            self.say(server, "CLUSTER", "SETSLOT", slot, "NODE", self.id_of(to))

    def _migrate(self, slot: int, source: LocalServer, to: LocalServer, count: int) -> bool:
        keys = self.say(source, "CLUSTER", "GETKEYSINSLOT", slot, count)
        if keys:
            port = self.ports[self.servers.index(to)]
            self.say(source, "MIGRATE", HOST, port, "", 0, 5_000, "KEYS", *keys)
        return bool(keys)

    def pids(self) -> set[int]:
        return {server.pid for server in self.servers}

    def close(self) -> None:
        for server in self.servers:
            server.close()

    def _join(self) -> None:
        share = SLOTS // 3
        primaries, replicas = self.servers[:3], self.servers[3:]
        for n, server in enumerate(primaries):
            slots = range(n * share, SLOTS if n == 2 else (n + 1) * share)
            self.say(server, "CLUSTER", "ADDSLOTS", *slots)
            self.say(server, "CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for port in self.ports[1:]:
            self.say(self.servers[0], "CLUSTER", "MEET", HOST, port)
        everybody = f"cluster_known_nodes:{len(self.servers)}".encode()
        for server in self.servers:
            wait_until(partial(self._tells, server, everybody), what="all nodes know all")
        for primary, replica in zip(primaries, replicas, strict=False):
            self.say(replica, "CLUSTER", "REPLICATE", self.id_of(primary))
        for server in self.servers:
            wait_until(partial(self._is_well, server), what="the cluster is whole")

    def _is_well(self, server: LocalServer) -> bool:
        return self._tells(server, b"cluster_state:ok") and is_linked(server)

    def _tells(self, server: LocalServer, line: bytes) -> bool:
        said: bytes = self.say(server, "CLUSTER", "INFO")
        return line in said


class Sentinels:
    """`servers[0]` is the first primary. `persistent` ones keep what they have when they come back.

    `environments`: more variables for each of the servers, in order.
    """

    kind = Kind.SENTINEL

    def __init__(
        self,
        binary: ServerBinary,
        options: Mapping[str, str] | None = None,
        *,
        replicas: int = 2,
        persistent: bool = False,
        environments: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self.ports = free_ports(1 + replicas)
        more = {"bind": HOST, "repl-diskless-sync-delay": "0", **(options or {})}
        self.servers = [
            LocalServer(binary, persistent=persistent, options={**more, "port": str(port)}) for port in self.ports
        ]
        self._replicate(environments)
        self.sentinels = _sentinels(binary, self.ports)
        places = ",".join(f"{HOST}:{one.port}" for one in self.sentinels)
        self.url = f"redis+sentinel://{places}/{SERVICE}"
        self.wait_for_all()

    def primaries(self) -> list[LocalServer]:
        return [self.primary()]

    def owner(self, queue: str) -> LocalServer:
        return self.primary()

    def primary(self) -> LocalServer:
        """The one the first sentinel that answers names."""
        for one in self.sentinels:
            with contextlib.suppress(redis.RedisError):
                return self.servers[self.ports.index(one.primary_port())]
        raise AssertionError("no sentinel answers")

    def failovers(self) -> int:
        """How many there have been, those too that nobody asked for: a machine that stands still looks like a death."""
        return max(one.epoch() for one in self.sentinels)

    def wait_for_all(self) -> None:
        """Until every sentinel knows of all others and of all replicas."""
        for one in self.sentinels:
            wait_until(partial(one.knows_all, len(self.ports) - 1), timeout=60, what="the sentinels know all")

    def fail_over(self) -> None:
        """Ask for another primary, and wait until there is one.

        A sentinel gives up when no replica looks well to it just then, and says so in its log alone: it is asked again.
        """
        before = self.primary()
        wait_until(self.sentinels[0].fail_over, what="the sentinels agree to a failover")
        wait_until(partial(self._has_moved, before), timeout=60, what="another is the primary")

    def _has_moved(self, before: LocalServer) -> bool:
        said = self.sentinels[0].primary()
        primary = self.servers[self.ports.index(int(said["port"]))]
        if primary is before and "failover_in_progress" not in said["flags"]:
            self.sentinels[0].fail_over()
        return primary is not before and is_primary(primary)

    def pids(self) -> set[int]:
        return {server.pid for server in self.servers} | {one.pid for one in self.sentinels}

    def close(self) -> None:
        for one in self.sentinels:
            one.close()
        for server in self.servers:
            server.close()

    def _replicate(self, environments: Sequence[Mapping[str, str]]) -> None:
        given = dict(zip(self.servers, environments, strict=False))
        for server in self.servers:
            with patch.dict(os.environ, given.get(server, {})):
                server.start()
        for replica in self.servers[1:]:
            with connect(replica.url) as client:
                client.replicaof(HOST, self.ports[0])
        for replica in self.servers[1:]:
            wait_until(partial(is_linked, replica), what="the replicas follow")


class SentinelProcess:
    """One sentinel. It is told of all others before it starts, so that it need not find them."""

    def __init__(self, binary: ServerBinary, port: int, own_id: str, lines: Sequence[str]) -> None:
        self.port = port
        self._folder = Path(tempfile.mkdtemp(prefix="dq-", dir="/tmp"))
        config = self._folder / "sentinel.conf"
        own = (f"port {port}", f"bind {HOST}", f"dir {self._folder}", f"sentinel myid {own_id}")
        config.write_text("\n".join((*own, *lines, "")))
        words = [str(binary.path), str(config), "--sentinel"]
        self._process: subprocess.Popen[bytes] = start_child(words, log=self._folder / "log", keep=())
        self.pid = self._process.pid

    def say(self, *words: Any) -> Any:
        """One command."""
        return say(f"redis://{HOST}:{self.port}?protocol=2", *words)

    def primary_port(self) -> int:
        """Where it says the primary is."""
        return int(self.say("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])

    def epoch(self) -> int:
        """Of the primary it knows: each failover is one."""
        return int(self.primary()["config-epoch"])

    def primary(self) -> dict[str, str]:
        """All that it says of it, and of a failover."""
        flat = [word.decode() for word in self.say("SENTINEL", "MASTER", SERVICE)]
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def knows_all(self, replicas: int) -> bool:
        """Whether it can tell who is there, and is in touch with enough others for a failover."""
        with contextlib.suppress(redis.RedisError):
            found = self.primary()
            counted = (found["num-slaves"], found["num-other-sentinels"], found["flags"])
            return counted == (str(replicas), "2", "master") and bool(self.say("SENTINEL", "CKQUORUM", SERVICE))
        return False

    def fail_over(self) -> bool:
        """Begin one, unless one is under way."""
        try:
            self.say("SENTINEL", "FAILOVER", SERVICE)
        except redis.ResponseError:
            return False
        return True

    def close(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=20)
        shutil.rmtree(self._folder, ignore_errors=True)


def _sentinels(binary: ServerBinary, ports: Sequence[int]) -> list[SentinelProcess]:
    own_ports, ids = free_ports(3), [secrets.token_hex(20) for _ in range(3)]
    common = [
        f"sentinel monitor {SERVICE} {HOST} {ports[0]} 2",
        f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
        f"sentinel failover-timeout {SERVICE} 5000",
        *(f"sentinel known-replica {SERVICE} {HOST} {port}" for port in ports[1:]),
    ]
    others = [
        [f"sentinel known-sentinel {SERVICE} {HOST} {port} {name}" for port, name in zip(own_ports, ids, strict=True)]
        for _ in ids
    ]
    return [
        SentinelProcess(binary, port, name, [*common, *(line for line in others[n] if name not in line)])
        for n, (port, name) in enumerate(zip(own_ports, ids, strict=True))
    ]


def say(url: str, *words: Any) -> Any:
    """One command, past what redis-py makes of the reply."""
    with connect(url) as client:
        client.response_callbacks.clear()
        return client.execute_command(*words)


def is_linked(server: LocalServer) -> bool:
    """Whether a replica has all its primary has, but for what is on the way; True for a primary."""
    found = replication(server)
    return found.get("role") == "master" or found.get("master_link_status") == "up"


def is_primary(server: LocalServer) -> bool:
    """Whether it takes itself for a primary."""
    return replication(server).get("role") == "master"


def replication(server: LocalServer) -> dict[str, Any]:
    """What it says of itself; empty while it does not answer. Sentinels end all connections of whom they demote."""
    with contextlib.suppress(redis.RedisError, OSError), connect(server.url) as client:
        found: dict[str, Any] = client.info("replication")
        return found
    return {}


def caught_up(primary: LocalServer, followers: int, queue: str) -> bool:
    """Whether so many replicas have all that the primary, which has that queue, wrote until now."""
    with contextlib.suppress(redis.RedisError, OSError), connect(primary.url) as client:
        client.set(f"{{{queue}}}:mark", b"here")  # WAIT counts from the last write of its own connection
        return bool(client.execute_command("WAIT", followers, 2_000) >= followers)
    return False


def slot_of_queue(queue: str) -> int:
    """Counted here a second time, from the specification: CRC16 of what is in the braces."""
    crc = 0
    for byte in queue.encode():
        crc ^= byte << 8
        for _ in range(8):
            crc = ((crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc % SLOTS


def free_ports(count: int) -> list[int]:
    """Ports that are free together with those 10,000 above, all below those that connections are given."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(11_000, 21_000)
        with contextlib.suppress(OSError):
            for number in (port, port + 10_000):
                socket.create_server((HOST, number)).close()
            if port not in found:
                found.append(port)
    return found


def start(kind: Kind, binary: ServerBinary) -> Group:
    """A group of that kind, started and whole."""
    makers = {Kind.STANDALONE: Standalone, Kind.SENTINEL: Sentinels, Kind.CLUSTER: RedisCluster}
    group: Group = makers[kind](binary)
    return group
