"""What Redis says of itself: for the role admin of all queues, because slow commands tell of everything."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from delayq.core.durations import span
from delayq.core.endpoint import Topology
from delayq.core.errors import BackendUnavailable
from delayq.http.dashboard.house import House
from delayq.http.dashboard.pages import show
from delayq.http.dashboard.visit import Visit, all_queues
from delayq.http.dashboard.wording import plural, size
from delayq.redis.aio import AsyncClient
from delayq.redis.server_report import ServerReport, server_reports, weight

WEIGHED: Final = 50
"""With more queues their memory is not estimated: that asks each of them."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of the page. `bad`: somebody should look at it. `at_ms`: the value is a time."""

    name: str
    value: str
    bad: bool = False
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """One server as the page shows it: headings with facts, and the report."""

    report: ServerReport
    parts: tuple[tuple[str, tuple[Fact, ...]], ...]


async def page(house: House, visit: Visit) -> Response:
    """GET /redis"""
    all_queues(visit)
    client, away = house.client, list[str]()
    reports = asyncio.to_thread(
        server_reports, client.connector, client.options.prefix, lambda node, error: away.append(f"{node}: {error}")
    )
    found, ours = await asyncio.gather(reports, _ours(client))
    told: dict[str, Any] = {
        "now_ms": await house.now_ms(),
        "servers": [Server(one, tuple((name, tuple(facts)) for name, facts in parts_of(one))) for one in found],
        "away": away,
        "ours": ours,
        "topology": _TOPOLOGY[client.connector.endpoint.topology],
        "where": client.connector.endpoint.where,
    }
    return await show(house, visit, "redis.html", told)


async def _ours(client: AsyncClient) -> str:
    """What is said of delayq's own keys. The page tells which server is away, so it opens while one is."""
    try:
        queues = await client.queues()
        if len(queues) > WEIGHED:
            return f"There are {plural(len(queues), 'queue')}: too many to estimate their memory here."
        used = size(await client.run(weight(client.verbs, queues)))
        return f"The keys of {plural(len(queues), 'queue')} of delayq take about {used}."
    except BackendUnavailable as error:
        return f"The memory of delayq's keys cannot be estimated: {error.message}"


_TOPOLOGY: Final = {
    Topology.STANDALONE: "one server",
    Topology.SENTINEL: "behind sentinels; this is the primary",
    Topology.CLUSTER: "a cluster; each primary is shown",
}


def parts_of(report: ServerReport) -> Iterator[tuple[str, Iterator[Fact]]]:
    """List the figures of one server in the order of the page, without those missing from its answer."""
    if report.info:
        yield "Server", _server(report.info)
        yield "Memory", _memory(report.info)
        yield "Persistence", _persistence(report.info)
        yield "Clients", _clients(report.info)
        yield "Replication", _replication(report.info)
    if report.cluster:
        yield "Cluster", _cluster(report.cluster)


def _server(info: Any) -> Iterator[Fact]:
    name, version = ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", "")
    yield Fact("Version", f"{name} {version or info.get('redis_version', '?')}")
    if isinstance(seconds := info.get("uptime_in_seconds"), int):
        yield Fact("Up for", span(seconds * 1_000))


def _memory(info: Any) -> Iterator[Fact]:
    used, most = info.get("used_memory"), info.get("maxmemory")
    if isinstance(used, int):
        full = isinstance(most, int) and most > 0 and used >= 0.9 * most
        yield Fact("Used", size(used), full)
    if isinstance(peak := info.get("used_memory_peak"), int):
        yield Fact("Peak", size(peak))
    if isinstance(most, int):
        yield Fact("Limit (maxmemory)", size(most) if most else "none")
    if policy := info.get("maxmemory_policy"):
        yield Fact("Eviction policy", str(policy), policy != "noeviction")
    if (ratio := info.get("mem_fragmentation_ratio")) is not None:
        yield Fact("Fragmentation", f"{ratio}")


def _persistence(info: Any) -> Iterator[Fact]:
    if "aof_enabled" in info:
        yield Fact("Append-only file", "on" if info["aof_enabled"] else "off")
    for name, label in (
        ("aof_last_write_status", "Last write to it"),
        ("aof_last_bgrewrite_status", "Last rewrite of it"),
        ("rdb_last_bgsave_status", "Last snapshot"),
    ):
        if name in info:
            yield Fact(label, str(info[name]), info[name] != "ok")
    if isinstance(saved := info.get("rdb_last_save_time"), int):
        yield Fact("Last snapshot or start", "", at_ms=saved * 1_000)
    if isinstance(changes := info.get("rdb_changes_since_last_save"), int):
        yield Fact("Changes since then", f"{changes:,}")
    if info.get("loading"):
        yield Fact("State", "is loading its data", bad=True)


def _clients(info: Any) -> Iterator[Fact]:
    connected, most = info.get("connected_clients"), info.get("maxclients")
    if isinstance(connected, int):
        of = f" of at most {most:,}" if isinstance(most, int) else ""
        yield Fact("Connected", f"{connected:,}{of}", isinstance(most, int) and connected >= 0.9 * most)
    if isinstance(blocked := info.get("blocked_clients"), int):
        yield Fact("Blocked (waiting for work)", f"{blocked:,}")
    if isinstance(rejected := info.get("rejected_connections"), int):
        yield Fact("Rejected connections", f"{rejected:,}", rejected > 0)


def _replication(info: Any) -> Iterator[Fact]:
    role = info.get("role")
    if role == "slave":
        yield Fact("Role", f"replica of {info.get('master_host')}:{info.get('master_port')}", bad=True)
        yield Fact("Link", str(info.get("master_link_status")), info.get("master_link_status") != "up")
    elif role:
        yield Fact("Role", "primary")
    if isinstance(number := info.get("connected_slaves"), int):
        yield Fact("Replicas", plural(number, "replica") if number else "none")
    for n in range(number if isinstance(number, int) else 0):
        one = info.get(f"slave{n}")
        if isinstance(one, dict):
            said = f"{one.get('state')}, {one.get('lag')} s behind"
            yield Fact(f"{one.get('ip')}:{one.get('port')}", said, one.get("state") != "online")


def _cluster(cluster: Any) -> Iterator[Fact]:
    yield Fact("State", str(cluster.get("cluster_state")), cluster.get("cluster_state") != "ok")
    yield Fact(
        "Slots served", f"{cluster.get('cluster_slots_ok')} of 16384", cluster.get("cluster_slots_ok") != "16384"
    )
    yield Fact("Nodes", f"{cluster.get('cluster_known_nodes')}, primaries {cluster.get('cluster_size')}")
