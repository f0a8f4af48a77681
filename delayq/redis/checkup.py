"""What `delayq doctor`, and a worker at its start, ask a server: a few cheap looks. They change and judge nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from redis.exceptions import NoPermissionError

from delayq.core.control import Control
from delayq.core.endpoint import Topology
from delayq.core.envelope import UNKNOWN_SINCE
from delayq.core.errors import BackendDamaged, BackendError, BackendUnavailable, ConfigError, DelayqError
from delayq.core.facts import Facts, ForeignKey, QueueFacts, ServerFacts, ServerState
from delayq.core.shards import queue_of
from delayq.core.states import State
from delayq.core.views import JobInfo, Silent
from delayq.redis.calls.call import Command, text
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.direct import Direct
from delayq.redis.faults import of_a_part
from delayq.redis.finding import every_shard
from delayq.redis.foreign import foreign_keys, foreign_of_all
from delayq.redis.keys import GROUP, Globals, Keys
from delayq.redis.presence import durabilities
from delayq.redis.server_state import LeaveOut, on_each, server_states
from delayq.redis.translate import translate
from delayq.redis.unlisted import SCAN_COUNT, UnlistedWalk
from delayq.redis.verbs import Flow, Verbs
from delayq.redis.whole import silent

T = TypeVar("T")
U = TypeVar("U")

SAMPLE: Final = 200
"""Jobs of each state whose names are looked at."""
RECORDS: Final = 20
"""Failures read in each queue, to find names that workers did not know."""
OUTSIDER_MS: Final = 60_000
"""A plain consumer that asked for work this lately counts as serving."""
SCAN_ROUNDS: Final = 100

LAST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""

_OURS: Final = "dq:"
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def gather(
    client: Client,
    *,
    handlers: Iterable[str] | None = None,
    app: str = "",
    queues: Sequence[str] | None = None,
    scan: bool = False,
) -> Facts:
    """All facts about a server and the queues under this client's prefix, or about these queues.

    `handlers` are the job names an application registers, `app` how it is called in findings. `scan`: look
    through the keys for queues that are not on the list of queues. Raises `BackendError` or `ConfigError` when the
    server cannot be asked at all.
    """
    away = _Away(client.connector)
    prefix = client.options.prefix
    foreign = away.unless(lambda: foreign_of_all(client.connector, prefix), ())
    seen: tuple[ForeignKey, ...] = foreign or ()
    known = away.unless(lambda: _unless(seen, client.queues), [client.options.queue]) if queues is None else queues
    found = tuple(away.unless(partial(_queue, client, name), QueueFacts(name)) for name in known or ())
    empty = all(one.is_empty for one in found) and not away.told
    record = Globals(prefix).worker("")  # a worker that cannot be read may serve anything
    unreadable = any(one.key.startswith(record) for one in seen)
    workers = None if unreadable else away.unless(lambda: _unless(seen, client.workers), None)
    server, *others = _servers(client, away)
    forbidden = [] if foreign is not None else ["TYPE"]
    unlisted = away.unless(lambda: _unless(seen, lambda: _unlisted(client, away, forbidden)), ()) if scan else ()
    server = replace(server, forbidden=(*server.forbidden, *forbidden))
    return Facts(
        where=client.connector.endpoint.where,
        prefix=prefix,
        server=server,
        queues=found,
        workers=None if workers is None else tuple(workers),
        foreign=seen,
        other_prefixes=(
            away.unless(lambda: _other_prefixes(client), ()) if empty and not seen and queues is None else ()
        ),
        control=away.unless(lambda: _unless(seen, client.control), None) or Control(),
        handlers=None if handlers is None else frozenset(handlers),
        app=app,
        more_servers=tuple(others),
        unlisted=unlisted or (),
        on_disk=away.unless(lambda: _on_disk(client, known or ()), ()),
        away=tuple(away.told),
        replicated=client.connector.endpoint.topology is not Topology.STANDALONE,
    )


class _Away:
    """What the nodes of a cluster that are away kept from being looked at. `told`: a sentence for each node."""

    def __init__(self, connector: Connector) -> None:
        self.told: list[str] = []
        self._where = connector.endpoint.where

    def unless(self, ask: Callable[[], T], otherwise: U) -> T | U:
        """The answer; `otherwise` when a node of the cluster is away. Raises what is about all of the server."""
        try:
            return ask()
        except BackendError as error:
            if not error.apart:
                raise
            self._note(error)
            return otherwise

    def leave_out(self, node: str, error: Exception) -> None:
        """A node that did not answer."""
        host, _, port = node.rpartition(":")
        self._note(translate(of_a_part(error, (host, int(port))), where=self._where, reads=True))

    def _note(self, error: DelayqError) -> None:
        if error.message not in self.told:
            self.told.append(error.message)


def eviction_policy(connector: Connector) -> str | None:
    """The server's maxmemory-policy, in a cluster the first that is not noeviction; None when it, or what this user may
    ask, does not tell. Raises as `gather`.
    """
    told = [info.get("maxmemory_policy") for info in _ask(connector, "INFO", [], "memory").values()]
    policies = sorted({str(policy) for policy in told if policy is not None}, key="noeviction".__eq__)
    return policies[0] if policies else None


def _unless(foreign: tuple[ForeignKey, ...], ask: Callable[[], T]) -> T | None:
    """The answer; None when one of these keys kept the server from giving it."""
    try:
        return ask()
    except BackendDamaged:
        if not foreign:
            raise
        return None


# -- the server ------------------------------------------------------------------------------------------------------


def _servers(client: Client, away: _Away) -> list[ServerFacts]:
    """One, or each primary of a cluster that can be asked."""
    forbidden: list[str] = []
    infos = _ask(client.connector, "INFO", forbidden, away=away)
    saves = _ask(client.connector, "CONFIG GET", forbidden, "save", away=away)
    needs = _ask(client.connector, "CONFIG GET", forbidden, "min-replicas-to-write", away=away)
    syncs = _ask(client.connector, "CONFIG GET", forbidden, "appendfsync", away=away)
    known = server_states(client.connector, client.options.prefix, away.leave_out)
    states = {state.node: state for state in known}
    refused = (word for state in states.values() for word in state.forbidden)
    skew_ms, refused_words = skew_of(client.connector), tuple(dict.fromkeys([*forbidden, *refused]))
    return [
        _server(
            node,
            infos.get(node, {}),
            saves.get(node),
            needs.get(node, {}),
            ServerFacts(
                "",
                None,
                None,
                None,
                skew_ms,
                refused_words,
                appendfsync=next(iter(syncs.get(node, {}).values()), None),
                state=states.get(node, ServerState()),
            ),
        )
        for node in infos or saves or {"": {}}
    ]


def _on_disk(client: Client, queues: Iterable[str]) -> tuple[str, ...]:
    read = partial(durabilities, client.options.prefix, tuple(queues), client.options.durability)
    waited = client.connector.call(read, safe=True, reads=True)
    return tuple(queue for queue, wanted in waited.items() if wanted.fsync)


def _server(
    node: str,
    info: Mapping[str, Any],
    saves: Mapping[str, Any] | None,
    needs: Mapping[str, Any],
    common: ServerFacts,
) -> ServerFacts:
    named = "valkey_version" in info
    return replace(
        common,
        product="Valkey" if named else "Redis",
        version=_version(str(info.get("valkey_version" if named else "redis_version", ""))),
        eviction=info.get("maxmemory_policy"),
        persists=_persists(info, saves),
        node=node,
        replicas=info.get("connected_slaves"),
        needs_replicas=next((int(value) for value in needs.values()), None),
    )


def _ask(
    connector: Connector, command: str, forbidden: list[str], *args: str, away: _Away | None = None
) -> dict[str, dict[str, Any]]:
    """The answer of each server as a dict; empty when the user may not ask, which is noted.

    A node of a cluster that is away is left out and noted in `away`; without `away` it is raised.
    """
    try:
        answers = connector.call(
            partial(_execute_on_each, (command, *args), away.leave_out if away else None), safe=True, reads=True
        )
    except ConfigError as error:
        if not isinstance(error.__cause__, NoPermissionError):
            raise
        forbidden.append(command)
        return {}
    return {
        node: {str(name): value for name, value in answer.items()} if isinstance(answer, Mapping) else {}
        for node, answer in answers.items()
    }


def _execute_on_each(words: tuple[str, ...], leave_out: LeaveOut | None, client: Direct) -> dict[str, Any]:
    servers: Mapping[str, Any] = client.servers()
    return on_each(client, lambda node: servers[node].execute_command(*words), leave_out)


def _version(text: str) -> tuple[int, int, int] | None:
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def _persists(info: Mapping[str, Any], saves: Mapping[str, Any] | None) -> bool | None:
    """Whether anything is written to disk; None when that cannot be told."""
    if int(info.get("aof_enabled", 0)):
        return True
    if saves is None or not info:
        return None
    return any(bool(value) for value in saves.values())


def skew_of(connector: Connector) -> int:
    """This machine's clock minus the server's in ms, half of the round trip taken off."""
    before = time.time()
    seconds, micros = connector.call(lambda redis: redis.time(), safe=True, reads=True)
    middle = (before + time.time()) / 2
    return round((middle - seconds - micros / 1_000_000) * 1000)


# -- the queues ------------------------------------------------------------------------------------------------------


def _queue(client: Client, queue: str) -> QueueFacts:
    foreign = foreign_keys(client.connector, Keys(client.options.prefix, queue).types())
    facts = QueueFacts(queue, foreign=foreign or ())
    try:
        [stats] = client.stats(queue)
        facts = replace(facts, stats=stats)
        owed, owed_for_ms = client.run(_owed(client.verbs, queue, stats.now_ms))
        never, never_id, never_score = client.run(_never(client.verbs, queue))
        facts = replace(facts, never=never, never_id=never_id, never_score=never_score)
        held = client.run(silent(client.verbs, queue)) if stats.reserved else Silent()
        facts = replace(facts, owed=owed, owed_for_ms=owed_for_ms, silent=held)
        jobs = [job for state in _SAMPLED for job in client.list_jobs(state, queue=queue, limit=SAMPLE).jobs]
        return replace(
            facts,
            names=frozenset(job.name for job in jobs if job.name),
            unknown=_unknown(client, queue, jobs),
            outsiders=client.connector.call(partial(_outsiders, client.options.prefix, queue), safe=True, reads=True),
        )
    except BackendUnavailable:
        raise
    except BackendError as error:
        return replace(facts, broken=error.message)


def _owed(verbs: Verbs, queue: str, now_ms: int) -> Flow[tuple[int, int]]:
    """How many follow-ups wait in the outboxes of a queue, and since when the oldest does, by its entry's id."""
    owed = oldest_ms = 0
    for scope in (yield from every_shard(verbs, queue)):
        outbox = scope.keys.of("outbox")
        owed += yield Command(("XLEN", outbox), int, True)
        first: str = yield Command(("XRANGE", outbox, "-", "+", "COUNT", 1), _first, True)
        if first:
            oldest_ms = max(oldest_ms, now_ms - int(first.partition("-")[0]))
    return owed, oldest_ms


def _never(verbs: Verbs, queue: str) -> Flow[tuple[int, str, str]]:
    """How many jobs of a queue are due after the year 9999, and the id and the score of the last of them."""
    never, last = 0, ("", "")
    for scope in (yield from every_shard(verbs, queue)):
        scheduled = scope.keys.of("scheduled")
        count: int = yield Command(("ZCOUNT", scheduled, f"({LAST_MS}", "+inf"), int, True)
        if count:
            last = yield Command(("ZRANGE", scheduled, -1, -1, "WITHSCORES"), _scored, True)
        never += count
    return never, *last


def _scored(rows: Iterable[Any]) -> tuple[str, str]:
    """The id and the score of one row: a pair in RESP 3, two words in RESP 2."""
    flat = [word for row in rows for word in (row if isinstance(row, list | tuple) else [row])]
    return (text(flat[0]), str(flat[1]) if isinstance(flat[1], float) else text(flat[1])) if flat else ("", "")


def _first(rows: Iterable[Any]) -> str:
    return next((text(row[0]) for row in rows), "")


_SAMPLED: Final = (State.SCHEDULED, State.READY, State.FAILED)


def _unknown(client: Client, queue: str, jobs: Sequence[JobInfo]) -> frozenset[str]:
    """Names that some worker had no handler for, from a header of the jobs and from what they have on record."""
    marked = {job.name for job in jobs if job.envelope and UNKNOWN_SINCE in (job.envelope.headers or {})}
    tried = (job for job in jobs if job.envelope and job.envelope.attempts)
    records = (client.get(job.id, queue=queue) for job in islice(tried, RECORDS))
    return frozenset(
        marked.union(one.name for one in records if one and one.failure and one.failure.type == "UnknownJob")
    )


def _outsiders(prefix: str, queue: str, client: Any) -> int:
    stream = Keys(prefix, queue).stream
    if not client.exists(stream):
        return 0
    if not any(group["name"] == GROUP.encode() for group in client.xinfo_groups(stream)):
        return 0
    rows = client.xinfo_consumers(stream, GROUP)
    return sum(not row["name"].startswith(_OURS.encode()) and row["idle"] < OUTSIDER_MS for row in rows)


def _unlisted(client: Client, away: _Away, forbidden: list[str]) -> tuple[str, ...]:
    """Queues that hold something and that the list lacks. Looks at a bounded number of keys, so it may miss some."""
    walk, found = UnlistedWalk(client, away.leave_out), set[str]()
    for _ in range(SCAN_ROUNDS):
        found.update(map(queue_of, walk.step()))
        if walk.over:
            break
    if walk.forbidden:
        forbidden.append("SCAN")
    return tuple(sorted(found))


def _other_prefixes(client: Client) -> tuple[str, ...]:
    """Prefixes under which this server has queues. Looks at a bounded number of keys, so it may miss some."""
    found: set[str] = set()
    for node in client.connector.call(lambda redis: tuple(redis.servers()), safe=True, reads=True):
        cursor = 0
        for _ in range(SCAN_ROUNDS):
            cursor, names = client.connector.call(partial(_scan, node, cursor), safe=True, reads=True)
            found |= {name.decode("utf-8", "backslashreplace").removesuffix(":queues") for name in names}
            if not cursor:
                break
    return tuple(sorted(found - {client.options.prefix}))


def _scan(node: str, cursor: int, client: Direct) -> tuple[int, list[bytes]]:
    server: Any = client.servers()[node]
    after, names = server.scan(cursor=cursor, match="*:queues", count=SCAN_COUNT, _type="SET")
    return int(after), list(names)
