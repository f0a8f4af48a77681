"""Why jobs do not run: facts about a server and its queues in, findings out. Pure; `delayq doctor` shows them.

A *problem* keeps jobs from running, or from being safe; *advice* is what a careful operator would still want to know.
Every finding says what, where, and the next step.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from delayq.core.control import Control
from delayq.core.durations import span
from delayq.core.facts import Facts, ForeignKey, QueueFacts, Refusal, ServerFacts, ServerState
from delayq.core.known_bad import known_bad, syncs_too_early
from delayq.core.names import LOST
from delayq.core.views import QueueStats, WorkerInfo

MINIMUM_VERSION: Final = (6, 2, 0)
MOVER_SILENT_MS: Final = 10_000
"""A mover looks at each queue every five seconds at least; two missed looks are no accident."""
OVERDUE_MS: Final = 10_000
OWED_MS: Final = 30_000
SKEW_MS: Final = 2_000
NAMED: Final = 5
"""Queues that a finding names; it counts the others."""
NEARLY_FULL: Final = 0.9
"""The share of maxmemory from which on it is worth a word."""
_NODE_AWAY: Final = (
    "Start this node again, or let a replica take over. Its queues wait until then; this report leaves them out."
)


class Level(StrEnum):
    """How bad it is."""

    PROBLEM = "problem"
    ADVICE = "advice"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: its short name, where, what, and what to do about it."""

    code: str
    where: str
    what: str
    next: str
    level: Level = Level.PROBLEM


def judge(facts: Facts) -> list[Finding]:
    """Everything that is wrong, the server first; [] when all is well."""
    return [
        *(Finding("node-away", facts.where, what, _NODE_AWAY) for what in facts.away),
        *_servers(facts),
        *_foreign(facts.where, facts.foreign),
        *_control(facts.control),
        *_prefix(facts),
        *_unlisted(facts),
        *_queues(facts),
    ]


def _servers(facts: Facts) -> Iterator[Finding]:
    for server in (facts.server, *facts.more_servers):
        where = f"{facts.where}, node {server.node}" if server.node else facts.where
        yield from _server(where, server, replicated=facts.replicated)
        if facts.on_disk and server.appendfsync != "always" and server.version is not None:
            yield from _too_early(where, server, server.version, facts.on_disk)
        if facts.replicated:
            yield from _replicas(where, server)


def _too_early(
    where: str, server: ServerFacts, version: tuple[int, int, int], queues: Sequence[str]
) -> Iterator[Finding]:
    """Durability `fsync` asks a server that may answer before it is so; clients find out, and refuse."""
    if not syncs_too_early(server.product, version):
        return
    name, wanting = f"{server.product} {'.'.join(map(str, version))}", f"{queues[0]}{' and others' * (len(queues) > 1)}"
    yield Finding(
        "synced-too-early",
        where,
        f"With appendfsync {server.appendfsync or 'everysec'} {name} says that a job is on disk before it is; "
        f"durability fsync, which {wanting} asks for, is refused there.",
        "CONFIG SET appendfsync always, and the same in its configuration file; or another durability.",
    )


def _replicas(where: str, server: ServerFacts) -> Iterator[Finding]:
    """What a failover may cost."""
    if server.replicas == 0:
        yield Finding(
            "no-replica",
            where,
            "No replica follows it: when it is lost, its jobs are.",
            "Give it a replica, or bring its replicas back.",
        )
    elif server.replicas and server.needs_replicas == 0:
        yield Finding(
            "cut-off",
            where,
            "Cut off from its replicas it would go on taking jobs, which are lost when a replica takes over.",
            "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10, on its replicas too.",
            Level.ADVICE,
        )


def _server(where: str, server: ServerFacts, *, replicated: bool) -> Iterator[Finding]:
    if server.version is not None:
        yield from _version(where, server.product, server.version)
    if server.eviction not in (None, "noeviction"):
        yield Finding(
            "eviction",
            where,
            f"maxmemory-policy is {server.eviction}: a full server would throw jobs away.",
            "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file.",
        )
    if server.persists is False:
        yield Finding(
            "no-persistence",
            where,
            "It writes nothing to disk: "
            + (
                "back from a restart it is empty, may be made the primary, and its replicas throw away what they have."
                if replicated
                else "a restart loses every job."
            ),
            "CONFIG SET appendonly yes, and the same in its configuration file.",
        )
    yield from _state(where, server.state)
    if abs(server.skew_ms) >= SKEW_MS:
        ahead = "ahead of" if server.skew_ms > 0 else "behind"
        yield Finding(
            "clock",
            where,
            f"This machine's clock is {span(abs(server.skew_ms))} {ahead} the server's, which decides.",
            "Let both keep time with NTP.",
        )
    for command in server.forbidden:
        yield Finding(
            "forbidden",
            where,
            f"This user may not call {command}, so part of this check was left out.",
            f"Allow +{command.lower().replace(' ', '|')} in its ACL, or look yourself.",
            Level.ADVICE,
        )


def refused(state: ServerState) -> str:
    """The sentence that says why a server refuses writes; '' when it takes them."""
    match state.refuses:
        case None:
            return ""
        case Refusal.DISK:
            failing = " and ".join(state.failing) or "its data"
            return f"Redis refuses every write: it cannot save {failing} to disk."
        case Refusal.MEMORY:
            return f"Redis refuses new jobs: it uses {_share(state)}."
        case Refusal.REPLICAS:
            return "Redis refuses every write: too few replicas follow it (min-replicas-to-write)."
        case Refusal.REPLICA:
            return "Redis refuses every write: it is a replica."


_WAY_OUT: Final = {
    Refusal.DISK: "Free disk space, or let it write to its directory (CONFIG GET dir); its own log names the error.",
    Refusal.MEMORY: "Give it more memory (CONFIG SET maxmemory), or let workers finish what waits: they still can.",
    Refusal.REPLICAS: "Bring its replicas back.",
    Refusal.REPLICA: "Put the address of the primary into DELAYQ_URL.",
}


def _state(where: str, state: ServerState) -> Iterator[Finding]:
    """Writes refused, memory nearly used up, data not saved."""
    if state.refuses is not None:
        yield Finding("writes-refused", where, refused(state), _WAY_OUT[state.refuses])
    elif state.failing:
        what = f"It could not save {' and '.join(state.failing)} lately: a crash would lose what is newer."
        yield Finding("not-saved", where, what, _WAY_OUT[Refusal.DISK])
    if state.refuses is not Refusal.MEMORY and state.fullness >= NEARLY_FULL:
        yield Finding(
            "memory",
            where,
            f"It uses {_share(state)}; at the limit it refuses new jobs.",
            "Give it more memory (CONFIG SET maxmemory, and in its configuration file), or start more workers.",
            Level.ADVICE,
        )


def _share(state: ServerState) -> str:
    """'96 % of its maxmemory (1.9 GiB of 2 GiB)'; without the sizes when they look alike."""
    used, limit = state.memory_bytes, state.memory_limit_bytes
    if not used or not limit:
        return "all of its maxmemory"
    sizes = f" ({size(used)} of {size(limit)})" if size(used) != size(limit) else f" of {size(limit)}"
    return f"{100 * used // limit} % of its maxmemory{sizes}"


def size(number: int | None) -> str:
    """A number of bytes for people: '96 MiB'."""
    if number is None:
        return "an unknown number of bytes"
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= factor:
            return f"{number / factor:.1f}".removesuffix(".0") + f" {unit}"
    return f"{number} bytes"


def _version(where: str, product: str, version: tuple[int, int, int]) -> Iterator[Finding]:
    name = f"{product} {'.'.join(map(str, version))}"
    if version < MINIMUM_VERSION:
        yield Finding("old-server", where, f"{name} is too old; delayq needs 6.2 or newer.", "Upgrade the server.")
    for bug in known_bad(product, version):
        level = Level.PROBLEM if bug.touches_delayq else Level.ADVICE
        yield Finding("bad-server", where, f"{name} has a known fault: {bug.what}.", bug.advice, level)


def _foreign(where: str, keys: Iterable[ForeignKey]) -> Iterator[Finding]:
    for one in keys:
        yield Finding(
            "damage",
            where,
            f"The key {one.key} holds a {one.found} of somebody else; delayq keeps a {one.expected} there.",
            f"Rename or delete it: redis-cli RENAMENX '{one.key}' '{one.aside}'",
        )


def _control(control: Control) -> Iterator[Finding]:
    """What keeps all workers from fetching."""
    if control.paused:
        left = _left(control.paused_until_ms or 0, control.now_ms)
        why = f" Its reason: {control.paused_reason}." if control.paused_reason else ""
        yield Finding("all-paused", "all queues", f"Everything is paused{left}.{why}", "delayq resume --all")
    if control.maintenance:
        left = _left(control.maintenance_until_ms or 0, control.now_ms)
        why = f" Its reason: {control.reason}." if control.reason else ""
        what = f"Maintenance is on{left}: workers fetch nothing unless started with --force.{why}"
        yield Finding("maintenance", "all queues", what, "delayq maintenance off")


def _left(until_ms: int, now_ms: int) -> str:
    """' for another 5m'; '' when no end was set."""
    return f" for another {span(until_ms - now_ms)}" if until_ms else ""


def _prefix(facts: Facts) -> Iterator[Finding]:
    """A worker that once ran under the wrong prefix left queues there: then it may be wrong, and need not be."""
    if not facts.other_prefixes or not all(queue.is_empty for queue in facts.queues):
        return
    others = ", ".join(facts.other_prefixes)
    what, level = ("no job", Level.ADVICE) if facts.queues else ("nothing", Level.PROBLEM)
    yield Finding(
        "prefix",
        facts.where,
        f"There is {what} under the prefix {facts.prefix!r}, but there are queues under {others}.",
        f"Set DELAYQ_PREFIX={facts.other_prefixes[0]}, or use --prefix.",
        level,
    )


def _unlisted(facts: Facts) -> Iterator[Finding]:
    """A node was away when these queues were made, or the list of queues was damaged."""
    if not facts.unlisted:
        return
    first, *others = facts.unlisted
    names = ", ".join(facts.unlisted[:NAMED]) + (
        f" and {len(facts.unlisted) - NAMED} more" if others[NAMED - 1 :] else ""
    )
    yield Finding(
        "unlisted",
        facts.where,
        f"Queues that hold jobs and are not on the list of queues: {names}. "
        "Movers and commands that serve all queues do not see them.",
        f"delayq queue set {first}" + ("; the same for each of the others." if others else ""),
    )


def _queues(facts: Facts) -> Iterator[Finding]:
    workers = facts.workers
    # A mover and a worker announce themselves by writes, so on such a server their silence says nothing.
    mute = any(one.state.refuses is not None for one in (facts.server, *facts.more_servers))
    for queue in facts.queues:
        where = f"queue {queue.queue}"
        yield from _foreign(where, queue.foreign)
        if queue.broken and not queue.foreign:
            yield Finding("damage", where, queue.broken, "Remove or rename the foreign key; delayq then goes on.")
        if queue.stats is not None:
            served = workers is None or any(queue.queue in worker.queues for worker in workers)
            yield from _flow(where, queue, queue.stats, served=served or mute, held=facts.control.held_by(), mute=mute)
            yield from _silent(where, queue, queue.stats, workers)
        if queue.owed and queue.owed_for_ms > OWED_MS:
            yield Finding(
                "follow-ups",
                where,
                f"Follow-ups of ended jobs wait: {queue.owed}, the oldest for {span(queue.owed_for_ms)}.",
                "Start a worker (it carries them) or `delayq move`; the log of one that runs says what keeps them.",
            )
        if queue.never:
            yield Finding(
                "never-due",
                where,
                f"Jobs whose due time is out of range, which never run: {queue.never}; "
                f"{queue.never_id!r} has the score {queue.never_score}. A due time is in epoch milliseconds.",
                f"delayq reschedule {queue.never_id} --queue {queue.queue} --in 0s, or delayq cancel; "
                "and correct the program that wrote it.",
            )
        yield from _names(where, queue, facts)


def _silent(
    where: str, queue: QueueFacts, stats: QueueStats, workers: Sequence[WorkerInfo] | None
) -> Iterator[Finding]:
    """Delivered jobs whose holder is dead or does not speak, longest first; the first of them by its id."""
    if not queue.silent.count:
        return
    known = None if workers is None else {worker.name for worker in workers}
    first = queue.silent.jobs[0] if queue.silent.jobs else None
    others = queue.silent.count - 1
    what = f"Delivered jobs whose worker has been silent for more than a lease: {queue.silent.count}."
    if first is not None:
        what = f"{silence(first.worker, first.silent_ms, stats.lease_ms, known)} It holds the job {first.id!r}"
        what += f"; jobs held like that: {others} more." if others else "."
    yield Finding("silent", where, what, f"{TAKE_BACK} `delayq work --queue {queue.queue}`, or `delayq move`.")


TAKE_BACK: Final = "A janitor takes such a job back; run one:"


def silence(worker: str, silent_ms: int, lease_ms: int, known: Container[str] | None) -> str:
    """The sentence about a holder that does not speak. `known`: the workers that are registered; None: unknown."""
    gone = " and is not registered any more" if known is not None and worker not in known else ""
    since = span(silent_ms)
    return f"The worker {worker} has been silent for {since} (a lease is {span(lease_ms)}){gone}."


def _flow(
    where: str, queue: QueueFacts, stats: QueueStats, *, served: bool, held: str, mute: bool
) -> Iterator[Finding]:
    """What keeps jobs from moving on. That they are late is only news when nothing else explains it.

    `served`: a worker serves the queue. `held`: what keeps all workers from fetching. `mute`: the server refuses
    writes, so that movers and workers cannot say that they are there.
    """
    waiting = stats.scheduled + stats.ready
    if stats.paused_until_ms is not None:
        what = f"It is paused{_left(stats.paused_until_ms, stats.now_ms)}; jobs waiting: {waiting}."
        level = Level.PROBLEM if waiting else Level.ADVICE  # a pause that keeps no job is no problem
        yield Finding("paused", where, what, f"delayq resume {queue.queue}", level)
        return
    explained = bool(held) or mute
    if stats.scheduled and stats.now_ms - stats.mover_tick_ms > MOVER_SILENT_MS and not mute:
        explained = True
        seen = f"for {span(stats.now_ms - stats.mover_tick_ms)}" if stats.mover_tick_ms else "yet"
        yield Finding(
            "no-mover",
            where,
            f"No mover was seen {seen}; jobs scheduled: {stats.scheduled}.",
            "Start a worker (it brings a mover) or `delayq move`.",
        )
    if waiting and not served and not queue.outsiders:
        explained = True
        yield Finding(
            "no-worker",
            where,
            f"No worker serves this queue; jobs waiting: {waiting}.",
            f"delayq work --queue {queue.queue}",
        )
    if stats.overdue_oldest_ms >= OVERDUE_MS and not explained:
        yield Finding(
            "overdue",
            where,
            f"The oldest due job waits since {span(stats.overdue_oldest_ms)}.",
            "Start more workers, or look for slow handlers.",
        )


NAMELESS: Final = LOST
"""What a job is called whose payload is lost: nobody knows what it was, and nobody needs a handler for it."""


def _names(where: str, queue: QueueFacts, facts: Facts) -> Iterator[Finding]:
    handlers, by = facts.handlers, f"in {facts.app}"
    if handlers is None:
        handlers, by = _announced(queue.queue, facts), "in the workers that serve this queue"
    missing = queue.unknown if handlers is None else (queue.names | queue.unknown) - handlers
    for name in sorted(missing - {NAMELESS}):
        yield Finding(
            "unregistered",
            where,
            f"No handler is registered for {name!r} {by}.",
            "Import the module that has it in the worker's --app, or cancel these jobs.",
        )


def _announced(queue: str, facts: Facts) -> frozenset[str] | None:
    """The names that some worker of this queue says it handles; None when no worker says anything."""
    said = [worker.about.get("jobs") for worker in facts.workers or () if queue in worker.queues]
    lists = [names for names in said if isinstance(names, list)]
    return frozenset(str(name) for names in lists for name in names) if lists else None
