"""Servers that belong together, on loopback ports: a primary with two replicas and three sentinels, or a cluster."""

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot

from delayq.worker.forking import is_stopped
from tests.support.lines import complete_lines
from tests.support.servers import server_program
from tests.support.waiting import wait_until
from tests.support.workers import end_worker

SERVICE = "main"
DOWN_AFTER_MS = 2_000  # with less, a busy machine makes a healthy primary look dead
NODE_TIMEOUT_MS = 2_000
SLOTS = 16_384

STAMP = """
from delayq import job

@job("stamp")
def stamp(path: str, text: str) -> None:
    with open(path, "a") as file:
        file.write(f"{text}\\n")
"""


class Server:
    """One server, or one sentinel, that the test can kill, suspend and start again."""

    def __init__(
        self, folder: Path, *options: str, password: str | None, port: int | None = None, is_sentinel: bool = False
    ) -> None:
        self.port = port or _free_port()
        self._words = [server_program()]
        if is_sentinel:
            config = folder / f"sentinel-{self.port}.conf"
            config.write_text("".join(f"{option}\n" for option in options))
            self._words += [str(config), "--sentinel"]
        else:
            data = folder / str(self.port)
            data.mkdir()
            self._words += [
                "--dir",
                str(data),
                "--appendonly",
                "yes",
                "--save",
                "",
                "--repl-diskless-sync-delay",
                "0",
                *options,
            ]
        self._words += ["--port", str(self.port), "--bind", "127.0.0.1", "--logfile", str(folder / f"{self.port}.log")]
        self.client = redis.Redis(port=self.port, password=password, decode_responses=True, socket_timeout=5)
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._words, stdout=subprocess.DEVNULL)
        wait_until(self._answers)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.client.close()

    def suspend(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(self.process.pid))

    def is_alive(self) -> bool:
        """Return True if the process runs and is not suspended."""
        return self.process.poll() is None and not is_stopped(self.process.pid)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False


class SentinelGroup:
    """A primary, its replicas and their sentinels. `url`: the address of the service."""

    def __init__(self, folder: Path, stack: ExitStack, password: str | None, more: Sequence[str]) -> None:
        def server(*options: str, is_sentinel: bool = False) -> Server:
            made = Server(folder, *options, password=password, is_sentinel=is_sentinel)
            stack.callback(made.end)
            return made

        login = [*more, *(["--requirepass", password, "--masterauth", password] if password else [])]
        first = server(*login)
        of_first = ("--replicaof", "127.0.0.1", str(first.port))
        self.servers = [first, server(*of_first, *login), server(*of_first, *login)]
        watched = [
            f"sentinel monitor {SERVICE} 127.0.0.1 {first.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {SERVICE} 3000",
        ]
        if password:
            watched += [f"sentinel auth-pass {SERVICE} {password}", f"requirepass {password}"]
        self.sentinels = [server(*watched, is_sentinel=True) for _ in range(3)]
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        self.url = f"redis+sentinel://{hosts}/{SERVICE}"
        wait_until(self.is_whole)

    def agree(self) -> bool:
        """Return True if all sentinels name the same primary."""
        return len({str(one.client.sentinel_get_master_addr_by_name(SERVICE)) for one in self.sentinels}) == 1

    def is_whole(self, replicas: int = 1) -> bool:
        """Return True if each sentinel knows the others and the primary, and so many replicas follow it.

        One of the replicas may have been the primary before. The sentinels need ten seconds to make it a replica.
        """
        return all(self._knows_all(sentinel) for sentinel in self.sentinels) and len(self._replicas()) >= replicas

    def primary(self) -> Server:
        """Return the server that the first sentinel names."""
        named: Any = self.sentinels[0].client.sentinel_get_master_addr_by_name(SERVICE)
        _, port = named
        return next(server for server in self.servers if server.port == int(port))

    def _replicas(self) -> list[Any]:
        replicas: Any = self.primary().client.info("replication")
        return [one for one in replicas.values() if isinstance(one, dict) and one.get("state") == "online"]

    def _knows_all(self, sentinel: Server) -> bool:
        about: Any = sentinel.client.sentinel_master(SERVICE)
        counts = (about["port"], about["num-slaves"], about["num-other-sentinels"])
        return counts == (self.primary().port, 2, 2) and about["flags"] == "master"


class ClusterGroup:
    """A cluster of three primaries, each with a replica.

    `may_fail_over`: False = no replica ever becomes a primary. `url`: the address, with two of the nodes.
    """

    def __init__(self, folder: Path, stack: ExitStack, *, may_fail_over: bool = True) -> None:
        self.servers: list[Server] = []
        for _ in range(6):
            options = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS)]
            options += ["--cluster-require-full-coverage", "no"]
            options += ["--cluster-migration-barrier", "9"]  # each primary keeps its replica
            options += ["--cluster-replica-no-failover", "no" if may_fail_over else "yes"]
            server = Server(folder, *options, password=None, port=_free_cluster_port())
            stack.callback(server.end)
            self.servers.append(server)
        primaries, replicas = self.servers[:3], self.servers[3:]
        for server in self.servers[1:]:
            command(server, "CLUSTER", "MEET", "127.0.0.1", primaries[0].port)
        for n, server in enumerate(primaries):
            first, last = n * SLOTS // 3, (n + 1) * SLOTS // 3 - 1
            command(server, "CLUSTER", "ADDSLOTS", *range(first, last + 1))
        wait_until(lambda: all(self._knows_all(server) for server in self.servers))
        for primary, replica in zip(primaries, replicas, strict=True):
            command(replica, "CLUSTER", "REPLICATE", command(primary, "CLUSTER", "MYID"))
        self.url = f"redis+cluster://127.0.0.1:{primaries[0].port},127.0.0.1:{primaries[1].port}"
        wait_until(self.is_whole)

    def _knows_all(self, server: Server) -> bool:
        """Return True if a server has the final ids of all servers, and not those of a handshake."""
        rows = self.nodes(server)
        return len(rows) == 6 and not any("handshake" in row[2] for row in rows)

    def nodes(self, server: Server) -> list[list[str]]:
        """Return the rows of CLUSTER NODES as a server sees them."""
        return [row.split() for row in command(server, "CLUSTER", "NODES").splitlines()]

    def owner(self, queue: str) -> Server:
        """Return the primary that has the keys of a queue, as a living server sees it."""
        return self.owner_of_slot(key_slot(f"{{{queue}}}".encode()))

    def replica_of(self, primary: Server) -> Server:
        """Return the replica of a primary. After a failover, wait until it has one."""
        found: list[Server] = []

        def is_found() -> bool:
            for server in self.servers:
                info: Any = server.client.info("replication")
                if info["role"] == "slave" and int(info["master_port"]) == primary.port:
                    found.append(server)
            return bool(found)

        wait_until(is_found, f"a replica of {primary.port}")
        return found[0]

    def owner_of_slot(self, slot: int) -> Server:
        """Return the primary that has a slot, as a living server sees it."""
        alive = next(server for server in self.servers if server.is_alive())
        for row in self.nodes(alive):
            ranges = [part.split("-") for part in row[8:] if "[" not in part]
            if any(int(one[0]) <= slot <= int(one[-1]) for one in ranges):
                port = int(row[1].split("@")[0].rpartition(":")[2])
                return next(server for server in self.servers if server.port == port)
        raise AssertionError(f"no node has the slot {slot}")

    def is_whole(self) -> bool:
        """Return True if each node sees three primaries with slots, all of them connected, and replicas in step."""
        for server in self.servers:
            flags = {flag for row in self.nodes(server) for flag in row[2].split(",")}
            if flags & {"fail", "fail?"} or "cluster_state:ok" not in str(command(server, "CLUSTER", "INFO")):
                return False
            info: Any = server.client.info("replication")
            if info["role"] == "slave" and info["master_link_status"] != "up":
                return False
        return True


def command(server: Server, *words: str | int) -> Any:
    """Send a command to one server, and return its reply as text."""
    connection = server.client.connection_pool.get_connection()
    try:
        connection.send_command(*words)
        return connection.read_response()
    finally:
        server.client.connection_pool.release(connection)


@contextmanager
def cluster_group(*, may_fail_over: bool = True) -> Iterator[ClusterGroup]:
    """Run a cluster of three primaries and three replicas for the block. `may_fail_over`: see ClusterGroup."""
    with tempfile.TemporaryDirectory(prefix="delayq-") as folder, ExitStack() as stack:
        yield ClusterGroup(Path(folder), stack, may_fail_over=may_fail_over)


@contextmanager
def sentinel_group(password: str | None = None, *, options: Sequence[str] = ()) -> Iterator[SentinelGroup]:
    """Run a primary, two replicas and three sentinels for the block.

    `password`: of all six; None = they have none. `options`: more options of the servers.
    """
    with tempfile.TemporaryDirectory(prefix="delayq-") as folder, ExitStack() as stack:
        yield SentinelGroup(Path(folder), stack, password, options)


@contextmanager
def failover(old: Server, number: signal.Signals, has_new: Callable[[], bool]) -> Iterator[None]:
    """Kill or suspend a primary. The block runs when another server has its role; after it, the old one comes back."""
    if number == signal.SIGSTOP:
        old.suspend()
    else:
        old.end()
    wait_until(has_new)
    yield
    if number == signal.SIGSTOP:
        os.kill(old.process.pid, signal.SIGCONT)
    else:
        old.start()


@contextmanager
def hanging(server: Server) -> Iterator[None]:
    """Suspend a server for the block."""
    server.suspend()
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


@contextmanager
def hanging_node(group: ClusterGroup, primary: Server) -> Iterator[None]:
    """Suspend a primary of a cluster, and its replica, for the block."""
    replica = group.replica_of(primary)
    with hanging(primary), hanging(replica):  # the replica goes on first, so it does not become the primary
        yield


@contextmanager
def walled_off(group: SentinelGroup) -> Iterator[Server]:
    """Hide a living primary from the sentinels. The block runs when they have another one, and gets the old one."""
    wait_until(lambda: group.is_whole(replicas=2), patience=60)
    old = group.primary()
    for server in group.servers:
        command(server, "ACL", "SETUSER", "watcher", "on", ">pw", "~*", "&*", "+@all")
    for sentinel in group.sentinels:
        command(sentinel, "SENTINEL", "SET", SERVICE, "auth-user", "watcher", "auth-pass", "pw")
    wait_until(lambda: "user=watcher" in command(old, "CLIENT", "LIST"))
    command(old, "ACL", "SETUSER", "watcher", "-ping", "-slaveof", "-replicaof")
    try:
        wait_until(lambda: group.primary() is not old and group.agree())
        yield old
    finally:
        command(old, "ACL", "SETUSER", "watcher", "+@all")


@contextmanager
def stamping_worker(url: str, folder: Path, *queues: str) -> Iterator[None]:
    """Run a worker for the block, with a job `stamp` that appends a line: {"path": file, "text": line}."""
    (folder / "app.py").write_text(STAMP)
    words = [sys.executable, "-m", "delayq", "--url", url, "work", "--app", "app", "--queue", ",".join(queues)]
    worker = subprocess.Popen(words, cwd=folder, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
    try:
        yield
        assert worker.poll() is None
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=30) == 0
    finally:
        end_worker(worker)


def lines(path: Path) -> list[str]:
    """Return the lines of a file; a missing file has none."""
    return complete_lines(path)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _free_cluster_port() -> int:
    """Return a free port. The port of the cluster bus, which is 10,000 higher before Redis 7, is free too."""
    while True:
        port = random.randrange(20_000, 30_000)
        with (
            suppress(OSError),
            socket.create_server(("127.0.0.1", port)),
            socket.create_server(("127.0.0.1", port + 10_000)),
        ):
            return port
