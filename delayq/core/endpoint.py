"""Where Redis is, as one value. `redis_url` reads it from a URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Topology(StrEnum):
    """How the servers behind an endpoint belong together."""

    STANDALONE = "standalone"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password; both empty when none is needed. Never shown."""

    username: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One Redis as delayq connects to it. Its text forms never hold a password."""

    url: str
    """The URL with every password replaced by ***."""
    topology: Topology
    hosts: tuple[tuple[str, int], ...] = ()
    """Host and port; several for sentinels and a cluster, none for a socket."""
    path: str = ""
    """The unix socket, or empty."""
    db: int = 0
    service: str = ""
    """The name the sentinels know the primary by."""
    login: Login = Login()
    sentinel_login: Login = Login()
    protocol: int = 2
    tls: bool = False
    tls_options: tuple[tuple[str, str | bool], ...] = field(default=(), repr=False)

    @property
    def where(self) -> str:
        """For messages: '127.0.0.1:6379', '/run/redis.sock', 'the sentinels a:26379, b:26379 (service main)'."""
        if self.path:
            return self.path
        hosts = ", ".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        match self.topology:
            case Topology.STANDALONE:
                return hosts
            case Topology.SENTINEL:
                return f"the sentinels {hosts} (service {self.service})"
            case Topology.CLUSTER:
                return f"the cluster {hosts}"

    def __str__(self) -> str:
        return self.url
